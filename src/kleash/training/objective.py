"""What a run optimises, put together from its settings: advantages, policy loss and KL penalty.

Both terms are sums over sequences of per-sequence values, to be divided by the number of sequences of the whole
update, so that micro-batches and processes never change the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.algorithms import dpo, grpo, ppo, rloo
from kleash.config.algorithms import Dpo, Grpo, Kl, OnlineDpo, OnPolicy, Ppo, Rloo
from kleash.kl import estimators, penalty
from kleash.kl.exact import LinearKL
from kleash.ops.advantages import centered
from kleash.ops.policy_losses import PolicyLoss

PAIR = 2
"""Samples of a prompt that online DPO compares."""


@dataclass(frozen=True)
class Rows:
    """What was measured of a batch, `[B, T]` each, 0 outside `response_mask`."""

    measured: LinearKL
    behavior_logprobs: Float[Tensor, "B T"]
    response_mask: Bool[Tensor, "B T"]


@dataclass(frozen=True)
class Objective:
    """The functions of one algorithm with its settings bound.

    `advantages(rewards [P, G], scored [P, G]) -> [P, G]`; PPO has them from its critic instead;
    `policy_loss(rows, advantages, mean_length) -> PolicyLoss with values [B]`, mean_length that of the update;
    `penalty(rows) -> [B]`, nats per sequence; `truncated(rows) -> count` of cut importance weights.
    """

    num_generations: int
    kl: Kl
    advantages: Callable[[Tensor, Tensor], Tensor]
    policy_loss: Callable[[Rows, Tensor, float], PolicyLoss]
    penalty: Callable[[Rows], Tensor]
    truncated: Callable[[Rows], Tensor]
    needs_record: bool = False
    """Whether advantages are made from log-probabilities that must be known before the first update."""
    counted: Callable[[Tensor, Tensor], Tensor] = lambda advantages, scored: scored
    """`counted(advantages [B], scored [B]) -> [B]`: the sequences that the sum of the policy loss is divided by."""
    charged_in_reward: bool = False
    """Whether the penalty is part of the tokens' rewards already, so that the loss must leave it out."""


def make_objective(settings: OnPolicy) -> Objective:
    """Bind the functions that the `algorithm` table names."""
    group = PAIR if isinstance(settings, OnlineDpo) else settings.num_generations

    def charge(rows: Rows) -> Tensor:
        return charge_for_drift(settings.kl, rows, group)

    def truncated(rows: Rows) -> Tensor:
        return count_truncated(settings.kl, rows)

    if isinstance(settings, Rloo):
        return Objective(group, settings.kl, rloo.advantages, _rloo_loss(settings), charge, truncated)
    if isinstance(settings, OnlineDpo):
        return Objective(
            group, settings.kl, centered, _online_dpo_loss(settings), charge, truncated, counted=_one_above_the_other
        )
    if isinstance(settings, Ppo):
        in_reward = settings.kl.placement == "reward"
        return Objective(
            group,
            settings.kl,
            _no_group_advantages,
            _ppo_loss(settings),
            charge,
            truncated,
            needs_record=True,
            charged_in_reward=in_reward,
        )
    scale = grpo.scaled_advantages if settings.scale_rewards == "group" else grpo.advantages
    return Objective(group, settings.kl, scale, _grpo_loss(settings), charge, truncated)


def charge_for_drift(kl: Kl, rows: Rows, group_size: int) -> Float[Tensor, " B"]:
    """The penalty that the `algorithm.kl` table names; which are allowed: `kleash.choices`."""
    measured, mask = rows.measured, rows.response_mask
    if kl.scope == "token":
        if kl.estimator == "exact":
            return penalty.exact_token(measured.reverse_kl, mask)
        estimate = {"k1": estimators.k1, "k2": estimators.k2, "k3": estimators.k3}[kl.estimator]
        return penalty.estimator_token(estimate(measured.policy_logprobs, measured.reference_logprobs), mask)
    weights, bound = _weights(kl, rows), kl.max_weight or math.inf
    policy, reference = measured.policy_logprobs, measured.reference_logprobs
    if kl.estimator == "exact":
        return penalty.exact_sequence(measured.reverse_kl, policy, weights, mask, group_size, bound)
    if kl.estimator == "k3":
        return penalty.k3_reward_to_go(policy, reference, weights, mask, group_size, bound)
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


def _ppo_loss(settings: Ppo) -> Callable[[Rows, Tensor, float], PolicyLoss]:
    def policy_loss(rows: Rows, advantages: Tensor, mean_length: float) -> PolicyLoss:
        loss = ppo.loss(
            rows.measured.policy_logprobs,
            rows.behavior_logprobs,
            advantages[:, : rows.response_mask.shape[1]],
            rows.response_mask,
            epsilon=settings.epsilon,
        )
        return PolicyLoss(loss.values.sum(dim=1), loss.clipped, loss.ratio)

    return policy_loss


def _no_group_advantages(rewards: Tensor, scored: Tensor) -> Tensor:
    raise AssertionError("PPO has its advantages from the critic")


def _online_dpo_loss(settings: OnlineDpo) -> Callable[[Rows, Tensor, float], PolicyLoss]:
    compare = preference_loss(settings)

    def policy_loss(rows: Rows, advantages: Tensor, mean_length: float) -> PolicyLoss:
        drift = rows.measured.policy_logprobs - rows.measured.reference_logprobs
        log_ratios = torch.where(rows.response_mask, drift, 0.0).sum(dim=1).view(-1, PAIR)
        order = advantages.view(-1, PAIR)  # equal where tied or unscored
        found = dpo.online_loss(order, torch.ones_like(order, dtype=torch.bool), log_ratios, compare)
        values = found.values.repeat_interleave(PAIR)
        return PolicyLoss(values, torch.zeros_like(values, dtype=torch.bool), torch.ones_like(values))

    return policy_loss


def _one_above_the_other(advantages: Tensor, scored: Tensor) -> Tensor:
    """Pairs that are tied, or not both scored, have equal advantages of 0: they compare nothing."""
    return scored & (advantages != 0)


def preference_loss(settings: Dpo | OnlineDpo) -> Callable[[Tensor], Tensor]:
    """The loss of margins [B] that an `algorithm` table of DPO names, with its settings bound."""
    beta, wrong = settings.beta, settings.label_smoothing
    if settings.loss in dpo.SMOOTHED_LOSSES:
        smoothed = dpo.SMOOTHED_LOSSES[settings.loss]
        return lambda margins: smoothed(margins, beta, wrong)
    plain = dpo.LOSSES[settings.loss]
    return lambda margins: plain(margins, beta)


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
