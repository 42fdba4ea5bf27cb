"""Hidden states at the positions that predict a response, and the head that turns them into logits.

The head is applied to flat `[N, H]` tokens in `kleash.kl.exact`; logits of a whole batch are never held.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from kleash.errors import ModelError
from kleash.models.batch import TokenBatch


def response_hidden(causal_lm: Any, batch: TokenBatch) -> Float[Tensor, "N H"]:
    """Last hidden states that predict the response tokens, row by row; scaled so that hidden @ head.T are the logits.

    Gradient: to whatever of the model is trainable. Padding on the right never reaches a real position.
    """
    states: Tensor = causal_lm.base_model(
        input_ids=batch.input_ids,
        attention_mask=None if batch.attention_mask is None else batch.attention_mask.long(),
        use_cache=False,
    ).last_hidden_state
    hidden = states[batch.predicts_response]
    scale = logits_scale(causal_lm.config)
    return hidden if scale == 1.0 else hidden * scale


def head_weight(causal_lm: Any) -> Float[Tensor, "V H"]:
    """Weight of the output layer."""
    return causal_lm.get_output_embeddings().weight  # type: ignore[no-any-return]


def logits_scale(config: Any) -> float:
    """What some families multiply or divide their logits by (Cohere, Granite, Falcon-H1); 1 for most."""
    config = config.get_text_config()
    multiplier = getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", None) or 1.0
    divisor = getattr(config, "logits_scaling", None) or 1.0
    return float(multiplier) / float(divisor)


def check_head(causal_lm: Any, name: str) -> None:
    """Refuse models whose logits are not a plain product of hidden state and weight.

    Raises:
        ModelError: capped logits (Gemma 2), a bias in the head, or no head.
    """
    if getattr(causal_lm.config.get_text_config(), "final_logit_softcapping", None):
        raise ModelError(
            f"model {name!r} caps its logits with tanh: the exact KL is not implemented for that. "
            "Use a model without final_logit_softcapping"
        )
    head = causal_lm.get_output_embeddings()
    if head is None:
        raise ModelError(f"model {name!r} has no output layer over the vocabulary. Use a causal language model")
    if getattr(head, "bias", None) is not None:
        raise ModelError(f"model {name!r} has a bias in its output layer, which is not supported")
