"""The frozen model that drift is measured from: where training started, unless told otherwise.

* a fresh adapter: the same weights with the adapter off, no second copy;
* a continued adapter: a frozen copy of that adapter on the same base;
* full fine-tuning: a frozen copy of the model;
* another model by path.

A moving reference (EMA, or reset every so many steps) bounds nothing by itself: m resets at beta end where one run at
beta / m would. Its KL to the original is therefore measured as well.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kleash.models.batch import TokenBatch
from kleash.models.fingerprint import fingerprint
from kleash.models.lora import STARTING, TRAINED
from kleash.models.policy import Policy
from kleash.models.scoring import head_weight, response_hidden


class Reference(Protocol):
    """A model that scores responses and never trains."""

    @property
    def description(self) -> str:
        """Who it is, in words."""
        ...

    @property
    def extra_bytes(self) -> int:
        """Memory it takes beyond the policy's."""
        ...

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Weight of its output layer."""
        ...

    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        ...

    def model_to_sample(self) -> AbstractContextManager[Any]:
        """Within the block, the model that writes as the reference does."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of its weights."""
        ...


class AdapterReference:
    """The policy's own base with the adapter off, or with a frozen adapter on."""

    def __init__(self, policy: Policy, adapter: str | None) -> None:
        """Measure from `policy` with `adapter`, or from its bare base where that is None."""
        self._policy, self._adapter = policy, adapter

    @property
    def description(self) -> str:
        """Who it is, in words."""
        if self._adapter is None:
            return f"{self._policy.name} with the adapter off (no second copy of the weights)"
        return f"{self._policy.name} with its starting adapter, frozen"

    @property
    def extra_bytes(self) -> int:
        """A frozen adapter's size, or 0."""
        return sum(tensor.nbytes for _, tensor in self.adapter_tensors())

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """The policy's own head: adapters never touch it."""
        return self._policy.head

    @torch.no_grad()
    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        with self._policy.switched(self._adapter):
            return response_hidden(self._policy.causal_lm, batch)

    @contextlib.contextmanager
    def model_to_sample(self) -> Iterator[Any]:
        """The policy's own model, with the policy's adapter off within the block."""
        with self._policy.switched(self._adapter):
            yield self._policy.causal_lm

    def fingerprint(self) -> str:
        """SHA-256 of base and adapter."""
        return fingerprint([*self._policy.frozen(), *self.adapter_tensors()])

    def adapter_tensors(self) -> list[tuple[str, Tensor]]:
        """The frozen adapter's tensors, named as the trained ones."""
        if self._adapter is None:
            return []
        marker = f".{self._adapter}."
        return [
            (name.replace(marker, f".{TRAINED}."), tensor)
            for name, tensor in self._policy.causal_lm.named_parameters()
            if "lora_" in name and marker in name
        ]


class ModelReference:
    """A model of its own: a frozen copy, or another one by path."""

    def __init__(self, causal_lm: Any, description: str) -> None:
        """Measure from `causal_lm`, which is frozen here."""
        self.causal_lm = causal_lm.eval().requires_grad_(False)
        self._description = description

    @property
    def description(self) -> str:
        """Who it is, in words."""
        return self._description

    @property
    def extra_bytes(self) -> int:
        """Size of its weights."""
        return sum(p.nbytes for p in self.causal_lm.parameters())

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Its own head."""
        return head_weight(self.causal_lm)

    @torch.no_grad()
    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        return response_hidden(self.causal_lm, batch)

    def model_to_sample(self) -> AbstractContextManager[Any]:
        """The model itself."""
        return contextlib.nullcontext(self.causal_lm)

    def fingerprint(self) -> str:
        """SHA-256 of its weights."""
        return fingerprint(self.causal_lm.named_parameters())


class MovingReference:
    """A reference that follows the policy, with the original kept beside it."""

    def __init__(
        self,
        moving: Reference,
        tensors: Iterable[tuple[str, Tensor]],
        original: Reference,
        *,
        mix: float | None,
        reset_every: int | None,
    ) -> None:
        """Move `tensors` towards the policy's by `mix` each step, or onto them every `reset_every` steps."""
        self._moving, self._tensors = moving, dict(tensors)
        self._masters = {name: tensor.detach().float() for name, tensor in self._tensors.items()}
        self.original, self._mix, self._reset_every = original, mix, reset_every

    @property
    def description(self) -> str:
        """Who it is, in words."""
        how = (
            f"moving average, {self._mix:g} of the policy a step"
            if self._mix is not None
            else f"reset to the policy every {self._reset_every} steps"
        )
        return f"{self.original.description}; {how}"

    @property
    def extra_bytes(self) -> int:
        """Size of the moving weights with their float32 masters, and of the original's."""
        copies = [self._masters[name] for name, tensor in self._tensors.items() if tensor.dtype != torch.float32]
        return self._moving.extra_bytes + self.original.extra_bytes + sum(master.nbytes for master in copies)

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Its own head."""
        return self._moving.head

    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        return self._moving.hidden(batch)

    def model_to_sample(self) -> AbstractContextManager[Any]:
        """The reference as it is now."""
        return self._moving.model_to_sample()

    def fingerprint(self) -> str:
        """SHA-256 of the original: what a resumed run must share."""
        return self.original.fingerprint()

    @torch.no_grad()
    def follow(self, step: int, trained: Iterable[tuple[str, Tensor]]) -> None:
        """Move after the update of `step` (0-based), in float32: in bfloat16 small moves would round away."""
        if self._reset_every is not None and (step + 1) % self._reset_every:
            return
        weight = 1.0 if self._mix is None else self._mix
        for name, tensor in trained:
            self._masters[name].lerp_(tensor.float(), weight)
            self._tensors[name].copy_(self._masters[name])

    def state(self) -> dict[str, Tensor]:
        """The moving weights, to be saved with a checkpoint."""
        return {name: master.clone() for name, master in self._masters.items()}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put saved moving weights back."""
        for name, tensor in self._tensors.items():
            self._masters[name].copy_(state[name])
            tensor.copy_(state[name])


def starting_reference(policy: Policy) -> Reference:
    """The policy as it is now, frozen: call it before the first update."""
    if policy.peft_model is None:
        return ModelReference(copy.deepcopy(policy.causal_lm), f"a frozen copy of {policy.name}")
    continued = STARTING in policy.peft_model.peft_config
    return AdapterReference(policy, STARTING if continued else None)


def moving_reference(
    policy: Policy, original: Reference, *, mix: float | None, reset_every: int | None
) -> MovingReference:
    """A reference that starts at the policy and follows it."""
    if policy.peft_model is None:
        moving = ModelReference(copy.deepcopy(policy.causal_lm), "moving")
        return MovingReference(moving, moving.causal_lm.named_parameters(), original, mix=mix, reset_every=reset_every)
    name = "moving"
    policy.peft_model.add_adapter(name, copy.deepcopy(policy.peft_model.peft_config[TRAINED]))
    policy.peft_model.set_adapter(TRAINED)
    adapter = AdapterReference(policy, name)
    tensors: list[tuple[str, nn.Parameter | Tensor]] = list(adapter.adapter_tensors())
    trained = dict(policy.trained())
    with torch.no_grad():
        for key, tensor in tensors:
            tensor.requires_grad_(False).copy_(trained[key])
    return MovingReference(adapter, tensors, original, mix=mix, reset_every=reset_every)
