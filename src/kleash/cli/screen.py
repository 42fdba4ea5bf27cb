"""The console that commands print on."""

from __future__ import annotations

from functools import partial

from rich.console import Console

PIPE_WIDTH = 200


def screen(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: brackets and colons are no mark-up.

    Where it is no terminal, it is wide enough to keep a row of a table on a line.

    Args:
        stderr: print on standard error, for what must not mix with a command's output.
    """
    console = partial(Console, markup=False, emoji=False, highlight=False, stderr=stderr)
    terminal = console()
    return terminal if terminal.is_terminal else console(width=PIPE_WIDTH)
