"""DPO and its kin: learning from comparisons without a reward model.

Objective: the policy that maximises E[r(y)] - beta KL(policy ‖ reference) for the reward that best explains the
comparisons, found without that reward: since r(y) = beta log(policy(y) / reference(y)) + constant at the optimum, the
policy's own log-ratios are scored as a reward model's would be. The KL enters through the reference in these ratios and
nowhere else; beta is the reward per nat that one preference is worth. `online_loss` does the same on fresh pairs.

Source: Rafailov et al. 2023, arXiv 2305.18290, equation 7; Guo et al. 2024 (online), arXiv 2402.04792. The
variants have their sources in `kleash.ops.preference_losses`.

Differences from the papers and their codes:

1. Log-probabilities are summed over an answer's tokens for every variant; TRL averages them for IPO.
2. Label smoothing exists for the two losses that say what they do with it, and for no other (`SMOOTHED_LOSSES`).
3. Offline, a tie is half a win for each side; the papers have none.
4. Online, a pair of equal rewards is left out: a judge who says one thing in one order and another in the other did
   not say that the answers are equally good. So is a pair of which one has no reward.

Nothing here holds the KL itself: on few comparisons the margin grows without end and drags both answers' probabilities
down with it. Measure the drift (`eval/kl`) beside the loss.

On the enumerable toy: the expected gradient of `sigmoid` is 0 at reference * exp(r / beta) / Z.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.ops import preference_losses
from kleash.ops.preference_losses import PairLoss, half_each

LOSSES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "sigmoid": preference_losses.sigmoid,
    "ipo": preference_losses.ipo,
    "hinge": preference_losses.hinge,
}
"""Losses of margins and beta."""

SMOOTHED_LOSSES: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "conservative": preference_losses.conservative,
    "robust": preference_losses.robust,
}
"""Losses of margins, beta and the share of labels that are reckoned to be wrong."""


class OnlineLoss(NamedTuple):
    """`values` to be summed, 0 where not `counted`; `counted` and `tied` say which pairs gave a comparison."""

    values: Float[Tensor, " P"]
    counted: Bool[Tensor, " P"]
    """Both were scored, one above the other: divide the sum of values by the number of these."""
    tied: Bool[Tensor, " P"]
    """Both were scored, and alike."""


def margins(
    policy_chosen: Float[Tensor, " B"],
    policy_rejected: Float[Tensor, " B"],
    reference_chosen: Float[Tensor, " B"],
    reference_rejected: Float[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """How much farther the policy moved to the chosen than to the rejected answer.

    h = log(policy / reference)(chosen) - log(policy / reference)(rejected).

    Unit: nats; beta * h is the reward margin. Sign: positive where the chosen answer gained. Exactly 0 where policy
    and reference give the same numbers. Gradient: to the policy's; the reference is a constant.

    Args:
        policy_chosen: log-probability of the whole chosen answer under the policy, summed over its tokens.
        policy_rejected: that of the rejected answer.
        reference_chosen: that of the chosen answer under the reference.
        reference_rejected: that of the rejected answer under the reference.
    """
    return (policy_chosen - reference_chosen.detach()) - (policy_rejected - reference_rejected.detach())


def loss(margins: Float[Tensor, " B"], tied: Bool[Tensor, " B"], pair_loss: PairLoss) -> Float[Tensor, " B"]:
    """One value a comparison; divide the sum by their number.

    Args:
        margins: of chosen over rejected.
        tied: True where neither side won; which is called chosen then changes nothing.
        pair_loss: an entry of `LOSSES` or `SMOOTHED_LOSSES` with its settings bound.

    Example:
        >>> from functools import partial
        >>> h = torch.tensor([0.0, 10.0, 10.0])
        >>> loss(h, torch.tensor([False, False, True]), partial(LOSSES["sigmoid"], beta=0.1))
        tensor([0.6931, 0.3133, 0.8133])
    """
    return torch.where(tied, half_each(pair_loss, margins), pair_loss(margins))


def online_loss(
    rewards: Float[Tensor, "P 2"], scored: Bool[Tensor, "P 2"], log_ratios: Float[Tensor, "P 2"], pair_loss: PairLoss
) -> OnlineLoss:
    """The loss of two fresh samples of each prompt, the one of higher reward chosen.

    Only the order of the rewards is used. Gradient: to log_ratios of counted pairs.

    Args:
        rewards: of the policy's two samples.
        scored: True where a sample has a reward.
        log_ratios: log(policy / reference) of each whole sample, in nats.
        pair_loss: as for `loss`.
    """
    compared = scored.all(dim=1)
    first_leads = rewards[:, 0] > rewards[:, 1]
    tied = compared & (rewards[:, 0] == rewards[:, 1])
    counted = compared & ~tied
    first_over_second = log_ratios[:, 0] - log_ratios[:, 1]
    values = pair_loss(torch.where(first_leads, first_over_second, -first_over_second))
    return OnlineLoss(torch.where(counted, values, 0.0), counted, tied)
