"""An alarm is told once when it begins, once when it grows and once when it is over."""

import pytest
from scripted_rules import Scripted

from kleash.errors import ConfigError
from kleash.monitor import monitor
from kleash.monitor.monitor import QUIET_STEPS, Monitor, check_names
from kleash.runs.records import Step


@pytest.fixture
def watching(monkeypatch):
    """A monitor with rules that find what the test says."""

    def make(*scripts, ignore=()):
        monkeypatch.setattr(monitor, "make_rules", lambda: [Scripted(*script) for script in scripts])
        return Monitor(ignore=ignore)

    return make


def observed(watcher, last, first=0):
    return [event for step in range(first, last + 1) for event in watcher.observe(Step(step, {"kl": 1.0}))]


def told(events):
    return [(event.step, event.severity, event.name, event.ends) for event in events]


def test_an_alarm_that_goes_on_is_told_once(watching):
    watcher = watching((dict.fromkeys(range(3, 9), "warning"), "kl/spike", 2))
    (event,) = observed(watcher, 8)
    assert (event.step, event.began, event.values, event.message) == (3, 2, {"at": 3.0}, "found at 3.")
    assert (event.causes[0].text, event.advice) == ("the test says so", "Read the test.")
    assert watcher.open_alarms == [event]


def test_one_that_grows_is_told_again_with_the_place_where_it_began(watching):
    watcher = watching(({3: "warning", 4: "warning", 5: "critical", 6: "warning"}, "kl/spike", None))
    events = observed(watcher, 6)
    assert told(events) == [(3, "warning", "kl/spike", False), (5, "critical", "kl/spike", False)]
    assert [event.began for event in events] == [3, 3]
    (still,) = watcher.open_alarms
    assert still.severity == "critical"


def test_it_is_over_after_some_quiet_steps_and_says_until_when_it_lasted(watching):
    watcher = watching(({3: "warning", 5: "warning"}, "kl/spike", None))
    events = observed(watcher, 5 + QUIET_STEPS)
    assert told(events) == [(3, "warning", "kl/spike", False), (5 + QUIET_STEPS, "info", "kl/spike", True)]
    assert (events[1].values, events[1].began) == ({"last": 5}, 3)
    assert events[1].message == "over since step 6: nothing was found in the 20 recorded steps since then."
    assert watcher.open_alarms == []


def test_one_that_flickers_is_told_once(watching):
    watcher = watching((dict.fromkeys(range(0, 100, QUIET_STEPS), "warning"), "kl/spike", None))
    assert told(observed(watcher, 99)) == [(0, "warning", "kl/spike", False)]


def test_pressing_are_those_that_were_found_in_the_newest_step_as_severe_as_there(watching):
    watcher = watching(({1: "critical", 2: "warning"}, "kl/spike", None), ({1: "warning"}, "kl/ramp", None))
    observed(watcher, 1)
    assert [(event.name, event.severity) for event in watcher.pressing] == [
        ("kl/spike", "critical"),
        ("kl/ramp", "warning"),
    ]
    observed(watcher, 2, first=2)
    assert [(event.name, event.severity, event.began) for event in watcher.pressing] == [("kl/spike", "warning", 1)]
    observed(watcher, 3, first=3)
    assert watcher.pressing == []
    assert len(watcher.open_alarms) == 2


def test_after_a_roll_back_all_is_forgotten(watching):
    watcher = watching(({3: "critical", 6: "critical"}, "kl/spike", 2))
    observed(watcher, 5)
    (end,) = watcher.rolled_back(5)
    assert (end.step, end.ends, end.values, end.began) == (5, True, {"last": 5}, 2)
    assert end.message == "over since step 6: the weights went back to an earlier checkpoint."
    assert watcher.open_alarms == watcher.pressing == []
    assert told(observed(watcher, 6, first=6)) == [(6, "critical", "kl/spike", False)]


def test_a_rule_can_be_left_out(watching):
    scripts = [({1: "warning"}, "kl/spike", None), ({1: "warning"}, "kl/ramp", None)]
    watcher = watching(*scripts, ignore=["kl/spike"])
    assert told(observed(watcher, 3)) == [(1, "warning", "kl/ramp", False)]


def test_replaying_a_run_gives_the_events_of_watching_it(watching):
    script = ({3: "warning", 5: "critical"}, "kl/spike", None)
    steps = [Step(step, {"kl": 1.0}) for step in range(40)]
    assert watching(script).replay(steps) == observed(watching(script), 39)


def test_a_name_that_no_rule_has(watching):
    watching(({}, "kl/spike", None), ({}, "kl/ramp", None))
    check_names(["kl/ramp"])
    with pytest.raises(ConfigError, match=r"names 'kl/spyke', and no rule is called so. Did you mean 'kl/spike'\?"):
        check_names(["kl/ramp", "kl/spyke"])
    with pytest.raises(ConfigError, match=r"There are: kl/ramp, kl/spike\."):
        check_names(["nothing"])
