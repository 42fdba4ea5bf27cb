"""What a run tells whoever watches: the terminal, a mirror, a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kleash.runs.records import Event, Step


@dataclass(frozen=True)
class CheckResult:
    """One preflight check: its name, whether it passed, what was found, and whether a failure ends the run."""

    name: str
    passed: bool
    detail: str
    fatal: bool = True


class Observer(Protocol):
    """Is told what happens; nothing it does changes the run."""

    def fact(self, text: str) -> None:
        """A line worth knowing before or during the run: reference, memory, warnings, where files are."""
        ...

    def checked(self, result: CheckResult) -> None:
        """A preflight check is done."""
        ...

    def began(self, first_step: int, total_steps: int) -> None:
        """Training starts (or goes on) at `first_step` of `total_steps`."""
        ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Within a step, an evaluation or a check: so much of a phase is done."""
        ...

    def stepped(self, step: Step) -> None:
        """A step is recorded."""
        ...

    def alarmed(self, event: Event) -> None:
        """With the step, an alarm that begins, grows or ends, or something that was done about one."""
        ...

    def ended(self, run_dir: Path, status: str, reason: str) -> None:
        """The run is over: finished, interrupted, stopped or failed."""
        ...


class Silent:
    """Watches and says nothing."""

    def fact(self, text: str) -> None:
        """Nothing."""

    def checked(self, result: CheckResult) -> None:
        """Nothing."""

    def began(self, first_step: int, total_steps: int) -> None:
        """Nothing."""

    def progress(self, phase: str, done: int, total: int) -> None:
        """Nothing."""

    def stepped(self, step: Step) -> None:
        """Nothing."""

    def alarmed(self, event: Event) -> None:
        """Nothing."""

    def ended(self, run_dir: Path, status: str, reason: str) -> None:
        """Nothing."""
