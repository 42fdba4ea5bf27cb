"""The arguments of `kleash frontier`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

TEXT = "reward against drift over the checkpoints of runs: where it peaks, and which checkpoint to take"


def add_frontier(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser("frontier", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".")
    command.set_defaults(call="frontier:run")
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, finished or not")
    command.add_argument(
        "--bestofn",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="what `kleash bestofn --json FILE` wrote; may be repeated",
    )
    command.add_argument(
        "--max-nats", type=nats, metavar="X", help="KL per sequence that the choice must keep, its 95 %% interval whole"
    )
    command.add_argument("--by", choices=("gold", "proxy"), help="the reward to choose by; default: gold where it is")
    command.add_argument("--json", dest="json_path", metavar="FILE|-", help="every number; - is standard output")
    command.add_argument("--out", type=Path, metavar="FILE", help="a page, such as frontier.html")


def nats(text: str) -> float:
    """A positive finite number of nats."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no limit of KL. Give a positive number of nats per sequence")
    return value
