"""How the newest values of a number differ from as many before: the means of two windows, by their noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kleash.monitor.baseline import LARGEST_CORRELATION, ratio, variance_of_mean
from kleash.monitor.history import Track, Values


class Contrast(NamedTuple):
    """The newest window's mean minus that of the window before, and its standard error."""

    newest: float
    before: float
    stderr: float

    @property
    def score(self) -> float:
        """The difference in standard errors; of two windows without any spread 0 or an infinity."""
        return ratio(self.newest - self.before, self.stderr)


def window_since(track: Track, step: float, least: int) -> int:
    """Return how many values were measured since a step, but no fewer than `least`: for windows over the same steps."""
    return max(least, int(np.count_nonzero(track.steps() >= step)))


def contrast(track: Track, window: int) -> Contrast | None:
    """Compare the newest `window` values of a number with those before; None while there are too few.

    The noise is taken for a first-order autoregression. Its spread and correlation are those about the windows' means
    and the slope that both have on average, for a trend is what is looked for and no noise; the correlation has the
    first-order correction of its bias under a trend, (2 + 4 rho) / n (Kendall 1954). That the windows adjoin is left
    out, which makes the standard error of an autocorrelated series too large rather than too small.
    """
    if len(track) < 2 * window:
        return None
    values = track.values(2 * window).reshape(2, window)
    means = values.mean(axis=1)
    return Contrast(float(means[1]), float(means[0]), _stderr(values - means[:, None]))


def _stderr(deviations: Values) -> float:
    """Standard error of the difference of two windows' means, from deviations `[2, window]` from those means."""
    window = deviations.shape[1]
    steps = np.arange(window) - (window - 1) / 2
    noise = deviations - (deviations.sum(axis=0) @ steps) / (2.0 * (steps @ steps)) * steps
    flat = noise.ravel()
    variance = float(flat @ flat) / flat.size
    if variance == 0.0:
        return 0.0
    raw = float(np.vdot(noise[:, 1:], noise[:, :-1])) / (2 * (window - 1) * variance)
    correlation = min(max(raw + (2.0 + 4.0 * raw) / window, 0.0), LARGEST_CORRELATION)
    of_mean = variance_of_mean(window, correlation)
    return math.sqrt(2.0 * of_mean * variance / (1.0 - of_mean))
