"""The console that commands print on, and the bars they show there."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

PIPE_WIDTH = 200
SPEED_WINDOW = 1800.0
"""Seconds of the past that the time left is estimated from: an evaluation belongs to the pace as well."""


def screen(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: brackets and colons are no mark-up.

    Where it is no terminal, it is wide enough to keep a row of a table on a line.

    Args:
        stderr: print on standard error, for what must not mix with a command's output.
    """
    console = partial(Console, markup=False, emoji=False, highlight=False, stderr=stderr)
    terminal = console()
    return terminal if terminal.is_terminal else console(width=PIPE_WIDTH)


def bars(console: Console, *, transient: bool = False) -> Progress:
    """Return bars with a count and the time left; nothing shows where the console is no terminal.

    Args:
        console: where they are drawn.
        transient: whether they vanish when they are done.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        expand=True,
        transient=transient,
        speed_estimate_period=SPEED_WINDOW,
        disable=not console.is_terminal,
    )
