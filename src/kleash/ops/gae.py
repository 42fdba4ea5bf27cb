"""Generalised advantage estimation: what each token did better than the critic expected.

`values` are the critic's estimates *before* each token, of everything that this token and later ones will earn. Time
runs along the True positions of the mask only: padding and holes are not steps. After the last one the value is 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def generalized_advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    discount: float = 1.0,
    trace: float = 0.95,
) -> Float[Tensor, "B T"]:
    """A_t = sum_k (discount * trace)^k delta_{t+k}, with delta_t = r_t + discount V_{t+1} - V_t; 0 outside the mask.

    With trace 1 it is the discounted reward-to-go minus V_t: unbiased for any critic that does not see the token it
    judges. With trace 0 it is delta_t alone: little variance, and the critic's own error. The reply ends an episode
    also where a length limit cut it: what it would have earned later is not counted.

    Unit: that of the rewards. Sign: positive is better than the critic expected. Gradient: none; the result is a
    constant. Empty mask: that row is 0.

    Args:
        rewards: reward of each token; outside the mask it is not read.
        values: the critic's value before each token; outside the mask it is not read.
        mask: True where a token belongs to the response.
        discount: of later rewards, gamma.
        trace: lambda, in [0, 1].

    Source: Schulman et al. 2016, arXiv 1506.02438, equation 16.

    Example:
        >>> import torch
        >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.5]])
        >>> generalized_advantages(rewards, values, torch.ones(1, 2, dtype=torch.bool), trace=0.5)
        tensor([[0.5000, 0.5000]])
    """
    rewards, values = rewards.detach(), values.detach()
    out = torch.zeros_like(values)
    next_value = next_advantage = values.new_zeros(values.shape[0])
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + discount * next_value - values[:, t]
        advantage = delta + discount * trace * next_advantage
        here = mask[:, t]
        out[:, t] = torch.where(here, advantage, 0.0)
        next_value = torch.where(here, values[:, t], next_value)
        next_advantage = torch.where(here, advantage, next_advantage)
    return out


def returns(
    advantages: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """What the critic is trained towards, A_t + V_t: the lambda-return; 0 outside the mask.

    Pass the advantages as `generalized_advantages` gave them, not centred or whitened. With trace 1 it is the
    discounted reward-to-go, whatever the critic.

    Unit: that of the rewards. Gradient: none; the result is a constant.

    Source: Sutton and Barto 2018, section 12.1.
    """
    return torch.where(mask, (advantages + values).detach(), 0.0)
