"""The updates of one step: forward, penalty, backward, optimiser, over minibatches of micro-batches.

The first update on fresh samples is on-policy: its own forward pass gives the behavior's log-probabilities, and the KL
of the step. With several updates, or a critic, a scoring pass before them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from accelerate import Accelerator
from torch import Tensor

from kleash.kl.exact import LinearKL, linear_kl
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.ops.masks import to_rows
from kleash.ops.policy_losses import PolicyLoss
from kleash.training.experience import Experience
from kleash.training.objective import Objective, Rows
from kleash.training.optimizer import Optimizer
from kleash.training.plan import Plan
from kleash.training.pretraining import Mix
from kleash.training.scoring import (
    TokenRecord,
    batch_of,
    check_parts,
    measure,
    micro_batches,
    reference_states,
    split_by_group,
    to_record,
    tokens_of,
)


@dataclass
class Totals:
    """Sums over a step's updates, as tensors: nothing waits for the device until they are read."""

    policy_loss: Tensor
    kl_loss: Tensor
    clipped: Tensor
    ratios: Tensor
    largest_ratio: Tensor
    truncated: Tensor
    tokens: Tensor
    grad_norm: Tensor
    pretraining_loss: Tensor

    @classmethod
    def zero(cls, device: torch.device) -> Totals:
        """Nothing yet."""
        return cls(*(torch.zeros((), device=device) for _ in fields(cls)))

    def over(self, accelerator: Accelerator) -> Totals:
        """Sums over all processes, and the largest ratio of any; the gradient's norm is that of all already."""
        if accelerator.num_processes == 1:
            return self
        each = accelerator.gather(torch.stack([getattr(self, field.name) for field in fields(self)])[None])
        total = Totals(*each.sum(dim=0))
        largest = [field.name for field in fields(self)].index("largest_ratio")
        return replace(total, largest_ratio=each[:, largest].max(), grad_norm=self.grad_norm)

    def add(
        self,
        policy: PolicyLoss,
        penalty: Tensor,
        truncated: Tensor,
        rows: Rows,
        policy_scale: float,
        penalty_scale: float,
    ) -> None:
        """Count one micro-batch; the scales divide sums of sequences."""
        tokens = rows.response_mask.sum()
        self.policy_loss += policy.values.detach().sum() * policy_scale
        self.kl_loss += penalty.detach().sum() * penalty_scale
        self.clipped += policy.clipped.sum()
        self.ratios += policy.clipped.numel() if policy.clipped.dim() == 1 else tokens
        self.largest_ratio = torch.maximum(self.largest_ratio, policy.ratio.max())
        self.truncated += truncated
        self.tokens += tokens


@dataclass(frozen=True)
class Scored:
    """What is known of the samples before the first update, by group.

    `states` are the reference's hidden states. `record` and `behavior`, the log-probabilities of the policy that
    sampled, are measured where the first update's own pass does not give them in time.
    """

    states: dict[int, Tensor]
    record: TokenRecord | None
    behavior: dict[int, Tensor]


@dataclass(frozen=True)
class Updated:
    """What came of a step's updates; `record` is of the policy that sampled."""

    record: TokenRecord
    totals: Totals
    num_updates: int


class Updater:
    """Applies one objective to one policy. `midway` is True from a step's first update until the step is recorded."""

    def __init__(
        self,
        policy: Policy,
        reference: Reference,
        objective: Objective,
        optimizer: Optimizer,
        accelerator: Accelerator,
        plan: Plan,
        mix: Mix | None = None,
    ) -> None:
        """Hold what stays the same from step to step; `mix` is text to learn beside the reward."""
        self._policy, self._reference, self._objective = policy, reference, objective
        self._optimizer, self._accelerator, self.plan, self._mix = optimizer, accelerator, plan, mix
        self.midway = False

    def score(self, experience: Experience, step: int) -> Scored:
        """Read the samples with the reference and, if the objective or a second update asks for it, the policy.

        Raises:
            RunStopped: a measured number is not finite.
        """
        batches = micro_batches(experience, range(len(experience.prompts)), self.plan.groups_per_batch)
        states = reference_states(experience, batches, self._policy, self._reference)
        if self.plan.single and not self._objective.needs_record:
            return Scored(states, None, {})
        record = measure(
            experience,
            self._policy,
            self._reference,
            temperature=self.plan.temperature,
            per_batch=self.plan.groups_per_batch,
            step=step,
            states=states,
        )
        flat = torch.tensor(record.policy_logprobs, device=self._policy.device, dtype=torch.float32)
        sizes = [tokens_of(experience, g) for g in range(len(experience.prompts))]
        return Scored(states, record, dict(enumerate(torch.split(flat, sizes))))

    def __call__(
        self, experience: Experience, scored: Scored, advantages: Tensor, *, beta: float, step: int
    ) -> Updated:
        """Train on the scored ones of B sequences with `advantages` [B] or [B, T] at a price of drift `beta`.

        Raises:
            RunStopped: a measured number is not finite; the update that it belongs to is not made.
        """
        record = scored.record
        totals = Totals.zero(self._policy.device)
        minibatches = self.plan.minibatches(len(experience.prompts), step)
        for update, minibatch in enumerate(minibatches):
            parts = self._accumulate(experience, minibatch, advantages, scored, beta, totals)
            if self._mix is not None:
                totals.pretraining_loss += self._mix.backward(self._policy, step * len(minibatches) + update)
            if record is None:
                record = to_record(experience, parts, step)
            else:
                check_parts(experience, parts, step)
            totals.grad_norm += self._optimizer.step(step)
            self.midway = True
        assert record is not None
        return Updated(record, totals.over(self._accelerator), len(minibatches))

    def _accumulate(
        self,
        experience: Experience,
        groups: Sequence[int],
        advantages: Tensor,
        scored: Scored,
        beta: float,
        totals: Totals,
    ) -> dict[int, Tensor]:
        """Gradients of one update; returns what was measured of each group."""
        size, objective = experience.group_size, self._objective
        tokens = sum(tokens_of(experience, g) for g in groups)
        mean_length = self._sum(tokens) / self._sum(len(groups) * size)
        is_scored = torch.tensor(experience.rewards.scored, device=advantages.device)
        scored_here, counted_here = self._counts(experience, groups, advantages, is_scored)
        sequences, counted = max(1.0, self._sum(scored_here)), max(1.0, self._sum(counted_here))
        charged = beta > 0 and not objective.charged_in_reward
        self._optimizer.zero()
        parts: dict[int, Tensor] = {}
        for chosen in micro_batches(experience, groups, self.plan.groups_per_batch):
            measured, rows = self.forward(experience, chosen, scored.states, scored.behavior)
            parts |= split_by_group(experience, chosen, measured)
            index = torch.tensor([g * size + i for g in chosen for i in range(size)], device=advantages.device)
            policy = objective.policy_loss(rows, advantages[index], mean_length)
            penalty = beta * objective.penalty(rows) if charged else torch.zeros_like(policy.values)
            penalty = torch.where(is_scored[index], penalty, 0.0)
            loss = policy.values.sum() / counted + penalty.sum() / sequences
            loss.backward()  # type: ignore[no-untyped-call]
            totals.add(policy, penalty, objective.truncated(rows), rows, 1 / counted, 1 / sequences)
        return parts

    def _counts(
        self, experience: Experience, groups: Sequence[int], advantages: Tensor, is_scored: Tensor
    ) -> tuple[float, float]:
        """Sequences of some groups that are scored, and those that the policy loss counts."""
        per_sequence = advantages if advantages.dim() == 1 else advantages[:, 0]
        counted = self._objective.counted(per_sequence, is_scored)
        chosen = list(groups)
        by_group = [flags.view(-1, experience.group_size)[chosen].sum() for flags in (is_scored, counted)]
        return float(by_group[0]), float(by_group[1])

    def forward(
        self,
        experience: Experience,
        groups: Sequence[int],
        states: dict[int, Tensor],
        behavior: dict[int, Tensor],
    ) -> tuple[LinearKL, Rows]:
        """Policy against reference on some groups, flat and in rows."""
        batch = batch_of(experience, groups, self._policy)
        measured = linear_kl(
            self._policy.hidden(batch),
            self._policy.head,
            torch.cat([states[g] for g in groups]),
            self._reference.head,
            batch.targets,
            temperature=self.plan.temperature,
        )
        in_rows = LinearKL(*(to_rows(field, batch.response_mask) for field in measured))
        if behavior:
            drawn = to_rows(torch.cat([behavior[g] for g in groups]), batch.response_mask)
        else:
            drawn = in_rows.policy_logprobs.detach()
        return measured, Rows(in_rows, drawn, batch.response_mask)

    def _sum(self, value: float) -> float:
        """Sum over processes."""
        if self._accelerator.num_processes == 1:
            return value
        total = torch.tensor(float(value), device=self._policy.device)
        return float(self._accelerator.reduce(total, reduction="sum"))
