"""The arguments of `kleash bestofn`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

TEXT = "measure the best of n samples of a run's starting model: the baseline that training must beat"


def add_bestofn(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser("bestofn", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".")
    command.set_defaults(call="bestofn:run")
    command.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="run.toml and key=value settings, as for `kleash train`"
    )
    command.add_argument(
        "--n", dest="sizes", type=sizes, default=(1, 2, 4, 8, 16), metavar="N,N,...", help="default: 1,2,4,8,16"
    )
    command.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="completions of each prompt, more than the largest n; default: twice the largest n",
    )
    command.add_argument(
        "--prompts", choices=("held_out", "all"), default="held_out", help="of the run; default: held_out"
    )
    command.add_argument("--json", dest="json_path", metavar="FILE|-", help="every number; - is standard output")
    command.add_argument("--out", type=Path, metavar="FILE", help="a page, such as bestofn.html")


def sizes(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, ascending and each once, from a list with commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers of samples. Give some, such as 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))
