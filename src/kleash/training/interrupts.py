"""Ctrl-C and SIGTERM: the first asks the run to end after the step, the second ends it now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """Within the block, `requested` turns True at the first signal; the second raises KeyboardInterrupt."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        """Tell `notice` in words when a signal comes."""
        self.requested = False
        self._notice, self._before = notice, dict[int, Any]()

    def __enter__(self) -> Interrupts:
        """Take the signals, in the main thread only: elsewhere Python allows none."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._notice("interrupted: finishing this step, then saving a checkpoint; once more to stop at once")
