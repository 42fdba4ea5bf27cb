"""Watching a run: a live table with bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kleash.cli.lines import (
    LABEL,
    alarm_label,
    alarm_text,
    cells,
    closing,
    has_trained,
    held_out,
    labelled,
    split_label,
)
from kleash.cli.screen import bars, screen
from kleash.runs.records import Event, Step
from kleash.training.observer import CheckResult, Observer, Silent

SHOWN_STEPS = 8
REFRESHES_PER_SECOND = 4


@contextmanager
def watching(kl_key: str = "kl/exact_per_sequence") -> Iterator[Observer]:
    """Observe on the terminal, or in plain lines where standard output is none; of several processes one speaks.

    Args:
        kl_key: the KL that the run's target is about; it is the one that is shown.
    """
    if os.environ.get("RANK", "0") != "0":
        yield Silent()
        return
    console = screen()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Plain(kl_key)
        return
    terminal = Terminal(console, kl_key)
    with terminal.live:
        yield terminal


class Plain:
    """One line for each fact, check and step, without control characters: for logs and pipes."""

    def __init__(self, kl_key: str) -> None:
        self._kl_key = kl_key

    def fact(self, text: str) -> None:
        """Print the line at once."""
        print(text, flush=True)

    def checked(self, result: CheckResult) -> None:
        """Print how the check came out."""
        self.fact(labelled("check", f"{_verdict(result):<7} {result.name}: {result.detail}"))

    def began(self, first_step: int, total_steps: int) -> None:
        """Say where the run takes up, and how far it goes."""
        self.fact(labelled("training", f"{total_steps - first_step} steps, from step {first_step}"))

    def progress(self, phase: str, done: int, total: int) -> None:
        """Nothing: a bar needs a terminal."""

    def stepped(self, step: Step) -> None:
        """Print the numbers of its evaluation, if it had one, and of its training."""
        evaluated = held_out(step, self._kl_key)
        if evaluated:
            self.fact(evaluated)
        if has_trained(step):
            self.fact("  ".join(f"{title} {text}" for title, text in cells(step, self._kl_key).items()))

    def alarmed(self, event: Event) -> None:
        """Print it at once."""
        self.fact(labelled(alarm_label(event), alarm_text(event)))

    def ended(self, run_dir: Path, status: str, reason: str) -> None:
        """Print how it ended."""
        for line in closing(run_dir, status, reason):
            self.fact(line)


class Terminal:
    """Facts and checks scroll by; below them the last steps and two bars stay in place.

    Attributes:
        live: the part of the screen that is redrawn; a context manager that the caller enters.
    """

    def __init__(self, console: Console, kl_key: str) -> None:
        self._console = console
        self._kl_key = kl_key
        self._steps: tuple[Step, ...] = ()
        self._table: RenderableType = ""
        self._bars = bars(console)
        self._run = self._bars.add_task("preparing", total=None, count="")
        self._phase = self._bars.add_task("", total=None, count="", visible=False)
        self._phase_name = ""
        self._total = 0
        self.live = Live(
            console=console, get_renderable=self._screen, refresh_per_second=REFRESHES_PER_SECOND, transient=True
        )

    def fact(self, text: str) -> None:
        """Print the line at once, above the bars; a long one stays clear of its label."""
        label, rest = split_label(text)
        line = Table.grid(padding=(0, 1))
        line.add_row(*([Text(label)] if label else []), Text(rest))
        self._console.print(line)

    def checked(self, result: CheckResult) -> None:
        """Print how the check came out, its detail in a column of its own."""
        line = Table.grid(padding=(0, 1))
        verdict = _verdict(result)
        style = {"ok": "green", "failed": "bold red", "warning": "yellow"}[verdict]
        line.add_row(f"{'check':<{LABEL}}", Text(f"{verdict:<7}", style), f"{result.name:<17}", Text(result.detail))
        self._console.print(line)

    def began(self, first_step: int, total_steps: int) -> None:
        """Turn the bar of the preparations into that of the steps."""
        self._total = total_steps
        self._bars.reset(
            self._run,
            total=total_steps,
            completed=first_step,
            description="training",
            count=f"{first_step}/{total_steps}",
        )
        self._hide_phase()

    def progress(self, phase: str, done: int, total: int) -> None:
        """Move the second bar; it is there only while a phase is under way."""
        if phase != self._phase_name:
            self._phase_name = phase
            self._bars.reset(self._phase, description=phase)
        self._bars.update(self._phase, completed=done, total=total, count=f"{done}/{total}", visible=done < total)

    def stepped(self, step: Step) -> None:
        """Add the step to the table; the line of an evaluation stays above it."""
        self._hide_phase()
        evaluated = held_out(step, self._kl_key)
        if evaluated:
            self.fact(evaluated)
        if has_trained(step):
            self._steps = (*self._steps, step)[-SHOWN_STEPS:]
            self._table = _steps_table(self._steps, self._kl_key)
            done = step.step + 1
            self._bars.update(self._run, completed=done, count=f"{done}/{self._total}")

    def alarmed(self, event: Event) -> None:
        """Print it above the steps, its severity as a word and in colour."""
        label = alarm_label(event)
        style = {"critical": "bold red", "warning": "yellow"}.get(label, "green")
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(f"{label:<{LABEL}}", style), Text(alarm_text(event)))
        self._console.print(line)

    def ended(self, run_dir: Path, status: str, reason: str) -> None:
        """Leave the last steps on the screen and print how it ended."""
        self.live.stop()
        self._console.print(self._table)
        for line in closing(run_dir, status, reason):
            self._console.print(line, soft_wrap=True)

    def _hide_phase(self) -> None:
        self._phase_name = ""
        self._bars.update(self._phase, visible=False)

    def _screen(self) -> RenderableType:
        return Group(self._table, self._bars) if self._steps else self._bars


def _steps_table(steps: tuple[Step, ...], kl_key: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    rows = [cells(step, kl_key) for step in steps]
    for title in rows[-1]:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row.values())
    return table


def _verdict(result: CheckResult) -> str:
    if result.passed:
        return "ok"
    return "failed" if result.fatal else "warning"
