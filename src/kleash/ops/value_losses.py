"""The critic's loss: how far its value of each token is from what was earned.

One value a token; the caller divides the sum by its own global count of tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class ValueLoss(NamedTuple):
    """`values` to be summed, `[B, T]`, and `clipped`, True where the clip cut the gradient."""

    values: Float[Tensor, "B T"]
    clipped: Bool[Tensor, "B T"]


def clipped_value_loss(
    values: Float[Tensor, "B T"],
    behavior_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    epsilon: float,
) -> ValueLoss:
    """0.5 max((V - R)^2, (clip(V, V_b - eps, V_b + eps) - R)^2) for each token; 0 outside the mask.

    V is the critic now, V_b the critic when the samples were scored: a value that already moved by `epsilon` towards
    its return stays there until the next samples. In the first update on fresh samples V = V_b and nothing is clipped.

    Unit: that of the rewards, squared. Sign: >= 0. Gradient: to values, V - R; zero where `clipped`. Minimiser:
    R, within epsilon of V_b. `epsilon` is in units of the reward, so what it allows depends on the reward's scale.

    Source: OpenAI baselines' ppo2 and lm-human-preferences, `train_policy.py`; not in the PPO paper. The 0.5 is theirs;
        the paper's c_1 and OpenAI's `vf_coef` multiply the sum.
    """
    start = behavior_values.detach()
    bounded = values.clamp(start - epsilon, start + epsilon)
    plain, held = (values - returns.detach()) ** 2, (bounded - returns.detach()) ** 2
    loss = torch.where(mask, 0.5 * torch.maximum(plain, held), 0.0)
    return ValueLoss(loss, ((held > plain) & mask).detach())
