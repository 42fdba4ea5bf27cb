"""What can be done about an alarm, and the events that say that it was done and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kleash.runs.records import Event, Severity

Kind = Literal["tighten", "roll_back", "stop"]

TIGHTEN = "action/tighten"
ROLL_BACK = "action/roll_back"
NOT_ROLLED_BACK = "action/not_rolled_back"
UNREADABLE = "action/unreadable"
STOP = "action/stop"
LOOSEN = "action/loosen"


@dataclass(frozen=True)
class Action:
    """A rung of the ladder that an alarm has led to.

    Args:
        kind: what to do.
        rung: which rung it is, counted from 1.
        rungs: how many the ladder has.
        alarm: the event that it answers.
    """

    kind: Kind
    rung: int
    rungs: int
    alarm: Event

    @property
    def reason(self) -> str:
        """Why, in words: the alarm, since when, and the rung."""
        began = "" if self.alarm.began is None else f" since step {self.alarm.began}"
        return f"{self.alarm.name} is {self.alarm.severity}{began}; rung {self.rung} of {self.rungs}"


def tightened(step: int, action: Action, moved: str, before: float, after: float) -> Event:
    """Return the event of a leash that was made shorter; `moved` says from where to where."""
    return _event(step, "warning", TIGHTEN, f"{moved}: {action.reason}.", {"before": before, "after": after})


def rolled_back(step: int, action: Action, to: int) -> Event:
    """Return the event of weights that went back to the checkpoint of step `to` after `step` was trained."""
    message = f"weights and optimiser are those of checkpoint {to} from step {step + 1} on: {action.reason}."
    return _event(step, "warning", ROLL_BACK, message, {"to": to})


def not_rolled_back(step: int, action: Action) -> Event:
    """Return the event of a roll back that had nowhere to go."""
    nowhere = "no checkpoint on disk is free of alarms and can be read, so the ladder goes on to its next rung"
    message = f"{nowhere}: {action.reason}."
    return _event(step, "warning", NOT_ROLLED_BACK, message, {})


def unreadable(step: int, checkpoint: int, why: str) -> Event:
    """Return the event of a trusted checkpoint that cannot be gone back to; `why` is the error in words."""
    message = f"checkpoint {checkpoint} cannot be gone back to and counts as not there: {why}."
    return _event(step, "warning", UNREADABLE, message, {"checkpoint": checkpoint})


def stopped(step: int, action: Action) -> Event:
    """Return the event of a run that is ended."""
    return _event(step, "critical", STOP, f"the run ends here: {action.reason}.", {})


def loosened(step: int, reason: str, before: float, after: float) -> Event:
    """Return the event of a target that was raised; `reason` is the rule's own."""
    return _event(step, "info", LOOSEN, reason, {"before": before, "after": after})


def _event(step: int, severity: Severity, name: str, message: str, values: Mapping[str, float | None]) -> Event:
    return Event(step=step, severity=severity, name=name, message=message, values=values)
