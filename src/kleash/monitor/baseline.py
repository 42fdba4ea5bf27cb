"""How unusual is what a series does now? Scores against a baseline of its own past.

The baseline is all that was seen up to 100 steps ago, at least 200 values; what was measured under an alarm stays out
of it. It is taken for a first-order autoregression: a run's numbers swing slowly, and scores that took them for
independent would cry wolf. Three scores are made, each in standard deviations of what it scores, with the uncertainty
of the baseline's own mean in it: of the newest value, and of rises over the newest 30 and 100 values.

A rise is scored by the matched filter: the innovations x_t - rho x_(t-1), weighted as a straight ramp would shape them.
What a score means is not read off a normal table: `thresholds.py` has lines chosen by simulation, with the baseline
estimated as it is here.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

BASELINE_STEPS = 200
LAG = 100
SKIPPED_STEPS = 30
"""Values at the start that are no baseline: the ramp of the target and what follows it."""
SMOOTHED_STEPS = 10
RISES = (30, 100)

PRIOR_CORRELATION, PRIOR_STEPS = 0.9, 400
"""What is believed of the lag-1 correlation, and how many steps of evidence that belief is worth. A few hundred steps
tell it badly, and taken too low it makes false alarms; a run's numbers do swing slowly."""
LARGEST_CORRELATION = 0.97
LARGEST_SCORE_TAKEN_IN = 4.0


class Scores(NamedTuple):
    """In standard deviations; below 0 for what lies under the baseline or falls."""

    value: float
    rise_30: float
    rise_100: float


class Detector:
    """Scores of one series, fed a value a step. Take the logarithm of what is positive and scales.

    Attributes:
        scores: None until the baseline has `BASELINE_STEPS` values.
        smoothed: mean of the newest `SMOOTHED_STEPS` values, in their unit.
    """

    def __init__(self) -> None:
        """Start without a baseline."""
        self.scores: Scores | None = None
        self.smoothed = 0.0
        self._seen = 0
        self._waiting: deque[float | None] = deque()
        self._baseline = _Baseline()
        self._newest: deque[float] = deque(maxlen=SMOOTHED_STEPS)
        self._ramps = [_Ramp(length) for length in RISES]

    @property
    def level(self) -> float | None:
        """Mean of the baseline, in the unit of the values; None where there are none."""
        return self._baseline.mean if self._baseline.count else None

    def push(self, value: float, *, under_alarm: bool = False) -> None:
        """Take in the value of a step.

        Args:
            value: of the series; finite.
            under_alarm: whether this value is to stay out of the baseline.
        """
        self._seen += 1
        self._newest.append(value)
        self.smoothed = sum(self._newest) / len(self._newest)
        for ramp in self._ramps:
            ramp.push(value)
        if self._seen > SKIPPED_STEPS:
            self._waiting.append(None if under_alarm else value)
        baseline = self._baseline
        while self._waiting and (baseline.count < BASELINE_STEPS or len(self._waiting) > LAG):
            baseline.take_in(self._waiting.popleft())
        if baseline.count >= BASELINE_STEPS:
            self.scores = Scores(baseline.score(value), *(ramp.score(baseline) for ramp in self._ramps))


class _Baseline:
    """Mean, spread and lag-1 correlation of the values taken in.

    Attributes:
        sd: standard deviation of the series, widened for the baseline's own mean having followed the values.
        mean_variance: variance of the baseline's mean, in units of sd squared.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.sd = 0.0
        self.correlation = 0.0
        self.mean_variance = 1.0
        self._squares = 0.0
        self._products = 0.0
        self._pairs = 0
        self._previous: float | None = None
        self._origin = 0.0

    def take_in(self, value: float | None) -> None:
        """Add a value, one that is far out cut to 4 sd once there is a spread to tell by; None leaves a gap."""
        if value is None:
            self._previous = None
            return
        if self.count >= BASELINE_STEPS:
            reach = LARGEST_SCORE_TAKEN_IN * self.sd
            value = min(max(value, self.mean - reach), self.mean + reach)
        if self.count == 0:
            self._origin = value
        self.count += 1
        before = self.mean
        self.mean += (value - before) / self.count
        self._squares += (value - before) * (value - self.mean)
        if self._previous is not None:
            self._pairs += 1
            self._products += (value - self._origin) * (self._previous - self._origin)
        self._previous = value
        if self.count >= BASELINE_STEPS:
            self._estimate()

    def score(self, value: float) -> float:
        """Score a single value."""
        return ratio(value - self.mean, self.sd * math.sqrt(1.0 + self.mean_variance))

    def _estimate(self) -> None:
        """Lag-1 correlation, drawn towards the prior; from it the variance of the mean and the spread."""
        variance = self._squares / self.count
        shift = self.mean - self._origin
        raw = 0.0 if variance == 0.0 else (self._products / self._pairs - shift * shift) / variance
        drawn = (self.count * raw + PRIOR_STEPS * PRIOR_CORRELATION) / (self.count + PRIOR_STEPS)
        self.correlation = min(max(drawn, 0.0), LARGEST_CORRELATION)
        self.mean_variance = variance_of_mean(self.count, self.correlation)
        self.sd = math.sqrt(variance / (1.0 - self.mean_variance))


class _Ramp:
    """A matched filter for a straight rise over the newest `length` values, updated in constant time.

    For y_i = x_i - mean the filter is sum_i w_i (y_i - rho y_(i-1)) with w_i = (1 - rho) i + rho, i = 1 .. length.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._values: deque[float] = deque()
        self._sum = self._sum_before = 0.0
        self._ramped = self._ramped_before = 0.0

    def push(self, value: float) -> None:
        self._sum_before, self._ramped_before = self._sum, self._ramped
        self._values.append(value)
        self._ramped += self._length * value - self._sum
        self._sum += value - (self._values.popleft() if len(self._values) > self._length else 0.0)

    def score(self, baseline: _Baseline) -> float:
        rho, length = baseline.correlation, self._length
        step = 1.0 - rho
        weights = step * length * (length + 1) / 2 + rho * length
        squared = (
            step * step * length * (length + 1) * (2 * length + 1) / 6 + (step * length + step + rho) * rho * length
        )
        ramped = self._ramped - rho * self._ramped_before
        flat = self._sum - rho * self._sum_before
        filtered = step * ramped + rho * flat - baseline.mean * step * weights
        own = (1.0 - rho * rho) * squared
        of_mean = (step * weights) ** 2 * baseline.mean_variance
        return ratio(filtered, baseline.sd * math.sqrt(own + of_mean))


def variance_of_mean(count: int, correlation: float) -> float:
    """Variance of the mean of `count` values of an AR(1) series with unit variance and this lag-1 correlation."""
    rho = correlation
    tail = 2.0 * rho * (1.0 - rho**count) / (count * (1.0 - rho) ** 2)
    return ((1.0 + rho) / (1.0 - rho) - tail) / count


def ratio(difference: float, spread: float) -> float:
    """Return difference / spread; for a series that never moved, 0 or an infinity."""
    if spread > 0.0:
        return difference / spread
    return 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
