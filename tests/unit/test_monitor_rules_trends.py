import math

import numpy as np
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


def history_of(values, key=KEY, first=0, every=1):
    history = History()
    for number, value in enumerate(values):
        history.push(Step(first + number * every, {key: value}))
    return history


def looks(watch, values, key=KEY, every=1):
    """Return what a watch says of each value."""
    history, found = History(), []
    for number, value in enumerate(values):
        history.push(Step(number * every, {key: value}))
        found.append(watch.look(history, Facts()))
    return found


def growing(scale=FACTORS, key=KEY):
    """Return a watch of what doubles since the start, or grows by half of the baseline."""
    return Watch(key, scale, from_start=factors(2.0, 6.0), from_baseline=factors(1.5, 2.5))


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


def test_a_reference_that_is_no_number_is_no_start():
    history = history_of([3.0] * 5)
    assert beginning(history[KEY], Facts(reference={KEY: math.nan}), KEY) == 3.0


def test_zeros_do_not_say_where_a_number_began_that_is_counted_in_factors():
    assert beginning(history_of([0.0] * 9 + [3.0] * 4)[KEY], Facts(), KEY, above=0.0) is None
    assert beginning(history_of([0.0] * 9 + [3.0] * 5)[KEY], Facts(), KEY, above=0.0) == 3.0
    assert beginning(history_of([0.0] * 5)[KEY], Facts(), KEY) == 0.0


@pytest.mark.parametrize(
    ("count", "first", "every", "window", "words"),
    [
        (100, 0, 1, 10, "the last 10 steps"),
        (361, 0, 10, 100, "the last 100 measurements (steps 2,610 to 3,600)"),
        (3, 1, 1, 10, "the last 3 steps"),
        (3, 5, 10, 10, "the last 3 measurements (steps 5 to 25)"),
        (20, 0, 50, 1, "step 950"),
    ],
)
def test_a_span_is_told_in_steps_only_where_every_step_was_measured(count, first, every, window, words):
    assert span(history_of([1.0] * count, first=first, every=every)[KEY], window) == words


def test_a_move_begins_with_its_first_value_and_one_odd_value_does_not_end_it():
    def step(values, last=None):
        return began(history_of(values, first=100)[KEY], lambda value: value >= 2.0, last)

    assert step([1.0, 1.0, 3.0, 3.0]) == 102
    assert step([1.0, 3.0, 1.0, 3.0, 3.0]) == 101
    assert step([3.0, 1.0, 1.0, 3.0, 1.0]) == 103, "two in a row end it"
    assert step([1.0, 1.0]) == 101, "a move that no value shows is the newest step's"
    assert step([3.0] * 9, last=3) == 106


@pytest.mark.parametrize("every", [1, 10])
def test_the_first_bad_step_is_the_one_in_which_it_began(every):
    watch = Watch(KEY, DIFFERENCES, from_start=Limits(1.0, 3.0), from_baseline=Limits(1.0, 3.0))
    found = looks(watch, [0.2] * 51 + [5.0] * 19, every=every)
    assert found[51] is None, "a single value may be odd"
    assert found[52].severity == "critical"
    assert {one.began for one in found[52:]} == {51 * every}


def test_where_not_every_step_is_measured_the_start_says_so():
    assert looks(growing(), [2.0] * 5 + [5.0] * 3, every=10)[-1].against.startswith(
        "its first 5 measurements (steps 0 to 40) (fixed limit: fewer than 230 measurements so far"
    )
    after_zeros = looks(growing(POSITIVE_FACTORS), [0.0] * 6 + [2.0] * 5 + [5.0] * 3)[-1]
    assert after_zeros.against.startswith("its first 5 measurements above 0 (steps 6 to 10) (fixed limit")


def test_what_is_0_where_nothing_was_measured_is_judged_without_its_zeros():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(3000) < 0.7, 0.0, 0.3 * np.exp(0.2 * rng.standard_normal(3000)))
    values[:40] = 0.0
    assert looks(growing(POSITIVE_FACTORS), values) == [None] * 3000
    raised = looks(growing(POSITIVE_FACTORS), [*values, *[0.0, 1.4] * 10])
    assert raised[-1].level == pytest.approx(0.3, rel=0.05)
    assert raised[-1].now == pytest.approx(1.4)


def settling(level, steps, by=100):
    """Return a number that goes from 200 to a level in a hundred steps and stays there, but for noise."""
    time = np.arange(steps)
    noise = np.exp(0.05 * np.random.default_rng(1).standard_normal(steps))
    return (200 + (level - 200) * np.minimum(1.0, time / by)) * noise


def test_a_warning_of_the_fixed_limit_lapses_where_the_number_has_settled():
    watch = growing()
    found = looks(watch, settling(450.0, 1000, by=200))
    warned = [step for step, one in enumerate(found) if one is not None]
    assert found[warned[0]].severity == "warning"
    assert 120 < warned[0] < 200
    assert 300 < warned[-1] < 400, "the baseline was there at 230, but the number still moved at 200"
    moved_again = looks(growing(), [*settling(450.0, 1000), *[900.0] * 20])
    assert moved_again[-1].against == "its baseline"
    assert moved_again[-1].level == pytest.approx(450.0, rel=0.05)


def test_a_warning_of_the_fixed_limit_goes_on_while_the_number_has_not_settled():
    found = looks(growing(), settling(1100.0, 400, by=500))
    assert found[-1].severity == "warning"
    assert found[-1].against.endswith("(fixed limit: it has moved since and not settled)")


def test_a_critical_fixed_limit_does_not_lapse():
    found = looks(growing(), settling(1500.0, 1500))
    assert found[-1].severity == "critical"
    assert found[-1].against == "its first 5 steps (fixed limit)"


def test_what_is_measured_under_an_alarm_of_the_baseline_stays_out_of_it():
    found = looks(growing(), [*settling(200.0, 400), *[350.0] * 2000])
    assert found[-1].severity == "warning"
    assert found[-1].level == pytest.approx(200.0, rel=0.05)
    assert found[-1].began == 400
