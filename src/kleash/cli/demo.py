"""`kleash demo`: fine-tune a small model on a leash, then say what it gained and how far it moved."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kleash.cli.heat import coloured, legend
from kleash.cli.screen import screen
from kleash.cli.summary import Change, Held, Summary, summarize
from kleash.cli.train import start
from kleash.config.describe import toml
from kleash.config.loader import Loaded, load
from kleash.metrics import lookup
from kleash.report.wording import number, percent, with_error
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample
from kleash.runs.schema import REPORT

SHOWN_PAIRS = 3


def run(steps: int | None = None, out: Path | None = None, seed: int | None = None) -> None:
    """Train the built-in run and print its results.

    Args:
        steps: training steps; None takes those of the built-in run.
        out: where the run's folder is made; None takes `runs`.
        seed: of prompts, sampling and adapter; None takes 0.

    Raises:
        KleashError: the demo model or the sentiment reward is not there, or the run was stopped.
    """
    run_dir = start(settings(steps, out, seed))
    console = screen()
    with RunReader(run_dir) as reader:
        summary = summarize(reader)
    if summary is not None:
        print_summary(console, summary)
    console.print(f"\nThe whole run, on one page: {(run_dir / REPORT).absolute()}", soft_wrap=True)


def settings(steps: int | None, out: Path | None, seed: int | None) -> Loaded:
    """Return the built-in run with what the command line changes."""
    given = {"training.steps": steps, "training.seed": seed, "output_dir": None if out is None else str(out)}
    overrides = [f"{key}={toml(value)}" for key, value in given.items() if value is not None]
    with as_file(files("kleash.demo") / "run.toml") as path:
        return load(path, overrides)


def print_summary(console: Console, summary: Summary) -> None:
    """Print the numbers before and after, how well the KL was held, and a few pairs of samples."""
    console.print()
    console.print(numbers_table(summary))
    if summary.held is not None:
        console.print(held_sentence(summary.held), soft_wrap=True)
    console.print("\nThe first held-out openers, before and after:")
    if console.is_terminal:
        console.print(legend())
    for before, after in first_of_each_prompt(summary.pairs)[:SHOWN_PAIRS]:
        console.print(f"\n{before.prompt} ...", style="bold", soft_wrap=True)
        for name, sample in (("before", before), ("after", after)):
            console.print(f"  {name:<6} reward {number(sample.reward)}, KL {number(sample.kl)}: ", end="", style="dim")
            console.print(coloured(sample.tokens, sample.token_kl), soft_wrap=True)


def numbers_table(summary: Summary) -> Table:
    """Return the table of before, after and change; ± is one standard error over the held-out prompts."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(f"{summary.kl.before.count} held-out prompts")
    for title in ("before", "after", "change, paired"):
        table.add_column(title, justify="right")
    if summary.reward is not None:
        table.add_row("reward", *_means(summary.reward))
    table.add_row("KL, nats per sequence", *_means(summary.kl))
    table.add_row("distinct-2", *_shares(*summary.distinct_2))
    table.add_row("repeated 4-grams", *_shares(*summary.repeated_4gram))
    return table


def held_sentence(held: Held) -> str:
    """Say how close to its target the KL was at the end of training."""
    said = f"KL over the last {held.steps} steps: {number(held.kl)} {lookup(held.key).unit}"
    if not held.target:
        return f"{said}; no target was set."
    off = held.kl / held.target - 1
    return f"{said}, {percent(off)} {'above' if off > 0 else 'below'} the target of {number(held.target)}."


def first_of_each_prompt(pairs: Sequence[tuple[Sample, Sample]]) -> list[tuple[Sample, Sample]]:
    """Return one pair a prompt, in the prompts' order."""
    firsts: dict[int, tuple[Sample, Sample]] = {}
    for pair in pairs:
        firsts.setdefault(pair[0].prompt_index, pair)
    return list(firsts.values())


def _means(change: Change) -> tuple[str, str, str]:
    before, after, difference = (
        with_error(mean.value, mean.stderr) for mean in (change.before, change.after, change.difference)
    )
    return before, after, f"+{difference}" if change.difference.value > 0 else difference


def _shares(before: float, after: float) -> tuple[str, str, str]:
    return f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}"
