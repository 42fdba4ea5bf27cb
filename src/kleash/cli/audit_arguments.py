"""The arguments of `kleash audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kleash.cli.files import STDOUT

TEXT = "read the log of any trainer, run the rules over it, and say how the run is"


def add_audit(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser("audit", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".")
    command.set_defaults(call="audit:run")
    command.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a Kleash run, TRL's output directory, TensorBoard event files, a W&B history, CSV or JSON Lines",
    )
    command.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME=KEY",
        help="take a column for a key of docs/metrics.md, or for the step with KEY step; may be repeated",
    )
    command.add_argument("--trainer", metavar="NAME", help='who wrote it, where its columns do not say: "TRL RLOO"')
    command.add_argument(
        "--beta", type=float, metavar="B", help="the weight of the KL (beta, kl_coef), where the log lacks it"
    )
    command.add_argument(
        "--from",
        dest="least",
        choices=("warning", "critical"),
        default="warning",
        help="exit 4 from alarms of this severity on; default: warning",
    )
    command.add_argument(
        "--json",
        dest="json_path",
        nargs="?",
        const=STDOUT,
        metavar="FILE|-",
        help="everything as one JSON object; without FILE on standard output",
    )
