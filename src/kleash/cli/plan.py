"""`kleash plan`: sample the reference, predict where each beta would end, and name one to start with."""

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
    from kleash.gauge.forecast import Forecast

LEAST_SAMPLES = 16
"""Of each prompt: with fewer, hardly any weighting leaves the eight effective ones that a claim needs."""
LEAST_PROMPTS = 2


def run(
    arguments: Sequence[str],
    *,
    samples: int = 64,
    prompts: int = 32,
    betas: Sequence[float] | None = None,
    json_path: str | None = None,
    out: Path | None = None,
) -> None:
    """Predict the optimum of the run's reward over a range of beta; no weight changes.

    Args:
        arguments: run.toml and key=value settings.
        samples: completions of each prompt.
        prompts: training prompts at most.
        betas: the betas to predict, descending; None chooses them.
        json_path: where every number is written; `-` is standard output, and the table goes to standard error.
        out: where the page is written.

    Raises:
        KleashError: settings, data or a model that cannot be used.
    """
    _check(samples, prompts, json_path, out)
    loaded = load_arguments(arguments)
    console = screen(stderr=json_path == STDOUT)
    for warning in loaded.warnings:
        console.print(f"note       {warning}", soft_wrap=True)
    with bars(console, transient=True) as progress:
        bar = Bar(progress)
        from kleash.training.planning import plan_run

        found = plan_run(loaded.config, betas, samples=samples, prompts=prompts, progress=bar)
    print_summary(console, found)
    _write(found, json_path, out, console)


def print_summary(console: Console, found: Forecast) -> None:
    """Print the suggestion with the lines to paste, a row for each beta, and what the numbers are."""
    from kleash.gauge.forecast_page import WHAT_IT_IS, headline, notes, numbers, paste

    console.print()
    console.print(Text(headline(found), "bold"), soft_wrap=True)
    lines = paste(found)
    if lines:
        console.print()
    for line in lines:
        console.print(f"    {line}", soft_wrap=True)
    titles, rows = numbers(found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()
    for note in notes(found):
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)
    for sentence in WHAT_IT_IS:
        console.print(Text(sentence, "dim"), soft_wrap=True)
    console.print()


def _check(samples: int, prompts: int, json_path: str | None, out: Path | None) -> None:
    """Refuse before sampling what would be refused after it."""
    if samples < LEAST_SAMPLES:
        raise ConfigError(
            f"--samples {samples} is too few: reweighted, they leave less than the eight effective samples of a prompt "
            f"that a prediction needs. Give {LEAST_SAMPLES} or more; a longer leash needs more."
        )
    if prompts < LEAST_PROMPTS:
        raise ConfigError(
            f"--prompts {prompts} is too few: an interval needs {LEAST_PROMPTS} prompts or more. Give 16 or more."
        )
    check_files(json_path, out, "plan.html")


def _write(found: Forecast, json_path: str | None, out: Path | None, console: Console) -> None:
    text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if json_path == STDOUT:
        print(text, end="")
    elif json_path is not None:
        replace_file(Path(json_path), text)
        console.print(f"numbers    {json_path}", soft_wrap=True)
    if out is not None:
        from kleash.gauge.forecast_page import render

        replace_file(out, render(found))
        console.print(f"page       {out}", soft_wrap=True)
