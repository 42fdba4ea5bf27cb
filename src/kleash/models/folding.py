"""A separate copy of the weights to sample from, with the adapter added in.

The base is never written: merging an adapter into it and taking it out again in bfloat16 would move the reference.
The copy shares every tensor that has no adapter (embeddings, norms), and is folded anew after each update. Folding
rounds base + adapter to the compute dtype once, so that sampler and scorer differ by rounding: preflight and every
step measure it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft.tuners.lora import Linear as PeftLoraLinear
from torch import nn

from kleash.models.lora import TRAINED, FusedLoraLinear


def share(causal_lm: nn.Module) -> nn.Module:
    """A second module tree over the same parameters. Call it before an adapter is attached."""
    shared: dict[int, Any] = {id(parameter): parameter for parameter in causal_lm.parameters()}
    return copy.deepcopy(causal_lm, shared).eval()


class FoldedCopy:
    """`model` is what the sampler runs; `fold` brings it up to date with the trained adapter, if there is one."""

    def __init__(self, model: nn.Module, adapted: nn.Module) -> None:
        """Give every adapted layer of `model` (made by `share`) a weight of its own.

        Args:
            model: the second module tree.
            adapted: the causal language model that the adapter was attached to.
        """
        self.model = model
        self._pairs: list[tuple[PeftLoraLinear, Any]] = []
        for name, layer in adapted.named_modules():
            if isinstance(layer, PeftLoraLinear):
                twin = model.get_submodule(name)
                twin.weight = nn.Parameter(layer.base_layer.weight.detach().clone(), requires_grad=False)
                self._pairs.append((layer, twin))

    @property
    def extra_bytes(self) -> int:
        """Memory that the copy takes beyond what it shares."""
        return sum(twin.weight.nbytes for _, twin in self._pairs)

    @torch.no_grad()
    def fold(self) -> None:
        """Weight = base + scale B A, rounded once to the compute dtype."""
        for layer, twin in self._pairs:
            base = layer.base_layer.weight
            if not isinstance(layer, FusedLoraLinear):  # GPT-2's transposed layers
                torch.add(base, layer.get_delta_weight(TRAINED).to(base.dtype), out=twin.weight.data)
                continue
            down = layer.lora_A[TRAINED].weight.to(base.dtype)
            up = (layer.lora_B[TRAINED].weight * layer.scaling[TRAINED]).to(base.dtype)
            torch.addmm(base, up, down, out=twin.weight.data)
