"""How drift is charged: one surrogate a sequence whose gradient is the one that its name says.

Each function returns `[B]` values in nats per sequence, to be added to a loss as `beta * values.mean()`. Rows come
in groups of `group_size` consecutive samples of one prompt. `weights` are the importance weights of
`cumulative_weights`, differentiable: pass the log-probabilities of the distribution that sampled the tokens as
behavior, and detached policy log-probabilities on-policy.

`response_mask` is True where a token belongs to the response, EOS included. None of the terms is ever clipped,
divided by a length or by the group's standard deviation: that switches the leash off where it is needed.

What is not here: which combinations are allowed (`kleash.choices`) and the KL itself (`kleash.kl.exact`).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.kl import estimators


def cumulative_weights(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Importance weight of each prefix including its own token, w_t = prod_{u<=t} policy(y_u) / behavior(y_u).

    Unit: none. Sign: > 0; all ones on-policy, and still differentiable there.
    Gradient: to policy_logprobs, through every factor.
    """
    log_ratio = torch.where(response_mask, policy_logprobs - behavior_logprobs.detach(), 0.0)
    return log_ratio.cumsum(dim=1).exp()


def truncated_weights(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    max_weight: float,
) -> Float[Tensor, "B T"]:
    """`cumulative_weights` cut at `max_weight`, which is at least 1. Biased: a cut prefix is charged too little.

    Gradient: a cut weight is a constant; it neither charges the tokens before it nor is given a baseline.
    """
    return cumulative_weights(policy_logprobs, behavior_logprobs, response_mask).clamp(max=max_weight)


def exact_sequence(
    kl: Float[Tensor, "B T"],
    policy_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
    max_weight: float = math.inf,
) -> Float[Tensor, " B"]:
    """Exact KL at each position, weighted by the earlier tokens: the true gradient of the sequence KL.

    S_b = sum_s w_{<s} KL_s, with w_{<s} the weight of the tokens before s, differentiated through. On-policy that is
    the pathwise gradient of each KL_s plus, for each token, its score times the KL that follows it; in later epochs
    it stays the gradient of the sequence KL. The score of a token is multiplied by future KL minus the mean
    future KL at that position of the other samples of the prompt that are still going (leave-one-out).

    Unit: nats per sequence; the value is unbiased for KL(policy ‖ reference) over behavior samples. Sign: >= 0.
    Gradient: to kl, policy_logprobs and weights. The baseline is a constant, and zero where no other sample of the
        group reaches that position.
    Empty mask: that row is 0.

    Args:
        kl: reverse KL over the vocabulary at each position, differentiable (`kleash.kl.exact`).
        policy_logprobs: log-probability of each sampled token under the policy, differentiable.
        weights: `cumulative_weights` of the same tokens.
        response_mask: True where a token belongs to the response.
        group_size: consecutive rows that share a prompt.
        max_weight: where `truncated_weights` cut, if they did.

    Source: Amini et al., arXiv 2504.10637, for the value; the gradient with its future term is derived and
        tested by enumeration here.
    """
    earlier = torch.cat([torch.ones_like(weights[:, :1]), weights[:, :-1]], dim=1)
    paid = torch.where(response_mask, earlier * kl, 0.0)
    future = _sum_from(paid.detach()) - paid.detach()
    return paid.sum(dim=1) - _baseline(future, policy_logprobs, weights, response_mask, group_size, max_weight)


def exact_token(kl: Float[Tensor, "B T"], response_mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Sum of the exact KL at each position, prefixes held fixed: a partial gradient.

    Unit: nats per sequence. Sign: >= 0. Empty mask: that row is 0.
    Gradient: to kl only. It leaves out that a token moves the prefixes that come after it.
    """
    return torch.where(response_mask, kl, 0.0).sum(dim=1)


def estimator_token(values: Float[Tensor, "B T"], response_mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Sum of k1, k2 or k3 of the sampled tokens as a loss, prefixes held fixed: a partial gradient, or none.

    Unit: nats per sequence. Empty mask: that row is 0.
    Gradient: k2 gives that of each position's reverse KL, k3 that of each position's *forward* KL, k1 zero in
        expectation. All only while the samples come from the policy itself: there is no importance weight.
    """
    return torch.where(response_mask, values, 0.0).sum(dim=1)


def k1_reward_to_go(
    policy_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
    max_weight: float = math.inf,
) -> Float[Tensor, " B"]:
    """k1 in the reward, each token charged for itself and what follows: the true gradient of the sequence KL.

    S_b = sum_s w_{<=s} k1_s with k1 a constant: differentiating w gives each token's score times its k1-to-go. The
    to-go sum takes the leave-one-out mean of the group at that position as its baseline.

    Unit: nats per sequence. Sign: either. Empty mask: that row is 0.
    Gradient: to policy_logprobs and weights.
    """
    k1 = policy_logprobs - reference_logprobs
    return _reward_to_go(k1, policy_logprobs, weights, response_mask, group_size, max_weight)


def k3_reward_to_go(
    policy_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
    max_weight: float = math.inf,
) -> Float[Tensor, " B"]:
    """k3 in the reward, as `k1_reward_to_go` is charged: for research only, since its gradient is not the KL's.

    Unit: nats per sequence. Sign: >= 0 but for the baseline, which is 0 in value. Empty mask: that row is 0.
    Gradient: to policy_logprobs and weights; that of the sequence KL minus that of each visited position's *forward*
        KL, which can push away from the reference.
    """
    values = estimators.k3(policy_logprobs, reference_logprobs)
    return _reward_to_go(values, policy_logprobs, weights, response_mask, group_size, max_weight)


def k1_sequence(
    policy_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
) -> Float[Tensor, " B"]:
    """k1 in the reward, summed over the sequence: the true gradient of the sequence KL, with the most variance.

    S_b = w_T sum_s k1_s with k1 a constant, less the leave-one-out mean of the group's sums.

    Unit: nats per sequence. Sign: either. Empty mask: that row is 0.
    Gradient: to weights. It is what RLOO implementations do when they subtract the KL from the reward.
    """
    k1 = torch.where(response_mask, (policy_logprobs - reference_logprobs).detach(), 0.0).sum(dim=1)
    whole = weights[:, -1]
    everyone = torch.ones_like(k1, dtype=torch.bool)
    baseline = mean_of_others(k1[:, None], everyone[:, None], group_size)[:, 0]
    return whole * k1 - (whole - whole.detach()) * baseline


def mean_of_others(
    values: Float[Tensor, "B T"], response_mask: Bool[Tensor, "B T"], group_size: int
) -> Float[Tensor, "B T"]:
    """Mean at each position of the *other* rows of the group that reach it; 0 where none does.

    Unit: that of values. Gradient: passed through; callers detach.
    """
    rows, length = values.shape
    grouped = torch.where(response_mask, values, 0.0).view(rows // group_size, group_size, length)
    counted = response_mask.view_as(grouped).to(values.dtype)
    others = grouped.sum(dim=1, keepdim=True) - grouped
    number = counted.sum(dim=1, keepdim=True) - counted
    return (others / number.clamp(min=1.0)).view(rows, length)


def _baseline(
    to_go: Float[Tensor, "B T"],
    policy_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
    max_weight: float,
) -> Float[Tensor, " B"]:
    """Zero in value; its gradient is sum_t w_{<=t} b_t grad log policy(y_t), whose expectation is zero.

    A weight that was cut is a constant and has no score to take a baseline from.
    """
    expected = mean_of_others(to_go, response_mask, group_size)
    score = policy_logprobs - policy_logprobs.detach()
    counted = response_mask & (weights.detach() < max_weight)
    return torch.where(counted, weights.detach() * expected * score, 0.0).sum(dim=1)


def _reward_to_go(
    values: Float[Tensor, "B T"],
    policy_logprobs: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    group_size: int,
    max_weight: float,
) -> Float[Tensor, " B"]:
    """Charge each token, as a constant, for its own value and those that follow, less the group's mean."""
    paid = torch.where(response_mask, weights * values.detach(), 0.0)
    to_go = _sum_from(paid.detach())
    return paid.sum(dim=1) - _baseline(to_go, policy_logprobs, weights, response_mask, group_size, max_weight)


def _sum_from(values: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Sum over this position and those after it."""
    return values.flip(1).cumsum(dim=1).flip(1)
