"""The ladder: one rung at a time, with time between them, and back at the bottom when it is quiet."""

import json

from kleash.monitor.ladder import Ladder
from kleash.runs.records import Event

RUNGS = ("tighten", "tighten", "roll_back", "stop")


def alarm(severity="critical", name="kl/spike"):
    return Event(0, severity, name, "", began=0)


def climbed(ladder, steps, last):
    """(step, kind) of each action when alarms are found in `steps`."""
    found = [(step, ladder.decide([alarm()] if step in steps else [], step)) for step in range(last + 1)]
    return [(step, action.kind) for step, action in found if action is not None]


def test_an_alarm_that_goes_on_leads_up_a_rung_at_a_time():
    ladder = Ladder(RUNGS, act_on="critical", patience=10)
    assert climbed(ladder, range(3, 100), 99) == [(3, "tighten"), (13, "tighten"), (23, "roll_back"), (33, "stop")]


def test_one_that_is_cured_leads_no_further():
    ladder = Ladder(RUNGS, act_on="critical", patience=10)
    assert climbed(ladder, range(3, 12), 60) == [(3, "tighten")]


def test_after_quiet_steps_the_ladder_starts_over():
    ladder = Ladder(RUNGS, act_on="critical", patience=10)
    assert climbed(ladder, {3, 13, 23}, 40)[-1] == (23, "roll_back")
    again = Ladder(("tighten", "stop"), act_on="critical", patience=10)
    assert climbed(again, {3, 14}, 40) == [(3, "tighten"), (14, "tighten")]
    before = Ladder(("tighten", "stop"), act_on="critical", patience=10)
    assert climbed(before, {3, 13}, 40) == [(3, "tighten"), (13, "stop")]


def test_a_new_alarm_waits_for_what_was_done_about_the_last():
    ladder = Ladder(RUNGS, act_on="critical", patience=5)
    assert ladder.decide([alarm(name="a")], 0).alarm.name == "a"
    assert ladder.decide([alarm(name="b")], 4) is None
    assert ladder.decide([alarm(name="b")], 5).alarm.name == "b"


def test_only_alarms_that_are_severe_enough_count():
    strict = Ladder(RUNGS, act_on="warning", patience=5)
    assert Ladder(RUNGS, act_on="critical", patience=5).decide([alarm("warning")], 0) is None
    assert strict.decide([alarm("info")], 0) is None
    action = strict.decide([alarm("warning", "a"), alarm("critical", "b"), alarm("critical", "c")], 1)
    assert (action.alarm.name, action.rung, action.rungs) == ("b", 1, 4)


def test_without_rungs_nothing_is_done():
    assert climbed(Ladder((), act_on="critical", patience=1), range(10), 9) == []


def test_a_rung_that_cannot_be_taken_leads_to_the_next_at_once():
    ladder = Ladder(("roll_back", "stop"), act_on="critical", patience=5)
    first = ladder.decide([alarm()], 3)
    second = ladder.skip(first, 3)
    assert (second.kind, second.rung, second.alarm) == ("stop", 2, first.alarm)
    assert ladder.skip(second, 3) is None


def test_a_ladder_goes_on_from_its_saved_state():
    steps = {3, 4, 5, 13, 23, 24, 40, 41}
    whole = Ladder(RUNGS, act_on="critical", patience=10)
    expected = climbed(whole, steps, 60)
    for stop in (4, 14, 30):
        first, second = (Ladder(RUNGS, act_on="critical", patience=10) for _ in range(2))
        done = climbed(first, steps, stop)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        rest = [(step, second.decide([alarm()] if step in steps else [], step)) for step in range(stop + 1, 61)]
        assert done + [(step, action.kind) for step, action in rest if action] == expected


def test_after_a_roll_back_it_does_not_start_over_before_the_failure_can_have_returned():
    """Back from step 20 to 8: the 12 steps are trained again by step 32, and 5 quiet steps follow."""
    for returns, leads_to in ((36, "stop"), (37, "stop"), (38, "roll_back")):
        ladder = Ladder(("roll_back", "stop"), act_on="critical", patience=5)
        assert ladder.decide([alarm()], 20).kind == "roll_back"
        ladder.rolled_back(20, 8)
        saved = json.loads(json.dumps(ladder.state_dict()))
        ladder = Ladder(("roll_back", "stop"), act_on="critical", patience=5)
        ladder.load_state_dict(saved)
        assert [ladder.decide([], step) for step in range(21, returns)] == [None] * (returns - 21)
        assert ladder.decide([alarm()], returns).kind == leads_to


def test_a_state_from_before_roll_backs_were_noted_is_read():
    ladder = Ladder(RUNGS, act_on="critical", patience=5)
    ladder.load_state_dict({"climbed": 1, "last_rung": 3, "last_alarm": 3})
    assert ladder.decide([alarm()], 8).rung == 2
