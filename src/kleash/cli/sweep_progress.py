"""Watching a sweep: a live table with a line a point on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kleash.cli.lines import LABEL, labelled, narrow
from kleash.cli.runs import RESULTS, REWARD
from kleash.cli.screen import screen
from kleash.errors import RunDirError
from kleash.report.catalogue import HELD_OUT, unit
from kleash.report.run_summary import algorithm, controlled_key
from kleash.report.wording import number, with_error
from kleash.runs.reader import RunReader
from kleash.sweep.points import Point
from kleash.sweep.record import Sweep
from kleash.sweep.scheduler import State

READ_SECONDS = 1.0
PLAIN_LINES = 10
"""Lines of progress that a point has where there is no terminal."""
COLUMNS = ("point", "state", "step", "result", "KL", "beta")
STYLES = {State.RUNNING: "bold", State.FAILED: "bold red", State.STOPPED: "yellow", State.FINISHED: "green"}


@dataclass(frozen=True)
class Progress:
    """How far a point is, and its last numbers in words."""

    step: int
    steps: int
    result: str
    kl: str
    beta: str

    @property
    def count(self) -> str:
        """Steps done, of how many."""
        return f"{self.step}/{self.steps}"


def read_progress(sweep: Sweep, point: Point) -> Progress | None:
    """Read a point's run directory; None where it has recorded nothing yet."""
    try:
        with RunReader(sweep.run_dir(point)) as reader:
            config = reader.config
            kl_key = controlled_key(config)
            name, *keys = RESULTS.get(algorithm(config), REWARD)
            kl = _last(reader, kl_key, HELD_OUT + kl_key)
            return Progress(
                step=reader.measured("time/total"),
                steps=int(config["training"]["steps"]),
                result=f"{name} {_last(reader, *keys)}",
                kl=kl if kl == number(None) else f"{kl} {unit(kl_key)}",
                beta=_last(reader, "control/beta"),
            )
    except RunDirError:
        return None


def points_table(sweep: Sweep, states: Mapping[Point, State], progress: Mapping[Point, Progress]) -> Table:
    """Return a line a point."""
    table = Table(*COLUMNS, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    dash = number(None)
    for point in sweep.points:
        found, state = progress.get(point), states[point]
        numbers = (dash,) * 4 if found is None else (found.count, found.result, found.kl, found.beta)
        table.add_row(point.label, state.value, *numbers, style=STYLES.get(state, ""))
    return table


@contextmanager
def watching_sweep(sweep: Sweep) -> Iterator[Watcher]:
    """Watch on the terminal, or in plain lines where standard output is none."""
    console = screen()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Plain(sweep, console)
        return
    terminal = Terminal(sweep, console)
    with terminal.live:
        yield terminal


class Watcher(ABC):
    """Prints what happens to points, and reads how far they are from time to time."""

    def __init__(self, sweep: Sweep, console: Console) -> None:
        self._sweep, self._console = sweep, console
        self._progress: dict[Point, Progress] = {}
        self._next_read = 0.0

    def fact(self, text: str) -> None:
        """Print the line at once."""
        self._console.print(text, soft_wrap=True)

    def moved(self, point: Point, state: State, said: str) -> None:
        """Print what has become of the point, and why; waiting is not worth a line."""
        self._read(point)
        if state is not State.WAITING:
            label = state.value if len(state.value) <= LABEL else "elsewhere"
            self.fact(labelled(label, point.label + (f": {said}" if said else "")))

    def show(self, states: Mapping[Point, State]) -> None:
        """Read the runs of the points that are being trained, about once a second."""
        if time.monotonic() < self._next_read:
            return
        for point, state in states.items():
            if state in (State.RUNNING, State.ELSEWHERE):
                self._read(point)
        self._next_read = time.monotonic() + READ_SECONDS
        self._draw(states)

    def _read(self, point: Point) -> None:
        found = read_progress(self._sweep, point)
        if found is not None:
            self._progress[point] = found

    @abstractmethod
    def _draw(self, states: Mapping[Point, State]) -> None:
        """Show what was read."""


@final
class Plain(Watcher):
    """Lines without control characters, for logs and pipes: about ten for each point, and one for all that happens."""

    def __init__(self, sweep: Sweep, console: Console) -> None:
        super().__init__(sweep, console)
        self._said: dict[Point, int] = {}

    def _draw(self, states: Mapping[Point, State]) -> None:
        for point, found in self._progress.items():
            tenth = found.step * PLAIN_LINES // found.steps
            if states[point] is State.RUNNING and tenth > self._said.get(point, 0):
                self._said[point] = tenth
                self.fact(labelled("step", f"{found.count}  {point.label}: {found.result}, KL {found.kl}"))


@final
class Terminal(Watcher):
    """What happens scrolls by; below it a line a point stays in place.

    Attributes:
        live: the part of the screen that is redrawn; a context manager that the caller enters.
    """

    def __init__(self, sweep: Sweep, console: Console) -> None:
        super().__init__(sweep, console)
        self.live = Live(console=console, transient=True)

    def _draw(self, states: Mapping[Point, State]) -> None:
        self.live.update(points_table(self._sweep, states, self._progress))


def _last(reader: RunReader, *keys: str) -> str:
    """Return the last value of the first of some metrics that the run has measured."""
    points: Any = next((found for key in keys if (found := reader.series(key))), None)
    return number(None) if points is None else narrow(with_error(*points[-1][1:]))
