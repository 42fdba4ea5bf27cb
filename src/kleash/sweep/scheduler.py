"""Runs the points of a sweep in child processes, a few at once, until each is at its end.

A child is `kleash train` in a session of its own, so that Ctrl-C reaches it only through here, once: it then finishes
its step and saves a checkpoint. It holds the point's lock. A point whose lock another process holds, such as the child
of a sweep that was killed, is waited for and then judged by its run directory like any other.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from kleash.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_USER, RunDirError
from kleash.sweep.machine import Share
from kleash.sweep.points import Point
from kleash.sweep.record import Sweep, freeze
from kleash.sweep.standing import Standing, standing
from kleash.training.interrupts import Interrupts

POLL_SECONDS = 0.3
TELLING = re.compile(r"kleash: |[\w.]*(Error|Exception)\b")
"""How the line begins that says why a process ended: a message of Kleash, or the end of a traceback."""
KLEASH = (sys.executable, "-P", "-m", "kleash")
"""-P: the working directory does not come before installed packages, as for the command `kleash` itself."""


class State(Enum):
    """Where a point is on its way, in the user's words."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "running elsewhere"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens to the point."""
        return self in (State.FINISHED, State.STOPPED, State.FAILED, State.INTERRUPTED)


class View(Protocol):
    """What looks on."""

    def fact(self, text: str) -> None:
        """Say something at once."""

    def moved(self, point: Point, state: State, said: str) -> None:
        """A point has come into a state; `said` is why, where that needs words."""

    def show(self, states: Mapping[Point, State]) -> None:
        """Look again: called a few times a second."""


@dataclass(frozen=True)
class Child:
    """A process that trains a point, at one of the places that the machine is divided into."""

    process: subprocess.Popen[bytes]
    place: int


class Scheduler:
    """Brings every point to its end.

    Attributes:
        states: where each point is.
        exit_codes: of the children that have ended.
    """

    def __init__(self, sweep: Sweep, share: Share, view: View) -> None:
        self.states = dict.fromkeys(sweep.points, State.WAITING)
        self.exit_codes: dict[Point, int] = {}
        self._sweep, self._share, self._view = sweep, share, view
        self._children: dict[Point, Child] = {}
        self._stopping = False

    def run(self) -> None:
        """Start, watch and reap children. However this ends, no child of it is left.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM, after every child has saved its checkpoint.
        """
        with Interrupts(self._view.fact) as interrupts:
            try:
                while not all(state.is_end for state in self.states.values()):
                    self._reap()
                    if interrupts.requested:
                        raise KeyboardInterrupt
                    self._start()
                    self._look()
            except BaseException:
                self._stop()
                raise

    def _start(self) -> None:
        """Start as many points as there is room for; note those that are at their end, or in other hands."""
        for point, state in self.states.items():
            if state not in (State.WAITING, State.ELSEWHERE):
                continue
            lock = self._sweep.take(point)
            if lock is None:
                self._move(point, State.ELSEWHERE)
                continue
            try:
                self._start_one(point, lock)
            finally:
                os.close(lock)

    def _start_one(self, point: Point, lock: int) -> None:
        try:
            stands = standing(self._sweep.run_dir(point))
        except RunDirError as error:
            self.exit_codes[point] = EXIT_USER
            self._move(point, State.FAILED, str(error))
            return
        if stands is Standing.FINISHED:
            self._move(point, State.FINISHED, "already")
        elif stands is Standing.STOPPED:
            self._move(point, State.STOPPED, "already")
        elif self._busy() < self._share.jobs:
            self._children[point] = self._spawn(point, stands, lock)
            self._move(point, State.RUNNING, "resumed" if stands is Standing.TO_RESUME else "started")
        else:
            self._move(point, State.WAITING)

    def _busy(self) -> int:
        return sum(state in (State.RUNNING, State.ELSEWHERE) for state in self.states.values())

    def _spawn(self, point: Point, stands: Standing, lock: int) -> Child:
        """Start a child that inherits the lock and keeps it while it lives."""
        run_dir = self._sweep.run_dir(point)
        place = next(i for i in range(self._share.jobs) if i not in {child.place for child in self._children.values()})
        words = ["train", "--resume", str(run_dir)]
        if stands is Standing.TO_START:
            file = freeze(self._sweep, point)
            words = ["train", str(file), f"output_dir={self._sweep.folder}", f"name={point.name}"]
        with self._sweep.log(point).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kleash.sweep.child", str(os.getpid()), *KLEASH, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._share.environment(place),
                pass_fds=(lock,),
                start_new_session=True,
            )
        return Child(process, place)

    def _reap(self) -> None:
        for point, child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                del self._children[point]
                self._end(point, code)

    def _end(self, point: Point, code: int) -> None:
        self.exit_codes[point] = code
        if code == EXIT_DONE:
            self._move(point, State.FINISHED)
        elif code == EXIT_STOPPED:
            self._move(point, State.STOPPED, last_words(self._sweep.log(point)))
        elif code == EXIT_INTERRUPTED or (self._stopping and code == -signal.SIGTERM):
            self._move(point, State.INTERRUPTED)
        elif code < 0:
            self._move(point, State.FAILED, _killed(-code))
        else:
            self._move(point, State.FAILED, last_words(self._sweep.log(point)))

    def _move(self, point: Point, state: State, said: str = "") -> None:
        if self.states[point] is not state:
            self.states[point] = state
            self._view.moved(point, state, said)

    def _stop(self) -> None:
        """Ask every child to save a checkpoint and end, and wait; a second signal here asks again, to end at once."""
        self._stopping = True
        self._ask()
        while self._children:
            try:
                self._look()
                self._reap()
            except KeyboardInterrupt:
                self._ask()

    def _ask(self) -> None:
        for child in self._children.values():
            child.process.send_signal(signal.SIGTERM)

    def _look(self) -> None:
        self._view.show(self.states)
        time.sleep(POLL_SECONDS)


def last_words(log: Path) -> str:
    """Return why a process ended, from what it printed: Kleash's last message or exception, else the last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line.removeprefix("kleash: ") for line in lines if TELLING.match(line)]
    return telling[-1] if telling else lines[-1] if lines else "it said nothing"


def failure_code(codes: Mapping[Point, int], states: Mapping[Point, State]) -> int:
    """Return the exit code of a whole sweep: a bug of Kleash counts most, then a failure, then a point that stopped."""
    if any(states[point] is State.FAILED and code == EXIT_BUG for point, code in codes.items()):
        return EXIT_BUG
    if any(state in (State.FAILED, State.INTERRUPTED) for state in states.values()):
        return EXIT_USER
    return EXIT_STOPPED if State.STOPPED in states.values() else EXIT_DONE


def _killed(number: int) -> str:
    name = signal.Signals(number).name
    return (
        f"its process was ended by {name} and said no more. Where memory ran short, --jobs 1 helps; the same command "
        "goes on from its checkpoint."
    )
