"""The console that commands print tables on."""

from __future__ import annotations

from rich.console import Console

PIPE_WIDTH = 200


def screen() -> Console:
    """Return a console for standard output; where that is no terminal, one wide enough to keep a row on a line."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)
