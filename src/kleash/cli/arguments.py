"""Every command, its arguments, and the function that it calls.

A function is named `module:function` within `kleash.cli`; the arguments are its keyword arguments.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from kleash import __version__
from kleash.errors import EXIT_USER, near_match

SETTINGS = (
    "run.toml and key=value settings, such as training.steps=200 or algorithm.kl.target_nats_per_sequence=8; "
    "an argument with an equals sign is a setting, and settings win over the file"
)


Commands = Any
"""argparse's own type for subparsers is private."""


class Parser(ArgumentParser):
    """argparse with the nearest command in its message."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is, and leave with the code of a user's mistake."""
        self.exit(EXIT_USER, f"kleash: {message}\n`{self.prog} --help` shows what it takes.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = ", ".join(action.choices)
            raise argparse.ArgumentError(
                None, f"'{value}' is not a command.{near_match(value, action.choices)} There are: {known}."
            )


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = Parser(
        prog="kleash",
        description="Fine-tune language models by reinforcement learning without letting them drift.",
        epilog="`kleash demo` shows it on a small model; `kleash init` writes a run.toml to start from.",
    )
    top.add_argument("--version", action="version", version=f"kleash {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _add_running(commands)
    _add_reading(commands)
    runs = commands.add_parser("runs", help="list runs, show or export one").add_subparsers(
        metavar="COMMAND", required=True
    )
    _add_runs(runs)
    return top


def _add_running(commands: Commands) -> None:
    train = _command(commands, "train", "train:run", "train a model as run.toml says")
    train.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=SETTINGS)
    train.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with a run from its last checkpoint, with the settings it was started with",
    )
    check = _command(commands, "check", "check:run", "test a run before it starts; trains nothing")
    check.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=SETTINGS)
    init = _command(commands, "init", "init:run", "write a commented run.toml")
    init.add_argument("path", nargs="?", type=Path, default=Path("run.toml"), help="default: run.toml")
    init.add_argument("--force", action="store_true", help="replace a file that is there")
    demo = _command(commands, "demo", "demo:run", "fine-tune a small model on a leash and show it: minutes on 2 cores")
    demo.add_argument("--steps", type=int, help="training steps; default: 55")
    demo.add_argument("--out", type=Path, metavar="DIR", help="where the run's folder is made; default: runs")
    demo.add_argument("--seed", type=int, help="of prompts, sampling and adapter; default: 0")


def _add_reading(commands: Commands) -> None:
    tried = _command(commands, "try", "try_:run", "reference and policy side by side, tokens coloured by KL")
    _add_run(tried)
    tried.add_argument("prompts", nargs="+", metavar="PROMPT", help="text to continue or to answer")
    _add_step(tried)
    tried.add_argument("--samples", type=int, default=1, help="replies to each prompt; default: 1")
    tried.add_argument("--seed", type=int, default=0, help="of sampling; default: 0")
    tried.add_argument("--max-length", type=int, help="tokens of a reply at most; default: the run's")
    _add_export(commands)
    report = _command(commands, "report", "report:run", "write report.html of a run anew")
    _add_run(report)


def _add_runs(commands: Commands) -> None:
    listed = _command(commands, "list", "runs:list_all", "one line a run")
    listed.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="default: runs")
    shown = _command(commands, "show", "runs:show", "settings, last numbers, events and checkpoints of a run")
    _add_run(shown)
    _add_export(commands)


def _add_export(commands: Commands) -> None:
    export = _command(commands, "export", "export:run", "write a run's model for other tools, with a model card")
    _add_run(export)
    _add_step(export)
    export.add_argument("--out", type=Path, metavar="DIR", help="default: RUN/export/step_N")
    export.add_argument(
        "--merge", action="store_true", help="fold the adapter into the weights and measure what that moves"
    )


def _command(commands: Commands, name: str, call: str, text: str) -> ArgumentParser:
    command: ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(call=call)
    return command


def _add_run(command: ArgumentParser) -> None:
    command.add_argument("run_dir", type=Path, metavar="RUN", help="the run's folder, such as runs/sentiment")


def _add_step(command: ArgumentParser) -> None:
    command.add_argument("--step", type=int, metavar="N", help="the checkpoint after step N; default: the last")
