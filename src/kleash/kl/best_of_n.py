"""What does best-of-n cost? Its exact distribution and KL on models small enough to enumerate, and the known bound.

Best-of-n draws n sequences from a base model and keeps the one with the highest reward; among draws that tie for it,
each is as likely as the others. No weight changes, so it is the baseline that fine-tuning must beat.

A level is a set of sequences with one reward. With F the probability of a reward up to and including a level, G that
of a reward below it, and m = F - G its own, the best of n lies in the level with probability F^n - G^n, and within the
level it is distributed as under the base. So a sequence y of that level has

    best_of_n(y) = base(y) (F^n - G^n) / m = base(y) sum_{j<n} F^j G^(n-1-j),

where the sum needs no division and loses no digits. Estimates from samples of a real model are in
`kleash.gauge.best_of_n`.

Source: Beirami et al. 2024, arXiv 2401.01879, for distinct rewards; ties follow from the level sets.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

TOTAL_TOLERANCE = 1e-6


def pmf(probabilities: Float[Tensor, " K"], rewards: Float[Tensor, " K"], n: int) -> Float[Tensor, " K"]:
    """Probability of each of K enumerated sequences as the best of n draws.

    Gradient: to probabilities. The rewards count by their order alone.

    Args:
        probabilities: of the base model, summing to 1.
        rewards: of the same sequences.
        n: draws that the best is chosen from, at least 1.

    Raises:
        ValueError: n below 1, or probabilities that are none.

    Example:
        >>> pmf(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), n=2)
        tensor([0.2500, 0.7500])
    """
    return probabilities * _ratio(probabilities, rewards, n)


def kl(probabilities: Float[Tensor, " K"], rewards: Float[Tensor, " K"], n: int) -> Float[Tensor, ""]:
    """Exact KL(best-of-n ‖ base) in nats per sequence; >= 0, and never above `kl_bound`.

    Gradient: to probabilities. It is 0 where all rewards are equal, whatever n is.

    Raises:
        ValueError: as for `pmf`.

    Example:
        >>> kl(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), n=2)
        tensor(0.1308)
    """
    ratio = _ratio(probabilities, rewards, n)
    return (probabilities * torch.xlogy(ratio, ratio)).sum()


def expected_reward(probabilities: Float[Tensor, " K"], rewards: Float[Tensor, " K"], n: int) -> Float[Tensor, ""]:
    """Mean reward of the best of n, in units of the reward. Gradient: to probabilities and rewards."""
    return pmf(probabilities, rewards, n) @ rewards


def kl_bound(n: int) -> float:
    """The most that KL(best-of-n ‖ base) can be, in nats per sequence.

    log n - (n - 1) / n. An upper bound and no estimate: it is attained only where two draws never have the same
    reward, as with a continuous one, and sequences of tokens are discrete. The KL itself is at most
    -log base(best level), while the bound grows for ever: a reward of 0 or 1, each as likely, has KL 0.668 nats at
    n = 8, where the bound is 1.204.

    Raises:
        ValueError: n below 1.

    Reference: Beirami et al. 2024, arXiv 2401.01879, which shows that the usual formula is a bound.

    Example:
        >>> round(kl_bound(8), 6)
        1.204442
    """
    _check_n(n)
    return math.log(n) - (n - 1) / n


def _ratio(probabilities: Float[Tensor, " K"], rewards: Float[Tensor, " K"], n: int) -> Float[Tensor, " K"]:
    """best_of_n(y) / base(y) of each sequence."""
    _check_n(n)
    _check_probabilities(probabilities)
    _, level = torch.unique(rewards, return_inverse=True)
    mass = probabilities.new_zeros(int(level.max()) + 1).index_add(0, level, probabilities)
    up_to = mass.cumsum(0)
    below = torch.cat([up_to.new_zeros(1), up_to[:-1]])
    power = torch.arange(n, device=probabilities.device)
    return (up_to[:, None] ** power * below[:, None] ** (n - 1 - power)).sum(1)[level]


def _check_n(n: int) -> None:
    if n < 1:
        raise ValueError(f"n = {n}: the best of n draws needs at least 1 draw")


def _check_probabilities(probabilities: Float[Tensor, " K"]) -> None:
    total, lowest = float(probabilities.detach().sum()), float(probabilities.detach().min())
    if not (lowest >= 0 and abs(total - 1) <= TOTAL_TOLERANCE):
        raise ValueError(
            f"probabilities sum to {total:g} and the lowest is {lowest:g}: a distribution over all sequences sums to 1 "
            "and has none below 0. Give every sequence, with probabilities and not log-probabilities"
        )
