"""The model being trained: its weights, its tokenizer, and the copy it is sampled from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from peft import PeftModel
from torch import Tensor, nn

from kleash.models.batch import TokenBatch
from kleash.models.folding import FoldedCopy
from kleash.models.lora import TRAINED
from kleash.models.scoring import head_weight, response_hidden
from kleash.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Policy:
    """`causal_lm` with an adapter in it (`peft_model`), or trained whole (`peft_model` is None).

    Trained weights are float32. With an adapter the rest is frozen in the compute dtype; without one the float32
    weights are masters that `kleash.training.optimizer` copies into the model after each update.
    """

    name: str
    causal_lm: Any
    peft_model: PeftModel | None
    tokenizer: Tokenizer
    sampling: FoldedCopy | None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.causal_lm.parameters()).device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype."""
        return self.head.dtype

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Weight of the output layer."""
        return head_weight(self.causal_lm)

    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens. Gradient: to the trained weights."""
        return response_hidden(self.causal_lm, batch)

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """The weights that training changes, by name."""
        return [(name, p) for name, p in self.causal_lm.named_parameters() if p.requires_grad]

    def frozen(self) -> list[tuple[str, nn.Parameter]]:
        """The base weights under an adapter, by name; never written."""
        return [(name, p) for name, p in self.causal_lm.named_parameters() if "lora_" not in name]

    def model_to_sample(self) -> Any:
        """The model that the sampler runs, up to date with the trained weights."""
        if self.sampling is None:
            return self.causal_lm
        self.sampling.fold()
        return self.sampling.model

    @contextlib.contextmanager
    def switched(self, adapter: str | None) -> Iterator[None]:
        """Within the block, run with another adapter, or with none."""
        assert self.peft_model is not None, "a policy without an adapter has nothing to switch"
        if adapter is None:
            with self.peft_model.disable_adapter():
                yield
            return
        tuner = self.peft_model.base_model
        tuner.set_adapter(adapter, inference_mode=True)
        try:
            yield
        finally:
            tuner.set_adapter(TRAINED)
