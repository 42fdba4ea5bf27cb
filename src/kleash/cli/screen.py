"""The console that commands print on."""

from __future__ import annotations

from functools import partial

from rich.console import Console

PIPE_WIDTH = 200


def screen() -> Console:
    """Return a console for standard output that prints text as it is: brackets and colons are no mark-up.

    Where standard output is no terminal, it is wide enough to keep a row of a table on a line.
    """
    console = partial(Console, markup=False, emoji=False, highlight=False)
    terminal = console()
    return terminal if terminal.is_terminal else console(width=PIPE_WIDTH)
