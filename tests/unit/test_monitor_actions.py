"""What an action says of itself in the record."""

import pytest

from kleash.monitor import actions
from kleash.monitor.actions import Action
from kleash.runs.records import Event

ALARM = Event(12, "critical", "kl/spike", "KL is 40 nats.", {"kl": 40.0}, began=9)
ACTION = Action("tighten", 2, 3, ALARM)


def test_the_reason_names_the_alarm_since_when_and_the_rung():
    assert ACTION.reason == "kl/spike is critical since step 9; rung 2 of 3"


@pytest.mark.parametrize(
    ("event", "severity", "name", "values", "message"),
    [
        (
            actions.tightened(12, ACTION, "target 6 -> 4.2 nats per sequence", 6.0, 4.2),
            "warning", "action/tighten", {"before": 6.0, "after": 4.2}, "target 6 -> 4.2 nats per sequence: ",
        ),
        (
            actions.rolled_back(12, ACTION, 5),
            "warning", "action/roll_back", {"to": 5},
            "weights and optimiser are those of checkpoint 5 from step 13 on: ",
        ),
        (
            actions.not_rolled_back(12, ACTION),
            "warning", "action/not_rolled_back", {},
            "no checkpoint on disk is free of alarms and can be read, so the ladder goes on to its next rung: ",
        ),
        (actions.stopped(12, ACTION), "critical", "action/stop", {}, "the run ends here: "),
    ],
)  # fmt: skip
def test_an_action_is_an_event_that_makes_nothing_suspect(event, severity, name, values, message):
    assert event == Event(12, severity, name, message + ACTION.reason + ".", values)
    assert event.began is None


def test_a_checkpoint_that_cannot_be_read_has_its_reason():
    message = "checkpoint 8 cannot be gone back to and counts as not there: it is torn."
    assert actions.unreadable(12, 8, "it is torn") == Event(
        12, "warning", "action/unreadable", message, {"checkpoint": 8}
    )


def test_a_target_that_was_raised_has_the_reason_of_its_rule():
    event = actions.loosened(20, "target raised 6 -> 7: it has stalled.", 6.0, 7.0)
    assert event == Event(
        20, "info", "action/loosen", "target raised 6 -> 7: it has stalled.", {"before": 6, "after": 7}
    )
