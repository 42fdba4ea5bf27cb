"""What a sweep has found: the values side by side, the one to take, and two pages over its runs."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kleash.cli.files import replace_file
from kleash.cli.lines import labelled
from kleash.errors import DataError, RunDirError
from kleash.frontier.analysis import analyse
from kleash.frontier.page import render
from kleash.frontier.points import Point as Measured
from kleash.frontier.points import read_run
from kleash.sweep import page
from kleash.sweep.points import Point
from kleash.sweep.recommend import Recommendation, recommend
from kleash.sweep.record import Sweep

PAGE, FRONTIER = "sweep.html", "frontier.html"


def print_result(console: Console, sweep: Sweep, max_nats: float | None) -> None:
    """Write both pages, and print the values and the recommendation; where there is none, say why."""
    measured = _read(console, sweep)
    evaluations = [found for point in measured.values() for found in point]
    if not evaluations:
        return
    try:
        frontier = analyse(evaluations, max_nats)
        found = recommend(sweep.points, measured, max_nats, frontier.choice.by)
    except DataError as error:
        console.print(labelled("note", f"no value is recommended: {error}"), soft_wrap=True)
        return
    replace_file(sweep.folder / FRONTIER, render(frontier))
    replace_file(sweep.folder / PAGE, page.render(found, sweep.folder.name, FRONTIER))
    console.print(_table(found))
    console.print()
    first, *rest = found.sentences()
    console.print(Text(first, "bold"), soft_wrap=True)
    for sentence in rest:
        console.print(sentence, soft_wrap=True)
    console.print()
    for line in _next(found):
        console.print(line, soft_wrap=True)
    console.print(labelled("page", str(sweep.folder / PAGE)), soft_wrap=True)
    console.print(labelled("frontier", str(sweep.folder / FRONTIER)), soft_wrap=True)


def _read(console: Console, sweep: Sweep) -> dict[Point, list[Measured]]:
    """Return the held-out evaluations of every point that has some; say which have none, and why."""
    measured = {}
    for point in sweep.points:
        try:
            measured[point] = read_run(sweep.run_dir(point))
        except (DataError, RunDirError) as error:
            console.print(labelled("note", f"{point.label} is not compared: {error}"), soft_wrap=True)
    return measured


def _table(found: Recommendation) -> Table:
    """Return a line for each value, the best first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    titles, rows = page.numbers(found)
    for title in titles:
        table.add_column(title)
    for row in rows:
        table.add_row(*row)
    return table


def _next(found: Recommendation) -> list[str]:
    """Return what to paste to train with the value, and how to have the model that was measured."""
    if found.best is None:
        return []
    words = " ".join(f"{key}={text}" for key, text in found.best.settings.items())
    best = found.best.best_run
    return [
        *([labelled("paste", words)] if words else []),
        labelled("model", f"kleash export {best.source.name} --step {best.at}"),
    ]
