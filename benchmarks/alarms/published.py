"""Rules that others publish, written down from their sources, as comparators for Kleash's.

Each looks at a whole run and says, for every step, whether it warns (1), calls it critical (2) or is silent (0).
None has been tuned for what is measured here; where a rule needs a number that the run does not record, the nearest
one stands in and the title says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.alarms.nulls import NUM_REPLIES
from benchmarks.alarms.numbers import Array, Numbers

Levels = NDArray[np.int64]
SILENT, WARNING, CRITICAL = 0, 1, 2

WINDOW, WARM_UP, VARIANCE_WARM_UP = 100, 20, 50
BASELINE = 100


@dataclass(frozen=True)
class Published:
    """One published rule.

    Args:
        title: what it does.
        source: who states it.
        reads: the series that it looks at; None where a run does not have it.
        rule: level by value of that series.
        has: the levels that it knows.
    """

    title: str
    source: str
    reads: Callable[[Numbers], Array | None]
    rule: Callable[[Array], Levels]
    has: tuple[int, ...] = (WARNING, CRITICAL)

    def levels(self, numbers: Numbers) -> Levels:
        """Return the level by step of a run; silent where it has nothing to read."""
        levels = np.zeros(len(numbers), dtype=np.int64)
        series = self.reads(numbers)
        if series is not None:
            measured = np.isfinite(series)
            levels[measured] = self.rule(series[measured])
        return levels


def rolling_z(kl: Array) -> Levels:
    """3 / 4.5 standard deviations above the mean of the last 99 steps, after 20 steps."""
    return _levels(_rolling_scores(kl), 3.0, 4.5)


def frozen_z(kl: Array) -> Levels:
    """The same with mean and sd of the first 100 steps, once they are there."""
    scores = _rolling_scores(kl)
    first = kl[:WINDOW]
    scores[WINDOW - 1 :] = (kl[WINDOW - 1 :] - first.mean()) / max(first.std(), 1e-8)
    return _levels(scores, 3.0, 4.5)


def _rolling_scores(kl: Array) -> Array:
    """Distance of each value from the up to 99 before it, in their standard deviations; 0 in the warm-up."""
    ends = np.arange(len(kl))
    starts = np.maximum(0, ends - (WINDOW - 1))
    centred = kl - kl.mean()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    squares = np.concatenate([[0.0], np.cumsum(centred**2)])
    count = np.maximum(ends - starts, 1)
    mean = (sums[ends] - sums[starts]) / count
    variance = (squares[ends] - squares[starts]) / count - mean**2
    scores: Array = (centred - mean) / np.maximum(np.sqrt(np.maximum(variance, 0)), 1e-8)
    scores[: WARM_UP - 1] = 0
    return scores


def low_entropy(entropy: Array) -> Levels:
    """Below 1.0 nats per token for 25 / 50 steps in a row, after 20 steps."""
    below = entropy < 1.0
    below[: WARM_UP - 1] = False
    rows = np.arange(len(entropy))
    last_above = np.maximum.accumulate(np.where(below, -1, rows))
    return _levels(np.where(below, rows - last_above, 0), 24.5, 49.5)


def reward_variance(variance: Array) -> Levels:
    """Variance of the rewards above 3 / 6 times that of the first 20 steps, after 50 steps."""
    levels = _levels(variance / max(variance[:WARM_UP].mean(), 1e-8), 3.0, 6.0)
    levels[: VARIANCE_WARM_UP - 1] = SILENT
    return levels


def negative_kl(kl: Array) -> Levels:
    """Mean KL per sequence below -1 nat."""
    return np.where(kl < -1.0, WARNING, SILENT)


def above_target(multiple: Array) -> Levels:
    """More than 1.5 times the target."""
    return np.where(multiple > 1.5, CRITICAL, SILENT)


def cusum(values: Array) -> Levels:
    """One-sided CUSUM for a rise, k = 0.5 and h = 8, in units of median and MAD of the first 100 steps."""
    first = values[:BASELINE]
    centre = np.median(first)
    scale = max(1.4826 * float(np.median(np.abs(first - centre))), 1e-8)
    levels = np.zeros(len(values), dtype=np.int64)
    total = 0.0
    for step, score in enumerate(((values[BASELINE:] - centre) / scale).tolist(), BASELINE):
        total = max(0.0, total + score - 0.5)
        if total > 8:
            levels[step] = CRITICAL
    return levels


def outside_0_10(kl: Array) -> Levels:
    """KL per sequence below 0 or above 10 nats."""
    return np.where((kl < 0) | (kl > 10), WARNING, SILENT)


def _levels(scores: Array, warning: float, critical: float) -> Levels:
    return np.where(scores > critical, CRITICAL, np.where(scores > warning, WARNING, SILENT))


def _kl(numbers: Numbers) -> Array | None:
    """Return the KL per sequence: exact where there is one, else sampled."""
    exact = numbers.values.get("kl/exact_per_sequence")
    return _sampled_kl(numbers) if exact is None else exact


def _sampled_kl(numbers: Numbers) -> Array | None:
    """Return the sampled KL per sequence, from that per token and the length where it is not there itself."""
    per_token = numbers.values.get("kl/k1_per_token")
    if per_token is None:
        return None
    return numbers.values.get("kl/k1_per_sequence", per_token * numbers.values["length/mean"])


def _log_kl(numbers: Numbers) -> Array | None:
    """Return the logarithm of an exact KL, whose noise is normal, which favours a CUSUM; else the KL as it is."""
    kl = _kl(numbers)
    return np.log(np.maximum(kl, 1e-6)) if kl is not None and "kl/exact_per_sequence" in numbers.values else kl


def _reward_variance(numbers: Numbers) -> Array | None:
    """Return the variance over a step's replies, from the standard error of their mean."""
    stderr = numbers.stderrs.get("reward/proxy")
    return None if stderr is None else NUM_REPLIES * stderr**2


def _times_target(numbers: Numbers) -> Array | None:
    """Return the KL per sequence in units of what a controller holds; early on, of what it will hold."""
    kl, target = _kl(numbers), numbers.values.get("control/target")
    if kl is None or target is None or not np.isfinite(target).any():
        return None
    return kl / np.nanmax(target)


def _entropy(numbers: Numbers) -> Array | None:
    return numbers.values.get("entropy/per_token")


PUBLISHED = {
    "rlwatch KL, rolling": Published(
        "KL more than 3 / 4.5 sd above the last 99 steps, after 20", "rlwatch 0.3", _kl, rolling_z
    ),
    "rlwatch KL, frozen": Published("the same against the first 100 steps", "rlwatch 0.3, `frozen`", _kl, frozen_z),
    "rlwatch entropy": Published("entropy below 1.0 for 25 / 50 steps", "rlwatch 0.3", _entropy, low_entropy),
    "rlwatch reward variance": Published(
        "variance of rewards above 3 / 6 times that of the first 20 steps, after 50",
        "rlwatch 0.3",
        _reward_variance,
        reward_variance,
    ),
    "CUSUM": Published(
        "rise of the log KL, k = 0.5, h = 8, median and MAD of the first 100 steps",
        "textbook",
        _log_kl,
        cusum,
        (CRITICAL,),
    ),
    "KL below -1": Published(
        "sampled KL per sequence below -1 nat", "TRL's former PPO", _sampled_kl, negative_kl, (WARNING,)
    ),
    "1.5 x target": Published(
        "KL above 1.5 times its target (there that between two updates, here that to the reference)",
        "TRL's former PPO",
        _times_target,
        above_target,
        (CRITICAL,),
    ),
    "KL in 0..10": Published(
        "sampled KL per sequence outside 0 to 10 nats", "TRL's FAQ", _sampled_kl, outside_0_10, (WARNING,)
    ),
}
