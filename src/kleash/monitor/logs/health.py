"""How a logged run is: the alarms of its record, or of the rules over its steps, and the checkpoints under them.

A Kleash run that was watched is what its record says: it is not judged a second time, by rules that may have changed,
without the roll backs between its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kleash.monitor.log import Log
from kleash.monitor.logs.naming import DRIFT
from kleash.monitor.logs.trainers import KLEASH
from kleash.monitor.monitor import Monitor
from kleash.monitor.rule import Facts
from kleash.monitor.suspects import suspect_windows
from kleash.monitor.watched import alarms_among, measured_in, was_watched, windows_over
from kleash.runs.records import SEVERITIES, Checkpoint, Event

CHANGE_MEASUREMENTS = 230
"""About as many measurements of a series as a rule on its changes needs before it can say anything."""


@dataclass(frozen=True)
class Alarm:
    """An alarm from its start to its end.

    Args:
        event: what told of it at its highest severity.
        noticed: the step in which it was first told.
        over: the first step after it; None while it goes on.
    """

    event: Event
    noticed: int
    over: int | None


@dataclass(frozen=True)
class Suspect:
    """A checkpoint that lies under warnings or critical alarms."""

    checkpoint: Checkpoint
    events: Sequence[Event]


@dataclass(frozen=True)
class Health:
    """How a run is.

    Args:
        alarms: those that go on first, then those that are over; the severest lead.
        suspects: checkpoints under them.
        from_record: whether the run itself recorded the alarms while it was trained; else the rules were replayed.
        notes: what the rules could not look at.
    """

    alarms: Sequence[Alarm]
    suspects: Sequence[Suspect]
    from_record: bool = False
    notes: Sequence[str] = ()

    def raised(self, least: str) -> list[Alarm]:
        """Return the alarms of at least a severity."""
        rank = SEVERITIES.index(least)
        return [alarm for alarm in self.alarms if SEVERITIES.index(alarm.event.severity) >= rank]


def examine(log: Log, facts: Facts) -> Health:
    """Return how a run is: by its own record if it was watched, else by showing its steps to every rule.

    Args:
        log: the run.
        facts: what the rules may know of it besides its numbers.
    """
    from_record = has_record(log)
    events = alarms_among(log.events) if from_record else Monitor(facts).replay(log.steps)
    found = (Suspect(checkpoint, _under(log, checkpoint, events)) for checkpoint in log.checkpoints)
    suspects = [suspect for suspect in found if suspect.events]
    return Health(alarms_of(events), suspects, from_record, _notes(log))


def has_record(log: Log) -> bool:
    """Whether a log is of a Kleash run that was watched while it was trained."""
    return log.source == KLEASH and was_watched(log.settings, log.events)


def _notes(log: Log) -> list[str]:
    """Say that a log is too short for the rules on changes of its KL; one without a KL says so elsewhere."""
    measured = Counter(key for step in log.steps for key, value in step.metrics.items() if value is not None)
    most = max((count for key, count in measured.items() if key.startswith(DRIFT)), default=0)
    if not 0 < most < CHANGE_MEASUREMENTS:
        return []
    return [
        f"Change rules need about {CHANGE_MEASUREMENTS} measurements of a series; this log has {most} of its KL, so "
        "that only fixed limits were applied."
    ]


def _under(log: Log, checkpoint: Checkpoint, events: Sequence[Event]) -> list[Event]:
    """Return the alarms over a checkpoint's weights, which others than Kleash measure in the step after its number."""
    kleash = log.source == KLEASH
    steps = measured_in(log.settings, checkpoint.step) if kleash else (checkpoint.step + 1,)
    return [window.event for window in windows_over(suspect_windows(events), steps)]


def alarms_of(events: Iterable[Event]) -> list[Alarm]:
    """Put the events of each alarm together: its start, how it grew, its end."""
    going: dict[str, Alarm] = {}
    over: list[Alarm] = []
    for event in events:
        alarm = going.pop(event.name, None)
        if not event.ends:
            going[event.name] = Alarm(event, event.step if alarm is None else alarm.noticed, None)
        elif alarm is not None:
            over.append(Alarm(alarm.event, alarm.noticed, event.step))
    return [*sorted(going.values(), key=_order), *sorted(over, key=_order)]


def _order(alarm: Alarm) -> tuple[int, int]:
    return -SEVERITIES.index(alarm.event.severity), alarm.noticed
