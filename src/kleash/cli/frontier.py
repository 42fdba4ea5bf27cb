"""`kleash frontier`: read runs, print which checkpoint to take and where reward peaks, and write both down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kleash.cli.files import STDOUT, check_files, replace_file
from kleash.cli.screen import screen
from kleash.frontier.analysis import Frontier, analyse
from kleash.frontier.points import RewardKind, read_best_of_n, read_run
from kleash.frontier.words import caveats, strand_sentences, strand_title


def run(
    runs: Sequence[Path],
    *,
    bestofn: Sequence[Path] = (),
    max_nats: float | None = None,
    by: RewardKind | None = None,
    json_path: str | None = None,
    out: Path | None = None,
) -> None:
    """Print the choice and the peaks of one or many runs; read-only but for the files asked for.

    Args:
        runs: their folders.
        bestofn: files of `kleash bestofn --json`.
        max_nats: limit of KL for the choice, nats per sequence.
        by: the reward to choose by; None takes gold where any run has it.
        json_path: where every number is written; `-` is standard output, and the text goes to standard error.
        out: where the page is written.

    Raises:
        KleashError: a run or a file without points, or points that cannot be ranked.
    """
    check_files(json_path, out, "frontier.html")
    points = [point for path in dict.fromkeys(runs) for point in read_run(path)]
    points += [point for path in dict.fromkeys(bestofn) for point in read_best_of_n(path)]
    found = analyse(points, max_nats, by)
    console = screen(stderr=json_path == STDOUT)
    print_summary(console, found)
    _write(found, json_path, out, console)


def print_summary(console: Console, found: Frontier) -> None:
    """Print the choice, what each curve says, and what must be known before comparing."""
    first, *rest = found.choice.sentences()
    console.print(Text(first, "bold"), soft_wrap=True)
    for sentence in rest:
        console.print(sentence, soft_wrap=True)
    for strand in found.strands:
        console.print()
        console.print(Text(strand_title(strand), "bold"), soft_wrap=True)
        for sentence in strand_sentences(strand):
            console.print(f"  {sentence}", soft_wrap=True)
    console.print()
    for note in caveats(found):
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)


def _write(found: Frontier, json_path: str | None, out: Path | None, console: Console) -> None:
    text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if json_path == STDOUT:
        print(text, end="")
    elif json_path is not None:
        replace_file(Path(json_path), text)
        console.print(f"numbers    {json_path}", soft_wrap=True)
    if out is not None:
        from kleash.frontier.page import render

        replace_file(out, render(found))
        console.print(f"page       {out}", soft_wrap=True)
