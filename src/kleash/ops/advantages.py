"""Advantages from the rewards of a group: P prompts, G samples of each.

`scored` is True where a sequence has a reward. A sequence without one takes no part: its advantage is 0 and the others'
baseline does not see it.

Exact over G = 2 on an enumerable model: the leave-one-out baseline leaves the expected policy gradient as it is; the
group mean (which holds the sample itself) shrinks it by (G - 1) / G; dividing by the group's standard deviation turns
it, towards the gradient of the win rate against oneself.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def leave_one_out(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Reward minus the mean reward of the *other* samples of the prompt.

    Unit: that of the reward. Sign: positive is better than the others. Gradient: none is meant; pass constants.
    A row whose prompt has no other scored sample gets 0: it has nothing to be compared with.

    Source: Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740.

    Example:
        >>> import torch
        >>> leave_one_out(torch.tensor([[1.0, 0.0, 0.5]]), torch.ones(1, 3, dtype=torch.bool))
        tensor([[ 0.7500, -0.7500,  0.0000]])
    """
    kept = torch.where(scored, rewards, 0.0)
    others = kept.sum(dim=1, keepdim=True) - kept
    number = scored.sum(dim=1, keepdim=True) - scored.long()
    usable = scored & (number > 0)
    return torch.where(usable, kept - others / number.clamp(min=1), 0.0)


def centered(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Reward minus the mean of the group, the sample itself included.

    Unit: that of the reward. Its policy gradient is (G - 1) / G of the true one, in the true direction.

    Source: Liu et al. 2025 (Dr. GRPO), arXiv 2503.20783.
    """
    kept = torch.where(scored, rewards, 0.0)
    number = scored.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(scored, kept - kept.sum(dim=1, keepdim=True) / number, 0.0)


def standardized(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """`centered`, divided by the group's standard deviation (n - 1 below the line, + 1e-4 as GRPO codes do).

    Unit: none: beta then no longer trades against your reward but against its share of the group's spread.
    A group whose rewards are all equal gets 0.

    Source: Shao et al. 2024 (DeepSeekMath), arXiv 2402.03300.
    """
    advantages = centered(rewards, scored)
    number = scored.sum(dim=1, keepdim=True)
    variance = (advantages**2).sum(dim=1, keepdim=True) / (number - 1).clamp(min=1)
    return advantages / (variance.sqrt() + 1e-4)
