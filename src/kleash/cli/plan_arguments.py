"""The arguments of `kleash plan`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

TEXT = "predict from samples of the reference where each beta would end; trains nothing"


def add_plan(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser("plan", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".")
    command.set_defaults(call="plan:run")
    command.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="run.toml and key=value settings, as for `kleash train`"
    )
    command.add_argument(
        "--samples", type=int, default=64, metavar="G", help="completions of each prompt, 16 or more; default: 64"
    )
    command.add_argument(
        "--prompts", type=int, default=32, metavar="N", help="training prompts at most, 2 or more; default: 32"
    )
    command.add_argument(
        "--betas", type=betas, metavar="BETA,BETA,...", help="default: from a negligible KL to where claims end"
    )
    command.add_argument("--json", dest="json_path", metavar="FILE|-", help="every number; - is standard output")
    command.add_argument("--out", type=Path, metavar="FILE", help="a page, such as plan.html")


def betas(text: str) -> tuple[float, ...]:
    """Positive finite numbers, descending and each once, from a list with commas."""
    try:
        found = {float(word) for word in text.split(",")}
    except ValueError:
        found = set()
    if not found or not all(beta > 0 and math.isfinite(beta) for beta in found):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no list of betas. Give rewards per nat above 0, such as 0.02,0.05,0.1"
        )
    return tuple(sorted(found, reverse=True))
