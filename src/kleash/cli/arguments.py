"""Every command, its arguments, and the function that it calls.

A function is named `module:function` within `kleash.cli`; the arguments are its keyword arguments.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from kleash import __version__
from kleash.cli.audit_arguments import add_audit
from kleash.cli.bestofn_arguments import add_bestofn
from kleash.cli.frontier_arguments import add_frontier, nats
from kleash.cli.judge_arguments import add_judge
from kleash.cli.label_arguments import add_candidates, add_label
from kleash.cli.plan_arguments import add_plan
from kleash.cli.sweep_arguments import add_sweep
from kleash.cli.watch_arguments import add_watch
from kleash.errors import EXIT_USER, near_match

SETTINGS = (
    "run.toml and key=value settings, such as training.steps=200 or algorithm.kl.target_nats_per_sequence=8; "
    "an argument with an equals sign is a setting, and settings win over the file"
)

DTYPES = ("auto", "float32", "bfloat16")

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
            kind = f"a value of {action.option_strings[0]}" if action.option_strings else "a command"
            raise argparse.ArgumentError(
                None, f"'{value}' is not {kind}.{near_match(value, action.choices)} There are: {known}."
            )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


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
    add_sweep(commands)
    _add_gauge(commands)
    add_bestofn(commands)
    add_frontier(commands)
    add_plan(commands)
    labelling = add_label(commands)
    add_candidates(labelling, SETTINGS)
    add_judge(labelling)
    _add_reading(commands)
    add_audit(commands)
    add_watch(commands)
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


def _add_gauge(commands: Commands) -> None:
    gauge = _command(commands, "gauge", "gauge:run", "measure how far models have moved from a reference")
    gauge.add_argument("reference", metavar="REFERENCE", help="hub id, folder, GGUF file, run or `demo`")
    gauge.add_argument("tuned", nargs="*", metavar="TUNED", help="the same, or the folder of a PEFT adapter")
    given = gauge.add_argument_group("prompts and text")
    given.add_argument(
        "--prompts", metavar="FILE", help=".txt, .jsonl, .csv, .parquet or hub data set; default: built in"
    )
    given.add_argument("--column", metavar="NAME", help="the column of the prompts; default: prompt, else messages")
    given.add_argument("--corpus", metavar="FILE", help="text that both models read as it stands")
    given.add_argument("--limit", type=int, metavar="N", help="the first N prompts alone")
    how = gauge.add_argument_group("how it is measured")
    how.add_argument("--samples", type=positive, default=1, metavar="N", help="replies to each prompt; default: 1")
    how.add_argument(
        "--max-length", type=positive, default=64, metavar="N", help="tokens of a reply at most; default: 64"
    )
    how.add_argument("--seed", type=int, default=0, metavar="N", help="of sampling; default: 0")
    how.add_argument("--dtype", choices=DTYPES, default="auto", help="of both models; default: auto")
    how.add_argument("--batch-size", type=_batch_size, default="auto", metavar="auto|N", help="replies at once")
    how.add_argument("--no-scale", dest="scale", action="store_false", help="leave bf16 and 4-bit rounding out")
    how.add_argument("--no-cache", dest="cache", action="store_false", help="measure anew what was measured before")
    how.add_argument("--curve", action="store_true", help="every checkpoint of a run, not its last alone")
    how.add_argument(
        "--dial",
        action="store_true",
        help="REFERENCE is a run, alone: reward and KL of its last checkpoint over the scale of its adapter",
    )
    scores = gauge.add_argument_group("scores beside the drift")
    scores.add_argument(
        "--score",
        dest="scores",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="a function of prompts and replies, as a reward is; may be repeated",
    )
    scores.add_argument(
        "--lm-eval",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="results.json of lm-evaluation-harness: once for REFERENCE, then once for each TUNED",
    )
    results = gauge.add_argument_group("results")
    results.add_argument("--json", dest="json_path", metavar="FILE|-", help="every number; - is standard output")
    results.add_argument("--out", type=Path, metavar="FILE", help="a page, such as report.html")
    results.add_argument(
        "--fail-above",
        type=float,
        metavar="NATS",
        help="exit 3 when all of the interval of KL(tuned ‖ reference) per sequence is above",
    )


def _batch_size(text: str) -> int | str:
    if text == "auto" or (text.isdecimal() and int(text) > 0):
        return text if text == "auto" else int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is no number of replies. Give auto, or 1 or more")


def _add_reading(commands: Commands) -> None:
    tried = _command(commands, "try", "try_:run", "reference and policy side by side, tokens coloured by KL")
    _add_run(tried)
    tried.add_argument("prompts", nargs="+", metavar="PROMPT", help="text to continue or to answer")
    _add_step(tried)
    tried.add_argument("--samples", type=positive, default=1, help="replies to each prompt; default: 1")
    tried.add_argument("--seed", type=int, default=0, help="of sampling; default: 0")
    tried.add_argument("--max-length", type=positive, help="tokens of a reply at most; default: the run's")
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
    export.add_argument("--allow-suspect", action="store_true", help="export a checkpoint that lies under an alarm too")
    export.add_argument(
        "--max-nats",
        type=nats,
        metavar="NATS",
        help="scale the adapter down until KL(policy ‖ reference) per sequence lies within NATS on held-out prompts",
    )
    export.add_argument("--prompts", metavar="FILE", help="prompts for --max-nats; default: the run's held-out ones")


def _command(commands: Commands, name: str, call: str, text: str) -> ArgumentParser:
    command: ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(call=call)
    return command


def _add_run(command: ArgumentParser) -> None:
    command.add_argument("run_dir", type=Path, metavar="RUN", help="the run's folder, such as runs/sentiment")


def _add_step(command: ArgumentParser) -> None:
    command.add_argument("--step", type=int, metavar="N", help="the checkpoint after step N; default: the last")
