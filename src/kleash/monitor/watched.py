"""What a Kleash run's record says: whether it was watched, what its alarms are, which steps measured a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kleash.monitor.suspects import Window
from kleash.runs.records import Event


def alarms_among(events: Iterable[Event]) -> list[Event]:
    """Return the events of alarms: what was done, or merely happened, has no beginning."""
    return [event for event in events if event.began is not None]


def was_watched(settings: Mapping[str, Any], events: Iterable[Event]) -> bool:
    """Whether a Kleash run was trained under the eyes of a monitor.

    A run from before there was one has neither the settings of it nor an alarm.

    Args:
        settings: of the run; those of the callback name its ladder.
        events: of the run.
    """
    callback = settings.get("callback")
    by_callback = isinstance(callback, Mapping) and "ladder" in callback
    return "monitor" in settings or by_callback or bool(alarms_among(events))


def measured_in(settings: Mapping[str, Any], checkpoint: int) -> tuple[int, ...]:
    """Return the steps of a Kleash run that measured the weights of the checkpoint after so many updates.

    That is the step of its number. In a run of the callback the next step as well: there the trainer's own numbers are
    measured before the step's update.
    """
    return (checkpoint, checkpoint + 1) if "callback" in settings else (checkpoint,)


def windows_over(windows: Iterable[Window], steps: Collection[int]) -> list[Window]:
    """Return the windows of alarms that hold one of some steps."""
    return [window for window in windows if any(window.holds(step) for step in steps)]
