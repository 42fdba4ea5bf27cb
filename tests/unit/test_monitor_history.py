"""What rules see of a run: tracks of finite numbers, and the newest step as it is."""

import math

from kleash.monitor.history import History
from kleash.runs.records import Step


def seen(*steps):
    history = History()
    for step in steps:
        history.push(step)
    return history


def test_before_the_first_step_there_is_nothing():
    history = History()
    assert (history.now, dict(history.fresh), list(history.keys())) == (-1, {}, [])
    assert history.latest("kl/exact_per_sequence") is None
    assert len(history["kl/exact_per_sequence"]) == 0


def test_a_track_has_the_steps_values_and_errors_of_its_key_alone():
    history = seen(Step(0, {"a": 1.0, "b": 5.0}, {"a": 0.5}), Step(1, {"b": 6.0}), Step(2, {"a": 2.0}))
    track = history["a"]
    assert (track.steps().tolist(), track.values().tolist()) == ([0.0, 2.0], [1.0, 2.0])
    assert track.stderrs()[0] == 0.5
    assert math.isnan(track.stderrs()[1])
    assert (track.steps(1).tolist(), track.values(5).tolist()) == ([2.0], [1.0, 2.0])
    assert (history.now, history.fresh) == (2, {"a": 2.0})


def test_a_broken_number_is_fresh_and_in_no_track():
    history = seen(Step(0, {"a": 1.0}), Step(1, {"a": math.nan, "b": math.inf, "c": None}))
    assert math.isnan(history.fresh["a"])
    assert history.fresh.keys() == {"a", "b"}
    assert history["a"].values().tolist() == [1.0]
    assert history.latest("a") == 1.0
    assert list(history.keys()) == ["a"]


def test_a_long_track_keeps_every_value():
    history = seen(*(Step(i, {"a": i * 0.5}, {"a": i * 0.25}) for i in range(1000)))
    assert history["a"].values().tolist() == [i * 0.5 for i in range(1000)]
    assert history["a"].stderrs(2).tolist() == [249.5, 249.75]


def test_the_first_key_that_a_run_has():
    history = seen(Step(0, {"b": 1.0, "c": 2.0}))
    assert history.first_of(["a", "b", "c"]) == "b"
    assert history.first_of(["a"]) is None
