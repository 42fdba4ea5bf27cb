"""`kleash watch`: runs as they go on, on a page or in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kleash.cli.watch_arguments import DEFAULT_HOST, DEFAULT_PORT, DEFAULT_RUNS
from kleash.errors import KleashError


def run(
    runs: Sequence[Path] = (),
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    token: str | None = None,
    plain: bool = False,
    once: bool = False,
) -> None:
    """Show runs until Ctrl-C.

    Args:
        runs: run directories, folders that hold runs, other trainers' logs; none means the folder `runs`.
        host: where the page listens; an address that other machines reach needs a token.
        port: where it listens.
        token: what a browser must bring; ``auto`` makes one.
        plain: show them in the terminal.
        once: show them in the terminal as they are now, and end.

    Raises:
        KleashError: one of `runs` is not there, the address cannot be used, or the extra is not installed.
    """
    shown = list(runs) or [DEFAULT_RUNS]
    if once:
        from kleash.cli.watch_plain import show_once

        show_once(shown)
    elif plain:
        from kleash.cli.watch_plain import follow

        follow(shown)
    else:
        _serve(shown, host, port, token)


def _serve(runs: Sequence[Path], host: str, port: int, token: str | None) -> None:
    try:
        from kleash.web.watch import serve
    except ModuleNotFoundError as error:
        raise KleashError(
            f"The page needs {error.name}, which is not installed: pip install 'kleash[watch]'. `kleash watch --plain`"
            " shows the same numbers in the terminal without it."
        ) from error
    serve(runs, host=host, port=port, token=token)
