"""The arguments of `kleash watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8477
DEFAULT_RUNS = Path("runs")

Commands = Any
"""argparse's own type for subparsers is private."""


def add_watch(commands: Commands) -> None:
    """Add `watch` to argparse's subparsers."""
    text = "a live page of runs: drift, reward, alarms and samples"
    watch = commands.add_parser("watch", help=text, description=f"{text[0].upper()}{text[1:]}. It writes nothing.")
    watch.set_defaults(call="watch:run")
    watch.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUNS",
        help="runs, folders that hold runs, or other trainers' logs; default: runs",
    )
    page = watch.add_argument_group("the page")
    page.add_argument(
        "--host", default=DEFAULT_HOST, help=f"other machines reach it only with a token; default: {DEFAULT_HOST}"
    )
    page.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 takes a free one; default: {DEFAULT_PORT}")
    page.add_argument("--token", metavar="TEXT", help="what a browser must bring; auto makes one and prints it")
    terminal = watch.add_argument_group("in the terminal")
    terminal.add_argument("--plain", action="store_true", help="show it here, without a page")
    terminal.add_argument("--once", action="store_true", help="show it here once, and end")
