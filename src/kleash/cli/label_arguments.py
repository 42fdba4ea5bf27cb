"""The arguments of `kleash label`: the commands that serve, count, export and import a label store."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

DEFAULT_STORE = "labels.db"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765
FORMATS = ("comparisons", "argilla", "label-studio")

Commands = Any
"""argparse's own type for subparsers is private."""


def add_label(commands: Commands) -> Commands:
    """Add `label` to argparse's subparsers, and return the subparsers of its own commands."""
    label = commands.add_parser("label", help="collect people's comparisons of completions")
    labelling = label.add_subparsers(metavar="COMMAND", required=True)
    serve = _command(labelling, "serve", "a page where people compare two completions, with the keyboard")
    serve.add_argument(
        "--host", default=DEFAULT_HOST, help=f"other machines reach it only with a token; default: {DEFAULT_HOST}"
    )
    serve.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}")
    serve.add_argument("--token", metavar="TEXT", help="what a browser must bring; auto makes one and prints it")
    _command(labelling, "status", "how many pairs are labelled, by whom, and how far the annotators agree")
    export = _command(labelling, "export", "write comparisons to train on, or a file for another labelling tool")
    export.add_argument("out", type=Path, metavar="FILE", help=".jsonl or .parquet for comparisons, else .json")
    _add_format(export)
    imported = _command(labelling, "import", "add the pairs and votes of a file", call="import_")
    imported.add_argument("path", type=Path, metavar="FILE", help="comparisons, or another labelling tool's JSON")
    _add_format(imported)
    return labelling


def add_candidates(labelling: Commands, settings: str) -> None:
    """Add the command that fills a store with samples; `settings` explains what its arguments are."""
    command = _command(labelling, "candidates", "fill the queue with pairs of a model's samples")
    command.set_defaults(call="label_candidates:run")
    command.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=settings)
    command.add_argument("--pairs", type=int, default=200, metavar="N", help="how many to add; default: 200")


def add_store(command: ArgumentParser) -> None:
    """Add `--store`, which every command on labels takes."""
    command.add_argument(
        "--store",
        default=DEFAULT_STORE,
        metavar="FILE|URL",
        help=f"an SQLite file, or postgresql+psycopg://name:password@host/database; default: {DEFAULT_STORE}",
    )


def _command(commands: Commands, name: str, text: str, call: str | None = None) -> ArgumentParser:
    command: ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(call=f"label:{call or name}")
    add_store(command)
    return command


def _add_format(command: ArgumentParser) -> None:
    command.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=f"default: {FORMATS[0]}")
