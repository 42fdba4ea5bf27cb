"""The arguments of `kleash label judge`. One that is not given is not passed on: the `judge` table's default holds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kleash.cli.label_arguments import add_store

TEXT = "let a language model, or a reward function, vote on the pairs of a label store"


def add_judge(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser(
        "judge", help=TEXT, description=TEXT[0].upper() + TEXT[1:] + ".", argument_default=argparse.SUPPRESS
    )
    command.set_defaults(call="label_judge:run")
    add_store(command)
    command.add_argument("--annotator", metavar="NAME", help="whose votes they are; default: the model or the function")
    command.add_argument("--limit", type=_positive, metavar="N", help="vote on N pairs at most")
    _add_judge_options(command.add_argument_group("a judge"))
    reward = command.add_argument_group("a reward function instead")
    reward.add_argument("--reward", metavar="MODULE:FUNCTION", help="votes for the completion that it pays more")
    reward.add_argument("--tie-within", type=_at_least_zero, metavar="X", help="rewards this close tie; default: 0")
    reward.add_argument("--noise", type=_probability, metavar="P", help="share of votes turned round; default: 0")
    reward.add_argument("--seed", type=int, metavar="N", help="of the noise; default: 0")


def _add_judge_options(judge: Any) -> None:
    judge.add_argument("--model", metavar="NAME", help="hub id, folder or `demo`; with --base-url, its name there")
    judge.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible endpoint: http://localhost:8000/v1")
    judge.add_argument(
        "--api-key-env", metavar="VARIABLE", help="the environment variable with its key; default: OPENAI_API_KEY"
    )
    judge.add_argument("--rubric", type=Path, metavar="FILE", help='what "better" means, in words')
    judge.add_argument("--max-tokens", type=_positive, metavar="N", help="of a reply; default: 16")
    judge.add_argument(
        "--requests-per-minute", type=_above_zero, metavar="N", help="at most; a question is two; default: no limit"
    )
    judge.add_argument("--concurrency", type=_positive, metavar="N", help="questions at once; default: 4")
    judge.add_argument("--price-per-million-input", type=_at_least_zero, metavar="P", help="of tokens sent")
    judge.add_argument("--price-per-million-output", type=_at_least_zero, metavar="P", help="of tokens received")


def _positive(text: str) -> int:
    return int(_checked(text, text.isdecimal() and int(text) >= 1, "a whole number of at least 1"))


def _above_zero(text: str) -> float:
    return float(_checked(text, 0 < _number(text) < float("inf"), "a number above 0"))


def _at_least_zero(text: str) -> float:
    return float(_checked(text, 0 <= _number(text) < float("inf"), "a number of at least 0"))


def _probability(text: str) -> float:
    return float(_checked(text, 0 <= _number(text) <= 1, "a probability: a number from 0 to 1"))


def _number(text: str) -> float:
    """The number, or NaN, which no range holds."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _checked(text: str, sound: bool, wanted: str) -> str:
    if not sound:
        raise argparse.ArgumentTypeError(f"'{text}' is not {wanted}")
    return text
