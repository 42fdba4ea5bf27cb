"""Measure false alarms and detection delays, and write docs/alarms.md with its picture: `python -m benchmarks.alarms`.

`--quick` measures a tenth of it. `--choosing` measures on the seeds that are for choosing thresholds and prints the
tables. `python -m benchmarks.alarms trace RUN NAME` keeps the numbers of a real, healthy run directory under traces/,
for the next measurement.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.alarms import page, picture, results, traces

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alarms", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--quick", dest="amounts", action="store_const", const=results.QUICK, help="a tenth of the runs"
    )
    amount.add_argument(
        "--choosing",
        dest="amounts",
        action="store_const",
        const=results.CHOOSING,
        help="on the seeds that are for choosing thresholds; print the page's tables and write nothing",
    )
    parser.set_defaults(amounts=results.FULL)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder to write alarms.md and images/alarms.svg to")
    commands = parser.add_subparsers(dest="command")
    trace = commands.add_parser("trace", help="keep the numbers of a real run")
    trace.add_argument("run", type=Path)
    trace.add_argument("name")
    arguments = parser.parse_args()
    if arguments.command == "trace":
        print(traces.write(arguments.run, arguments.name))
        return
    found = results.measure(arguments.amounts, _progress)
    if arguments.amounts is results.CHOOSING:
        print(page.tables(found))
        return
    (arguments.docs / "images").mkdir(parents=True, exist_ok=True)
    (arguments.docs / "alarms.md").write_text(page.markdown(found), encoding="utf-8")
    (arguments.docs / "images" / "alarms.svg").write_text(picture.svg(found), encoding="utf-8")
    print(page.promises(found))


def _progress(line: str) -> None:
    """Show what is being measured, where someone looks on."""
    if sys.stderr.isatty():
        print(f"\r{line:60s}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
