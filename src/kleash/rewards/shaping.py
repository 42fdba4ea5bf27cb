"""Changes to a reward between the function that gave it and the baseline.

Applied in this order, each optional, all before the baseline and before any normalisation by group:

1. `rescale`: to mean 0 and sd 1 on the reference's samples, so that beta means the same for any reward;
2. `clip`: bounds are in the rescaled unit where rescaling is on;
3. `missing_stop_penalty`, then `length_penalty`: after the clip, so that it cannot undo them.

Rewards are float64 arrays `[B]`, one a scored completion: those without a score are left out before. In
rescaling, the shift changes no optimum, and a beta set for rescaled rewards is beta * sd in the reward's own
unit. The other three change which policy is best, on purpose. The KL penalty is none of these: it is added
later and never clipped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kleash.errors import ConfigError, DataError

Rewards = NDArray[np.float64]


class Clipped(NamedTuple):
    """Clipped rewards `[B]`, and how many of them the bounds changed."""

    rewards: Rewards
    num_clipped: int


def rescale(rewards: Rewards, mean: float, sd: float) -> Rewards:
    """Return (rewards - mean) / sd.

    Args:
        rewards: `[B]`, in the reward's own unit.
        mean: mean reward over samples of the reference.
        sd: standard deviation over the same samples.

    Returns:
        `[B]`, in standard deviations of the reference's reward.

    Raises:
        DataError: sd is 0, negative or not finite, or the mean is not finite.
    """
    if sd == 0:
        raise DataError(
            f"The reward is {mean:g} for every sample of the reference (standard deviation 0), so it cannot"
            " be rescaled to standard deviation 1, and there is no difference to learn from. Check the"
            " reward function on these prompts, or measure on more samples."
        )
    if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0):
        raise DataError(
            f"Cannot rescale rewards by mean {mean:g} and standard deviation {sd:g}: the mean must be finite"
            " and the standard deviation above 0. Measure them on scored samples of the reference."
        )
    return (rewards - mean) / sd


def clip(rewards: Rewards, low: float, high: float) -> Clipped:
    """Limit rewards to [low, high] and count how many that changed.

    Raises:
        ConfigError: low is not below high.
    """
    if not low < high:
        raise ConfigError(
            f"Reward clip bounds [{low:g}, {high:g}] leave no room for a difference. low must be below high."
        )
    clipped = np.clip(rewards, low, high)
    return Clipped(clipped, int(np.count_nonzero(clipped != rewards)))


def missing_stop_penalty(rewards: Rewards, stopped: NDArray[np.bool_], penalty: float) -> Rewards:
    """Take `penalty` from every completion that did not end by itself.

    shaped_b = reward_b - penalty * (0 if stopped_b else 1).

    Args:
        rewards: `[B]`.
        stopped: `[B]`, True where the completion ended with a stop token of its own.
        penalty: in the unit of the rewards; at least 0.

    Raises:
        ConfigError: a penalty that is negative or not finite.
    """
    _check_penalty("missing_stop_penalty", penalty)
    return rewards - penalty * ~stopped


def length_penalty(rewards: Rewards, lengths: NDArray[np.int64], target_length: int, per_token: float) -> Rewards:
    """Take `per_token` for every token beyond the target.

    shaped_b = reward_b - per_token * max(0, length_b - target_length).

    Args:
        rewards: `[B]`.
        lengths: `[B]`, completion tokens, stop token included.
        target_length: tokens that cost nothing; shorter completions gain nothing.
        per_token: in the unit of the rewards; at least 0.

    Raises:
        ConfigError: a per_token that is negative or not finite, or a negative target.
    """
    _check_penalty("per_token", per_token)
    if target_length < 0:
        raise ConfigError(f"target_length = {target_length}: a length cannot be negative. Give 0 or more tokens.")
    return rewards - per_token * np.maximum(0, lengths - target_length)


def _check_penalty(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(
            f"{name} = {value:g}: a penalty is subtracted, so it must be finite and at least 0; a negative"
            " one would pay for what it is meant to cost."
        )
