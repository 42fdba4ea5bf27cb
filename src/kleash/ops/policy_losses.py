"""Policy-gradient losses of one batch: what is minimised so that rewarded samples become likelier.

Both return one value a sequence (`[B]`) or a token (`[B, T]`); the caller divides sums by its own global count, so
cutting a batch into micro-batches or processes never changes the numbers. The KL penalty is not here: it never passes
through a clip.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class PolicyLoss(NamedTuple):
    """`values` to be summed, `clipped` (True where the clip cut the gradient), and `ratio`, policy / behavior."""

    values: Float[Tensor, ...]
    clipped: Bool[Tensor, ...]
    ratio: Float[Tensor, ...]


def clipped_sequence_ratio(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"],
    response_mask: Bool[Tensor, "B T"],
    epsilon: float,
) -> PolicyLoss:
    """-min(w A, clip(w, 1 - eps, 1 + eps) A) with w the ratio of the whole sequence, `[B]`.

    On-policy (w = 1) its gradient is that of REINFORCE, -A sum_t grad log policy(y_t).

    Unit: that of the advantages. Sign: minimised. Gradient: to policy_logprobs; zero where `clipped`.
    Empty mask: w = 1 and no gradient.

    Source: Ahmadian et al. 2024, arXiv 2402.14740 (RLOO); the clip as in PPO, arXiv 1707.06347 equation 7.
    """
    log_ratio = torch.where(response_mask, policy_logprobs - behavior_logprobs.detach(), 0.0).sum(dim=1)
    return _clipped(log_ratio.exp(), advantages, epsilon, epsilon)


def clipped_token_ratio(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B #T"],
    response_mask: Bool[Tensor, "B T"],
    epsilon_low: float,
    epsilon_high: float,
) -> PolicyLoss:
    """-min(r A, clip(r, 1 - low, 1 + high) A) with r the ratio of each token, `[B, T]`; 0 outside the mask.

    An advantage is a token's own, `[B, T]`, or that of its whole row, `[B, 1]`.

    Unit: that of the advantages. Sign: minimised. Gradient: to policy_logprobs; zero where `clipped`.

    Source: PPO, arXiv 1707.06347 equation 7; unequal bounds from DAPO, arXiv 2503.14476.
    """
    log_ratio = torch.where(response_mask, policy_logprobs - behavior_logprobs.detach(), 0.0)
    loss = _clipped(log_ratio.exp(), advantages, epsilon_low, epsilon_high)
    return PolicyLoss(torch.where(response_mask, loss.values, 0.0), loss.clipped & response_mask, loss.ratio)


def _clipped(ratio: Float[Tensor, "*shape"], advantages: Float[Tensor, ...], low: float, high: float) -> PolicyLoss:
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - low, 1 + high) * advantages
    return PolicyLoss(torch.maximum(plain, bounded), (bounded > plain).detach(), ratio.detach())
