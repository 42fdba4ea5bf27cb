import math

import numpy as np
import pytest

from kleash.monitor.history import History
from kleash.monitor.rule import Facts
from kleash.monitor.rules.trends import FACTORS, Limits, beginning, contrast, factors, fresh, newest
from kleash.runs.records import Step

KEY = "entropy/per_token"


def history_of(values, key=KEY):
    history = History()
    for step, value in enumerate(values):
        history.push(Step(step, {key: value}))
    return history


def test_limits_have_the_direction_of_their_sign():
    rises, falls = Limits(1.0, 2.0), Limits(-1.0, -2.0)
    assert [rises.exceeded(move) for move in (-9.0, 0.9, 1.0, 2.0)] == [None, None, "warning", "critical"]
    assert [falls.exceeded(move) for move in (9.0, -0.9, -1.0, -2.0)] == [None, None, "warning", "critical"]


def test_limits_of_factors_are_logarithms_and_some_are_never_reached():
    assert factors(2.0, 4.0) == (pytest.approx(math.log(2)), pytest.approx(math.log(4)))
    assert factors(0.5, 0.0).exceeded(-1e9) == "warning"
    assert factors(2.0, math.inf).exceeded(1e9) == "warning"


def test_zero_has_the_logarithm_of_a_millionth():
    assert FACTORS.into(0.0) == pytest.approx(-6 * math.log(10))
    assert FACTORS.back(FACTORS.into(3.5)) == pytest.approx(3.5)


def test_a_number_begins_with_the_median_of_its_first_five_values_or_with_the_references():
    history = history_of([3.0, 9.0, 3.2, 2.8])
    assert beginning(history, Facts(), KEY) is None
    history.push(Step(4, {KEY: 3.1}))
    history.push(Step(5, {KEY: 0.1}))
    assert beginning(history, Facts(), KEY) == 3.1
    assert beginning(history, Facts(reference={KEY: 4.0}), KEY) == 4.0
    assert newest(history, KEY) == 2.8


def test_a_held_out_number_begins_and_stands_with_single_values():
    history = history_of([3.0, 2.0], "eval/" + KEY)
    assert beginning(history, Facts(), "eval/" + KEY) == 3.0
    assert newest(history, "eval/" + KEY) == 2.0


def test_only_finite_values_are_fresh():
    history = history_of([1.0, math.nan])
    assert fresh(history, KEY) is None
    assert fresh(history, "reward/proxy") is None
    assert fresh(history_of([1.0]), KEY) == 1.0


def test_a_contrast_is_the_difference_of_two_windows():
    assert contrast(history_of(range(7))[KEY], 4) is None
    found = contrast(history_of([9.0, 1.0, 3.0, 1.0, 3.0, 5.0, 7.0, 5.0, 7.0])[KEY], 4)
    assert (found.before, found.newest) == (2.0, 6.0)


def test_windows_without_a_spread_differ_for_certain_or_not_at_all():
    assert contrast(history_of([1.0] * 10 + [2.0] * 10)[KEY], 10).score == math.inf
    assert contrast(history_of([1.0] * 20)[KEY], 10).score == 0.0


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
    found = [contrast(history_of(values)[KEY], window) for values in series]
    spread = np.std([one.newest - one.before for one in found])
    assert low < np.median([one.stderr for one in found]) / spread < high


def test_a_trend_is_not_taken_for_noise():
    noise = np.random.default_rng(2).standard_normal(100)
    flat, rising = (contrast(history_of(noise + slope * np.arange(100))[KEY], 50) for slope in (0.0, 0.2))
    assert rising.stderr == pytest.approx(flat.stderr, rel=0.01)
    assert rising.newest - rising.before == pytest.approx(flat.newest - flat.before + 10.0)
