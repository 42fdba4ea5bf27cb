"""What a run optimises, put together from its settings: advantages, policy loss and KL penalty.

Both terms are sums over sequences of per-sequence values, to be divided by the number of sequences of the whole
update, so that micro-batches and processes never change the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from kleash.algorithms import grpo, rloo
from kleash.config.schema import Grpo, Kl, Rloo
from kleash.kl import estimators, penalty
from kleash.kl.exact import LinearKL
from kleash.ops.policy_losses import PolicyLoss


@dataclass(frozen=True)
class Rows:
    """What was measured of a batch, `[B, T]` each, 0 outside `response_mask`."""

    measured: LinearKL
    behavior_logprobs: Float[Tensor, "B T"]
    response_mask: Bool[Tensor, "B T"]


@dataclass(frozen=True)
class Objective:
    """The functions of one algorithm with its settings bound.

    `advantages(rewards [P, G], scored [P, G]) -> [P, G]`;
    `policy_loss(rows, advantages [B], mean_length) -> PolicyLoss with values [B]`, mean_length that of the update;
    `penalty(rows) -> [B]`, nats per sequence; `truncated(rows) -> count` of cut importance weights.
    """

    num_generations: int
    kl: Kl
    advantages: Callable[[Tensor, Tensor], Tensor]
    policy_loss: Callable[[Rows, Tensor, float], PolicyLoss]
    penalty: Callable[[Rows], Tensor]
    truncated: Callable[[Rows], Tensor]


def make_objective(settings: Rloo | Grpo) -> Objective:
    """Bind the functions that the `algorithm` table names."""
    group = settings.num_generations

    def charge(rows: Rows) -> Tensor:
        return charge_for_drift(settings.kl, rows, group)

    def truncated(rows: Rows) -> Tensor:
        return count_truncated(settings.kl, rows)

    if isinstance(settings, Rloo):
        return Objective(group, settings.kl, rloo.advantages, _rloo_loss(settings), charge, truncated)
    scale = grpo.scaled_advantages if settings.scale_rewards == "group" else grpo.advantages
    return Objective(group, settings.kl, scale, _grpo_loss(settings), charge, truncated)


def charge_for_drift(kl: Kl, rows: Rows, group_size: int) -> Float[Tensor, " B"]:
    """The penalty that the `algorithm.kl` table names; which are allowed: `kleash.choices`."""
    measured, mask = rows.measured, rows.response_mask
    if kl.scope == "token":
        if kl.estimator == "exact":
            return penalty.exact_token(measured.reverse_kl, mask)
        estimate = {"k2": estimators.k2, "k3": estimators.k3}[kl.estimator]
        return penalty.estimator_token(estimate(measured.policy_logprobs, measured.reference_logprobs), mask)
    weights, bound = _weights(kl, rows), kl.max_weight or math.inf
    policy, reference = measured.policy_logprobs, measured.reference_logprobs
    if kl.estimator == "exact":
        return penalty.exact_sequence(measured.reverse_kl, policy, weights, mask, group_size, bound)
    if kl.credit == "sequence":
        return penalty.k1_sequence(policy, reference, weights, mask, group_size)
    return penalty.k1_reward_to_go(policy, reference, weights, mask, group_size, bound)


def count_truncated(kl: Kl, rows: Rows) -> Tensor:
    """How many prefixes had their importance weight cut at `max_weight`."""
    if kl.max_weight is None:
        return rows.response_mask.new_zeros((), dtype=rows.measured.entropy.dtype)
    return ((_weights(kl, rows) >= kl.max_weight) & rows.response_mask).sum()


def _weights(kl: Kl, rows: Rows) -> Float[Tensor, "B T"]:
    policy, behavior, mask = rows.measured.policy_logprobs, rows.behavior_logprobs, rows.response_mask
    if kl.max_weight is None:
        return penalty.cumulative_weights(policy, behavior, mask)
    return penalty.truncated_weights(policy, behavior, mask, kl.max_weight)


def _rloo_loss(settings: Rloo) -> Callable[[Rows, Tensor, float], PolicyLoss]:
    def policy_loss(rows: Rows, advantages: Tensor, mean_length: float) -> PolicyLoss:
        return rloo.loss(
            rows.measured.policy_logprobs,
            rows.behavior_logprobs,
            advantages,
            rows.response_mask,
            epsilon=settings.epsilon,
        )

    return policy_loss


def _grpo_loss(settings: Grpo) -> Callable[[Rows, Tensor, float], PolicyLoss]:
    def policy_loss(rows: Rows, advantages: Tensor, mean_length: float) -> PolicyLoss:
        loss = grpo.loss(
            rows.measured.policy_logprobs,
            rows.behavior_logprobs,
            advantages,
            rows.response_mask,
            epsilon_low=settings.epsilon,
            epsilon_high=settings.epsilon_high or settings.epsilon,
        )
        lengths = rows.response_mask.sum(dim=1)
        weights = grpo.token_weights(lengths, mean_length, settings.loss_normalization)
        return PolicyLoss((loss.values * weights[:, None]).sum(dim=1), loss.clipped, loss.ratio)

    return policy_loss
