"""Whether the rules watched a run while it was trained: only then does its record say how it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
