"""Which checkpoints to distrust: those within the window of an alarm.

A window opens where the alarm began and closes where it was last found, not where either was noticed. A checkpoint
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
                closed.append(Window(window.first, max(window.first, _last_step(event)), window.event))
                del open_windows[event.name]
        elif event.began is not None and event.severity in SUSPICIOUS:
            first = event.began if window is None else min(window.first, event.began)
            open_windows[event.name] = Window(first, None, event)
    return sorted([*closed, *open_windows.values()], key=lambda window: window.event.step)


def calm(events: Iterable[Event], step: int, steps: int) -> bool:
    """Return whether no warning and no critical alarm was found in a step and the `steps` before it."""
    return all(window.last is not None and window.last < step - steps for window in suspect_windows(events))


def suspicions(events: Iterable[Event], step: int) -> list[Event]:
    """Return the alarms that a checkpoint of `step` lies under; empty for a trusted one."""
    return [window.event for window in suspect_windows(events) if window.holds(step)]


def _last_step(end: Event) -> int:
    """Return the last step under an alarm that is over."""
    last = end.values.get("last")
    return end.step - 1 if last is None else int(last)
