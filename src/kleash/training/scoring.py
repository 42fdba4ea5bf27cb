"""Groups of an experience as batches, and what policy and reference say of them, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from kleash.errors import RunStopped
from kleash.kl.exact import LinearKL, linear_kl
from kleash.models.batch import TokenBatch, collate
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.training.experience import Experience


@dataclass(frozen=True)
class TokenRecord:
    """Numbers of every response token of an experience, in order, float64 `[N]` each, nats."""

    policy_logprobs: NDArray[np.float64]
    reference_logprobs: NDArray[np.float64]
    reverse_kl: NDArray[np.float64]
    forward_kl: NDArray[np.float64]
    entropy: NDArray[np.float64]


def batch_of(experience: Experience, groups: Sequence[int], policy: Policy) -> TokenBatch:
    """The sequences of some groups, in the order of `groups`."""
    size = experience.group_size
    prompts = [experience.prompts[g].token_ids for g in groups for _ in range(size)]
    responses = [experience.completions[g * size + i].token_ids for g in groups for i in range(size)]
    return collate(prompts, responses, pad=policy.tokenizer.pad_id, device=policy.device)


def micro_batches(experience: Experience, groups: Sequence[int], per_batch: int) -> list[list[int]]:
    """Cut groups into micro-batches of like length; groups stay whole, for their baselines."""
    size = experience.group_size

    def longest(g: int) -> int:
        responses = experience.completions[g * size : (g + 1) * size]
        return len(experience.prompts[g].token_ids) + max(len(c.token_ids) for c in responses)

    order = sorted(groups, key=longest)
    return [order[i : i + per_batch] for i in range(0, len(order), per_batch)]


def tokens_of(experience: Experience, group: int) -> int:
    """Response tokens of a group."""
    size = experience.group_size
    return sum(len(c.token_ids) for c in experience.completions[group * size : (group + 1) * size])


def reference_states(
    experience: Experience, batches: Sequence[Sequence[int]], policy: Policy, reference: Reference
) -> dict[int, Float[Tensor, "n H"]]:
    """The reference's hidden states of each group: small, so that no pass is made twice."""
    states: dict[int, Tensor] = {}
    for groups in batches:
        hidden = reference.hidden(batch_of(experience, groups, policy))
        states |= zip(groups, torch.split(hidden, [tokens_of(experience, g) for g in groups]), strict=True)
    return states


@torch.no_grad()
def measure(
    experience: Experience,
    policy: Policy,
    reference: Reference,
    *,
    temperature: float,
    per_batch: int,
    step: int,
    states: dict[int, Tensor] | None = None,
) -> TokenRecord:
    """Score an experience without training on it; `step` is for the error message.

    `states` are the reference's hidden states of each group, where they are known already.

    Raises:
        RunStopped: a number is not finite.
    """
    batches = micro_batches(experience, range(len(experience.prompts)), per_batch)
    if states is None:
        states = reference_states(experience, batches, policy, reference)
    parts: dict[int, Tensor] = {}
    for groups in batches:
        batch = batch_of(experience, groups, policy)
        hidden = torch.cat([states[g] for g in groups])
        measured = linear_kl(
            policy.hidden(batch), policy.head, hidden, reference.head, batch.targets, temperature=temperature
        )
        parts |= split_by_group(experience, groups, measured)
    return to_record(experience, parts, step)


def split_by_group(experience: Experience, groups: Sequence[int], measured: LinearKL) -> dict[int, Tensor]:
    """The five numbers `[5, n]` of each group."""
    stacked = torch.stack([field.detach() for field in measured])
    sizes = [tokens_of(experience, g) for g in groups]
    return dict(zip(groups, torch.split(stacked, sizes, dim=1), strict=True))


def to_record(experience: Experience, parts: dict[int, Tensor], step: int) -> TokenRecord:
    """Put the groups back in the order of the experience, on the host."""
    stacked = torch.cat([parts[g] for g in range(len(experience.prompts))], dim=1)
    values = stacked.cpu().double().numpy()
    record = TokenRecord(*values)
    check_finite(experience, record, step)
    return record


def check_parts(experience: Experience, parts: dict[int, Tensor], step: int) -> None:
    """`check_finite` for some groups of an experience, as one later update measures them.

    Raises:
        RunStopped: names the step, the sequence and the token.
    """
    whole = {g: parts.get(g) for g in range(len(experience.prompts))}
    filled = {
        g: torch.zeros(len(TokenRecord.__dataclass_fields__), tokens_of(experience, g)) if part is None else part.cpu()
        for g, part in whole.items()
    }
    to_record(experience, filled, step)


def check_finite(experience: Experience, record: TokenRecord, step: int) -> None:
    """Stop at the first number that is no number.

    Raises:
        RunStopped: names the step, the sequence, the token and the value.
    """
    for name in ("policy_logprobs", "reference_logprobs", "reverse_kl", "forward_kl", "entropy"):
        bad = np.flatnonzero(~np.isfinite(getattr(record, name)))
        if len(bad):
            ends = np.cumsum(experience.lengths)
            sequence = int(np.searchsorted(ends, bad[0], side="right"))
            token = int(bad[0] - (ends[sequence - 1] if sequence else 0))
            raise RunStopped(
                f"step {step}: {name} is {getattr(record, name)[bad[0]]} at sequence {sequence}, token {token} "
                f"(id {experience.completions[sequence].token_ids[token]}), and {len(bad)} values in all are not "
                "finite. The weights are left as they were before this update; lower the learning rate, or resume "
                "from an earlier checkpoint"
            )
