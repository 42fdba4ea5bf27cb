"""`kleash bestofn`: sample, choose the best of n, print what that gains and costs, and write it down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kleash.cli.files import STDOUT, check_files, replace_file
from kleash.cli.gauge import Bar
from kleash.cli.screen import bars, screen
from kleash.cli.settings import load_arguments
from kleash.errors import ConfigError

if TYPE_CHECKING:
    from kleash.gauge.best_of_n import BestOfN
    from kleash.training.best_of_n import Which


def run(
    arguments: Sequence[str],
    *,
    sizes: Sequence[int] = (1, 2, 4, 8, 16),
    samples: int | None = None,
    prompts: Which = "held_out",
    json_path: str | None = None,
    out: Path | None = None,
) -> None:
    """Measure best-of-n of the model that a run would start from, under its reward.

    Args:
        arguments: run.toml and key=value settings.
        sizes: the n, ascending.
        samples: completions of each prompt; None draws twice the largest n.
        prompts: the run's held-out prompts, or all.
        json_path: where every number is written; `-` is standard output, and the table goes to standard error.
        out: where the page is written.

    Raises:
        KleashError: settings, data or a model that cannot be used.
    """
    drawn = 2 * sizes[-1] if samples is None else samples
    _check(drawn, sizes[-1], json_path, out)
    loaded = load_arguments(arguments)
    console = screen(stderr=json_path == STDOUT)
    for warning in loaded.warnings:
        console.print(f"note       {warning}", soft_wrap=True)
    with bars(console, transient=True) as progress:
        bar = Bar(progress)
        from kleash.training.best_of_n import measure_best_of_n

        found = measure_best_of_n(loaded.config, sizes, samples=drawn, prompts=prompts, progress=bar)
    print_summary(console, found)
    _write(found, json_path, out, console)


def print_summary(console: Console, found: BestOfN) -> None:
    """Print the result in a sentence, and a row for each n."""
    from kleash.gauge.best_of_n_page import headline, notes, numbers

    console.print()
    console.print(Text(headline(found), "bold"), soft_wrap=True)
    for note in notes(found):
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)
    titles, rows = numbers(found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()


def _check(samples: int, largest: int, json_path: str | None, out: Path | None) -> None:
    """Refuse before sampling what would be refused after it."""
    if samples <= largest:
        raise ConfigError(
            f"--samples {samples} is too few for the best of {largest}: its win rate needs one more sample to compare "
            f"with. Give {largest + 1} or more; twice the largest n makes a steadier estimate."
        )
    check_files(json_path, out, "bestofn.html")


def _write(found: BestOfN, json_path: str | None, out: Path | None, console: Console) -> None:
    text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if json_path == STDOUT:
        print(text, end="")
    elif json_path is not None:
        replace_file(Path(json_path), text)
        console.print(f"numbers    {json_path}", soft_wrap=True)
    if out is not None:
        from kleash.gauge.best_of_n_page import render

        replace_file(out, render(found))
        console.print(f"page       {out}", soft_wrap=True)
