"""An adapter as a family of models: s times what training changed, from s = 0 where it started to s = 1 where it ended.

    W_s = W_start + s (W_trained - W_start)

A fresh adapter starts at the base, W_start = W, and its `lora_B` times s is all there is to do: alpha and `lora_A` stay
as they are, so that every tool that reads the adapter gets the same model. A continued adapter (A1, B1) started at
another (A0, B0). The difference of two adapters of rank r is one of rank 2r,

    A = [A1; A0],   B = [s B1, (1 - s) B0],

under the same factor alpha / r: rank and alpha are doubled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from peft import LoraConfig
from peft.tuners.lora import Linear as PeftLoraLinear
from torch import Tensor, nn

from kleash.errors import ModelError
from kleash.models.lora import STARTING, TRAINED
from kleash.models.policy import Policy


@dataclass(frozen=True)
class _Layer:
    """One layer's `lora_B` and the two matrices it is mixed from; `started` is None for a fresh adapter."""

    weight: nn.Parameter
    trained: Float[Tensor, "out r"]
    started: Float[Tensor, "out r"] | None


class ScaledAdapter:
    """Turns the trained adapter of a policy; scale 1 is the adapter that was trained."""

    def __init__(self, policy: Policy) -> None:
        """Take hold of `policy` after its trained weights were loaded.

        Raises:
            ModelError: the policy was trained whole.
        """
        if policy.peft_model is None:
            raise ModelError(f"{policy.name} was trained whole: there is no adapter to scale")
        continued = STARTING in policy.peft_model.peft_config
        layers = [module for module in policy.causal_lm.modules() if isinstance(module, PeftLoraLinear)]
        self._layers = [_joined(layer) if continued else _fresh(layer) for layer in layers]
        if continued:
            _double(policy.peft_model.peft_config[TRAINED])

    @torch.no_grad()
    def turn(self, scale: float) -> None:
        """Make the policy that of `scale`, in the adapter's own float32."""
        for layer in self._layers:
            scaled = layer.trained * scale
            if layer.started is None:
                layer.weight.copy_(scaled)
            else:
                layer.weight.copy_(torch.cat([scaled, layer.started * (1 - scale)], dim=1))


def _fresh(layer: PeftLoraLinear) -> _Layer:
    weight = layer.lora_B[TRAINED].weight
    return _Layer(weight, weight.detach().clone(), None)


def _joined(layer: PeftLoraLinear) -> _Layer:
    """Give a layer's trained adapter the rank of both."""
    down = [layer.lora_A[name].weight.detach() for name in (TRAINED, STARTING)]
    trained, started = (layer.lora_B[name].weight.detach().clone() for name in (TRAINED, STARTING))
    layer.lora_A[TRAINED].weight = nn.Parameter(torch.cat(down))
    layer.lora_B[TRAINED].weight = nn.Parameter(torch.cat([trained, torch.zeros_like(started)], dim=1))
    return _Layer(layer.lora_B[TRAINED].weight, trained, started)


def _double(config: LoraConfig) -> None:
    """Double the rank that will be saved, and alpha so that its factor stays."""
    factor = math.sqrt(2) if config.use_rslora else 2
    config.r = 2 * config.r
    config.lora_alpha = factor * config.lora_alpha
    config.rank_pattern = {name: 2 * rank for name, rank in (config.rank_pattern or {}).items()}
    config.alpha_pattern = {name: factor * alpha for name, alpha in (config.alpha_pattern or {}).items()}
