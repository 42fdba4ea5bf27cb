"""Which checkpoints to distrust: those within the window of an alarm.

A window opens where the alarm began, not where it was noticed, and closes where its end was recorded. A checkpoint
after `n` updates holds the weights that step `n` measures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kleash.runs.records import Event

SUSPICIOUS = ("warning", "critical")


@dataclass(frozen=True)
class Window:
    """Steps under one alarm, both ends included; `last` is None while it goes on."""

    first: int
    last: int | None
    event: Event

    def holds(self, step: int) -> bool:
        """Whether a step lies in the window."""
        return self.first <= step and (self.last is None or step <= self.last)


def suspect_windows(events: Iterable[Event]) -> list[Window]:
    """Return the window of every warning and critical alarm, in the order in which they began to be told.

    An alarm that grows from a warning to critical keeps the place where it began and takes the later event.
    """
    open_windows: dict[str, Window] = {}
    closed: list[Window] = []
    for event in events:
        window = open_windows.get(event.name)
        if event.ends:
            if window is not None:
                closed.append(Window(window.first, max(window.first, event.step - 1), window.event))
                del open_windows[event.name]
        elif event.began is not None and event.severity in SUSPICIOUS:
            first = event.began if window is None else min(window.first, event.began)
            open_windows[event.name] = Window(first, None, event)
    return sorted([*closed, *open_windows.values()], key=lambda window: window.event.step)


def suspicions(events: Iterable[Event], step: int) -> list[Event]:
    """Return the alarms that a checkpoint of `step` lies under; empty for a trusted one."""
    return [window.event for window in suspect_windows(events) if window.holds(step)]
