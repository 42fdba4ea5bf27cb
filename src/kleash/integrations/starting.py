"""Where a trainer began: its model as a policy, and the frozen start that drift is measured from.

* a fresh LoRA adapter: the same weights with the adapter off, no second copy;
* a continued adapter, another kind of adapter, or full fine-tuning: a copy of the weights that are trained, lent to the
  model while the start is scored. Both run through the same modules in the same dtype, so that before the first
  update the two are equal to the last bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from peft import PeftModel
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kleash.errors import ModelError
from kleash.models.batch import TokenBatch, collate
from kleash.models.fingerprint import fingerprint
from kleash.models.policy import Policy
from kleash.models.reference import AdapterReference, Reference
from kleash.models.scoring import check_head, head_weight, response_hidden
from kleash.models.tokenizer import wrap
from kleash.runs.reader import RunReader

PROMPTS_TO_COMPARE = 4
"""Prompts on which an adapter must change nothing to count as fresh."""


class StartingWeights:
    """The trained weights as they were, lent to the model while it is scored as the reference."""

    def __init__(self, policy: Policy) -> None:
        """Copy the weights of `policy` that training changes."""
        self._policy = policy
        self._start = [(parameter, parameter.detach().clone()) for _, parameter in policy.trained()]

    @property
    def description(self) -> str:
        """Who it is, in words."""
        return (
            f"{self._policy.name} as it was when training began "
            f"(a frozen copy of the trained weights, {self.extra_bytes / 1e9:.3g} GB)"
        )

    @property
    def extra_bytes(self) -> int:
        """Size of the copy."""
        return sum(copy.nbytes for _, copy in self._start)

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Weight of the output layer when training began."""
        with self._lent():
            return head_weight(self._policy.causal_lm).detach()

    @torch.no_grad()
    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        with self._lent():
            return response_hidden(self._policy.causal_lm, batch)

    @contextlib.contextmanager
    def model_to_sample(self) -> Iterator[Any]:
        """Within the block, the model with its weights as they were."""
        with self._lent():
            yield self._policy.causal_lm

    def fingerprint(self) -> str:
        """SHA-256 of all weights as they were."""
        with self._lent():
            return fingerprint(self._policy.causal_lm.named_parameters())

    @contextlib.contextmanager
    def _lent(self) -> Iterator[None]:
        """Within the block the model's parameters hold the copy; nothing is written to either."""
        trained = [parameter.data for parameter, _ in self._start]
        try:
            for parameter, copy in self._start:
                parameter.data = copy
            yield
        finally:
            for (parameter, _), tensor in zip(self._start, trained, strict=True):
                parameter.data = tensor


def policy_of(model: nn.Module, processing_class: Any) -> Policy:
    """The model and tokenizer of a trainer, as they are, to be sampled and scored.

    Raises:
        ModelError: no tokenizer, sharded weights, weights trained outside of the language model, or an output layer
            whose logits are no plain product.
    """
    inner = getattr(processing_class, "tokenizer", processing_class)
    if inner is None:
        raise ModelError(
            "the trainer has no tokenizer (its processing_class is None), so prompts cannot be read. "
            "Pass processing_class=tokenizer to the trainer"
        )
    peft_model = model if isinstance(model, PeftModel) else None
    causal_lm: Any = model if peft_model is None else peft_model.get_base_model()
    name = getattr(causal_lm.config, "name_or_path", "") or type(causal_lm).__name__
    _check_whole(causal_lm, name)
    _check_all_inside(model, causal_lm, name)
    check_head(causal_lm, name)
    _check_plain_head(causal_lm, name)
    return Policy(name, causal_lm, peft_model, wrap(inner, causal_lm.config, causal_lm.generation_config, name), None)


def starting_model(policy: Policy, prompts: Sequence[Sequence[int]]) -> Reference:
    """The policy as it is now, frozen: call it before the first update, in evaluation mode."""
    if policy.peft_model is not None and _trains_only_lora(policy) and _adapter_changes_nothing(policy, prompts):
        return AdapterReference(policy, None)
    return StartingWeights(policy)


def resumed_start(policy: Policy, run_dir: Path | None, step: int) -> Reference:
    """The start of a training that is resumed after `step`: the adapter off, if the run's record agrees.

    Raises:
        ModelError: the weights that training began with are not in memory.
        RunDirError: a run that cannot be read.
    """
    if run_dir is not None and policy.peft_model is not None and _trains_only_lora(policy):
        reference = AdapterReference(policy, None)
        with RunReader(run_dir) as run:
            recorded = run.meta.get("reference_fingerprint")
        if reference.fingerprint() == recorded:
            return reference
    raise ModelError(
        f"training resumes after step {step} (run_dir = {run_dir}), and the model that it started from is not in "
        "memory: that is so only for a LoRA adapter that began fresh, with run_dir = the run of the first steps to "
        "prove it. Otherwise resume without the callback, and run `kleash gauge` on the start and the result"
    )


def _trains_only_lora(policy: Policy) -> bool:
    """Whether switching the adapter off undoes all of the training: biases and other weights would stay trained."""
    assert policy.peft_model is not None
    biases = any(getattr(config, "bias", "none") != "none" for config in policy.peft_model.peft_config.values())
    return not biases and all("lora_" in name for name, _ in policy.trained())


@torch.no_grad()
def _adapter_changes_nothing(policy: Policy, prompts: Sequence[Sequence[int]]) -> bool:
    """Whether the last hidden state of some prompts is the same to the bit with the adapter on and off."""
    some = prompts[:PROMPTS_TO_COMPARE]
    batch = collate(some, [prompt[-1:] for prompt in some], pad=policy.tokenizer.pad_id, device=policy.device)
    return torch.equal(policy.hidden(batch), AdapterReference(policy, None).hidden(batch))


def _check_whole(causal_lm: nn.Module, name: str) -> None:
    sharded = [key for key, p in causal_lm.named_parameters() if p.numel() == 0 or isinstance(p, DTensor)]
    if sharded:
        raise ModelError(
            f"the weights of model {name!r} are sharded over processes ({sharded[0]!r} is not whole here), and the KL "
            "is measured within one process. Train without FSDP, tensor parallelism or DeepSpeed ZeRO-3, or run "
            "`kleash gauge` on the saved checkpoints"
        )


def _check_all_inside(model: nn.Module, causal_lm: nn.Module, name: str) -> None:
    """Refuse what trains beside the language model, such as a soft prompt: its effect would be measured as 0."""
    inside = {id(parameter) for parameter in causal_lm.parameters()}
    outside = [key for key, p in model.named_parameters() if p.requires_grad and id(p) not in inside]
    if outside:
        raise ModelError(
            f"the trainer trains {outside[0]!r}, which is no part of the language model {name!r} (a soft prompt or a "
            "further head): the KL would not see it. Use an adapter that sits in the model's layers, such as LoRA, or "
            "leave the callback out"
        )


def _check_plain_head(causal_lm: Any, name: str) -> None:
    """Refuse an adapter or a quantised weight in the output layer: the stored weight is not what makes the logits."""
    head = causal_lm.get_output_embeddings()
    if type(head) not in (nn.Linear, ModulesToSaveWrapper):
        raise ModelError(
            f"the output layer of model {name!r} is a {type(head).__module__}.{type(head).__name__}: its logits are "
            "not a plain product with its weight, which the exact KL needs. Leave the output layer out of "
            "target_modules (`all-linear` does) and out of quantisation; modules_to_save may name it"
        )
