import math

import numpy as np
import pytest

from kleash.monitor.history import Track
from kleash.monitor.rules.windows import contrast, window_since


def track(values, every=1):
    found = Track()
    for number, value in enumerate(values):
        found.append(number * every, value, math.nan)
    return found


def test_a_contrast_is_the_difference_of_two_windows():
    assert contrast(track(range(7)), 4) is None
    found = contrast(track([9.0, 1.0, 3.0, 1.0, 3.0, 5.0, 7.0, 5.0, 7.0]), 4)
    assert (found.before, found.newest) == (2.0, 6.0)


def test_windows_without_a_spread_differ_for_certain_or_not_at_all():
    assert contrast(track([1.0] * 10 + [2.0] * 10), 10).score == math.inf
    assert contrast(track([1.0] * 20), 10).score == 0.0


def autoregression(rng, series, steps, correlation):
    values = np.empty((series, steps))
    values[:, 0] = rng.standard_normal(series)
    for step in range(1, steps):
        innovation = math.sqrt(1 - correlation**2) * rng.standard_normal(series)
        values[:, step] = correlation * values[:, step - 1] + innovation
    return values


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 0.85, 1.15), (0.5, 0.8, 1.2), (0.9, 0.6, 1.25)])
def test_standard_errors_are_those_of_repeated_windows(correlation, low, high):
    window = 100
    series = autoregression(np.random.default_rng(1), 300, 2 * window, correlation)
    found = [contrast(track(values), window) for values in series]
    spread = np.std([one.newest - one.before for one in found])
    assert low < np.median([one.stderr for one in found]) / spread < high


def test_a_trend_is_not_taken_for_noise():
    noise = np.random.default_rng(2).standard_normal(100)
    flat, rising = (contrast(track(noise + slope * np.arange(100)), 50) for slope in (0.0, 0.2))
    assert rising.stderr == pytest.approx(flat.stderr, rel=0.01)
    assert rising.newest - rising.before == pytest.approx(flat.newest - flat.before + 10.0)


def test_a_window_over_the_same_steps_holds_as_many_values_as_were_measured_in_them():
    dense = track(range(300))
    assert window_since(dense, 100.0, 50) == 200
    assert window_since(dense, 290.0, 50) == 50
