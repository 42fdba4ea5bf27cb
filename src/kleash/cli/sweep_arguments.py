"""The arguments of `kleash sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kleash.cli.frontier_arguments import nats

TEXT = "train a run at several values of its settings, and say which value to take"


def add_sweep(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser("sweep", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".")
    command.set_defaults(call="sweep:run")
    command.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="run.toml and key=value settings, as for `kleash train`; several values with commas are swept, such as "
        "algorithm.kl.beta=0,0.02,0.05",
    )
    command.add_argument(
        "--resume", type=Path, metavar="SWEEP", help="go on with the sweep in this folder; the same command does too"
    )
    command.add_argument(
        "--jobs",
        type=jobs,
        metavar="N|auto",
        help="points trained at once; default: auto, one for each GPU, or for each core on a CPU",
    )
    command.add_argument(
        "--max-nats", type=nats, metavar="NATS", help="recommend among checkpoints whose KL per sequence is below"
    )


def jobs(text: str) -> int | None:
    """A whole number of at least 1; None for `auto`."""
    if text == "auto":
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is no number of points. Give auto, or 1 or more")
