"""How a logged run is: the alarms that the rules raise over its steps, and the checkpoints under them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kleash.monitor.log import Log
from kleash.monitor.logs.trainers import KLEASH
from kleash.monitor.monitor import Monitor
from kleash.monitor.rule import Facts
from kleash.monitor.suspects import suspicions
from kleash.runs.records import SEVERITIES, Checkpoint, Event


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
    """What the rules found. Alarms that go on are first, then those that are over; the severest lead."""

    alarms: Sequence[Alarm]
    suspects: Sequence[Suspect]

    def raised(self, least: str) -> list[Alarm]:
        """Return the alarms of at least a severity."""
        rank = SEVERITIES.index(least)
        return [alarm for alarm in self.alarms if SEVERITIES.index(alarm.event.severity) >= rank]


def examine(log: Log, facts: Facts) -> Health:
    """Show a log's steps to every rule.

    Args:
        log: the run.
        facts: what is known of it besides its numbers.
    """
    events = Monitor(facts).replay(log.steps)
    found = (Suspect(checkpoint, _under(log, checkpoint, events)) for checkpoint in log.checkpoints)
    return Health(alarms_of(events), [suspect for suspect in found if suspect.events])


def _under(log: Log, checkpoint: Checkpoint, events: Sequence[Event]) -> list[Event]:
    """Return the alarms over a checkpoint's weights, which others than Kleash measure in the step after its number."""
    later = 0 if log.source == KLEASH else 1
    return suspicions(events, checkpoint.step + later)


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
