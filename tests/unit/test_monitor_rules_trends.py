import math

import pytest

from kleash.monitor.history import History
from kleash.monitor.rule import Facts
from kleash.monitor.rules.trends import (
    DIFFERENCES,
    FACTORS,
    POSITIVE_FACTORS,
    Limits,
    Watch,
    began,
    beginning,
    factors,
    fresh,
    newest,
    span,
)
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
    assert beginning(history[KEY], Facts(), KEY) is None
    history.push(Step(4, {KEY: 3.1}))
    history.push(Step(5, {KEY: 0.1}))
    assert beginning(history[KEY], Facts(), KEY) == 3.1
    assert beginning(history[KEY], Facts(reference={KEY: 4.0}), KEY) == 4.0
    assert newest(history[KEY], KEY) == 2.8


def test_a_held_out_number_begins_and_stands_with_single_values():
    history = history_of([3.0, 2.0], "eval/" + KEY)
    assert beginning(history["eval/" + KEY], Facts(), "eval/" + KEY) == 3.0
    assert newest(history["eval/" + KEY], "eval/" + KEY) == 2.0


def test_only_finite_values_are_fresh():
    history = history_of([1.0, math.nan])
    assert fresh(history, KEY) is None
    assert fresh(history, "reward/proxy") is None
    assert fresh(history_of([1.0]), KEY) == 1.0
