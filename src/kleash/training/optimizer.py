"""AdamW over float32 weights, a learning-rate schedule, and gradients summed over processes.

Adapters are float32 already. A model trained whole in bfloat16 gets float32 masters: gradients are added up in float32
and each update is copied back, so that small steps are not lost to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from kleash.config.schema import Training
from kleash.errors import RunStopped


def lr_factor(settings: Training, step: int) -> float:
    """Share of the peak learning rate at a step (0-based): warm-up from 0, then the schedule down to 0 at the end."""
    if step < settings.warmup_steps:
        return (step + 1) / (settings.warmup_steps + 1)
    if settings.lr_schedule == "constant":
        return 1.0
    done = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    return 1.0 - done if settings.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


class Optimizer:
    """One update at a time: `zero`, backward passes, `step`."""

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], settings: Training, accelerator: Accelerator) -> None:
        """Train `named`, which are on the device already."""
        self._settings, self._accelerator = settings, accelerator
        self._named = list(named)
        self._masters = [self._master(parameter) for _, parameter in named]
        self._adamw = torch.optim.AdamW(
            self._masters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=self._masters[0].device.type in ("cpu", "cuda"),
        )

    def zero(self) -> None:
        """Forget gradients."""
        for master, (_, parameter) in zip(self._masters, self._named, strict=True):
            master.grad = None
            parameter.grad = None

    def step(self, step: int) -> Tensor:
        """Update the weights with the rate of this step; returns the gradient's norm before clipping.

        Raises:
            RunStopped: the gradient is not finite; the weights are untouched.
        """
        for group in self._adamw.param_groups:
            group["lr"] = self.learning_rate(step)
        if self._accelerator.num_processes > 1:
            for master in self._masters:
                if master.grad is None:
                    master.grad = torch.zeros_like(master)
                master.grad = self._accelerator.reduce(master.grad, reduction="sum")
        norm = torch.nn.utils.clip_grad_norm_(self._masters, self._settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise RunStopped(
                f"step {step}: the gradient's norm is {float(norm)}, though the KL is finite. The weights "
                "are left as they were before this update; lower the learning rate, or set algorithm.kl.max_weight"
            )
        self._adamw.step()
        self._publish()
        return norm

    def gradients(self) -> list[Tensor]:
        """What backward passes have added up since `zero`, float32, of the weights that were reached."""
        return [master.grad for master in self._masters if master.grad is not None]

    def learning_rate(self, step: int) -> float:
        """The rate of a step."""
        return self._settings.learning_rate * lr_factor(self._settings, step)

    def state_dict(self) -> dict[str, Any]:
        """Moments, and the float32 masters by name."""
        masters = {name: m.detach() for (name, _), m in zip(self._named, self._masters, strict=True)}
        return {"adamw": self._adamw.state_dict(), "masters": masters}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put saved moments and weights back."""
        for (name, _), master in zip(self._named, self._masters, strict=True):
            master.copy_(state["masters"][name])
        self._adamw.load_state_dict(state["adamw"])
        self._publish()

    def _master(self, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.dtype == torch.float32:
            return parameter
        master = nn.Parameter(parameter.detach().float())

        def collect(narrow: Tensor) -> None:
            assert narrow.grad is not None
            wide = narrow.grad.float()
            master.grad = wide if master.grad is None else master.grad.add_(wide)
            narrow.grad = None

        parameter.register_post_accumulate_grad_hook(collect)  # type: ignore[no-untyped-call]
        return master

    @torch.no_grad()
    def _publish(self) -> None:
        """Copy masters into a model of a narrower dtype."""
        for master, (_, parameter) in zip(self._masters, self._named, strict=True):
            if master is not parameter:
                parameter.copy_(master)
