"""Which checkpoints lie under an alarm, from the events alone."""

import pytest

from kleash.monitor.suspects import calm, suspect_windows, suspicions
from kleash.runs.records import Event


def began(step, name="kl/spike", severity="warning", at=None):
    return Event(step, severity, name, "", began=step if at is None else at)


def over(step, last=None, name="kl/spike"):
    return Event(step, "info", name, "", values={} if last is None else {"last": last}, ends=True)


def windows(*events):
    return [(window.first, window.last, window.event.name) for window in suspect_windows(events)]


def test_a_window_opens_where_the_alarm_began_and_closes_where_it_was_last_found():
    assert windows(began(8, at=5), over(32, last=12)) == [(5, 12, "kl/spike")]


def test_an_end_that_names_no_last_step_is_the_first_outside():
    assert windows(began(8, at=5), over(13)) == [(5, 12, "kl/spike")]


def test_an_alarm_that_goes_on_has_no_last_step():
    assert windows(began(8)) == [(8, None, "kl/spike")]


def test_one_that_grows_is_one_window_with_the_later_event():
    (window,) = suspect_windows([began(8), began(9, severity="critical", at=8)])
    assert (window.first, window.last, window.event.severity) == (8, None, "critical")


def test_one_that_comes_back_has_a_window_of_its_own():
    assert windows(began(1), over(4, last=2), began(9)) == [(1, 2, "kl/spike"), (9, None, "kl/spike")]


def test_windows_of_several_alarms_stand_in_the_order_they_were_told():
    events = [began(1, "a"), began(2, "b"), over(5, last=3, name="b"), over(6, last=4, name="a")]
    assert windows(*events) == [(1, 4, "a"), (2, 3, "b")]


@pytest.mark.parametrize(
    "event", [began(3, severity="info"), Event(3, "critical", "action/stop", ""), over(3)], ids=["info", "act", "end"]
)
def test_what_is_worth_knowing_or_was_done_makes_nothing_suspect(event):
    assert windows(event) == []
    assert suspicions([event], 3) == []


def test_a_checkpoint_is_suspect_within_both_ends_of_a_window():
    events = [began(8, at=5), over(32, last=12), began(10, "kl/ramp")]
    assert {step: [event.name for event in suspicions(events, step)] for step in (4, 5, 12, 13)} == {
        4: [],
        5: ["kl/spike"],
        12: ["kl/spike", "kl/ramp"],
        13: ["kl/ramp"],
    }


def test_calm_is_a_while_after_the_last_alarm():
    events = [began(8, at=5), over(32, last=12)]
    assert [calm(events, step, 10) for step in (12, 22, 23)] == [False, False, True]
    assert not calm([began(1)], 1000, 10)
    assert calm([], 0, 10)
