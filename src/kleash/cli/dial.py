"""What `kleash export --max-nats` and `kleash gauge --dial` print and write: a row for each scale of the adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from kleash.cli.files import STDOUT, check_files, replace_file
from kleash.cli.screen import bars, screen

if TYPE_CHECKING:
    from kleash.gauge.dial_search import Dial

SCALES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""What `kleash gauge --dial` measures."""


def show(run_dir: Path, *, prompts: str | None, json_path: str | None, out: Path | None) -> None:
    """Measure reward and KL of a run's newest checkpoint over the scale of its adapter, and write what is asked for.

    Args:
        run_dir: the run's folder.
        prompts: a file of prompts in place of the run's held-out ones.
        json_path: where every number is written; `-` is standard output, and the table goes to standard error.
        out: where the page is written.

    Raises:
        KleashError: a run that has no adapter to scale, or prompts that cannot be used.
    """
    check_files(json_path, out, "dial.html")
    console = screen(stderr=json_path == STDOUT)
    with bars(console, transient=True) as progress:
        from kleash.training.dial import measure_dial

        dial = measure_dial(run_dir, SCALES, prompts=prompts, progress=_Phases(progress))
    print_dial(console, dial)
    text = json.dumps(dial.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if json_path == STDOUT:
        print(text, end="")
    elif json_path is not None:
        replace_file(Path(json_path), text)
        console.print(f"numbers    {json_path}", soft_wrap=True)
    if out is not None:
        from kleash.gauge.page_dial import render

        replace_file(out, render(dial))
        console.print(f"page       {out}", soft_wrap=True)


def print_dial(console: Console, dial: Dial) -> None:
    """Print the result in a sentence, and a row for each scale."""
    from kleash.gauge.page_dial import headline, notes, short_rows

    console.print()
    console.print(Text(headline(dial), "bold"), soft_wrap=True)
    titles, cells = short_rows(dial)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right")
    for row in cells:
        table.add_row(*row, style="bold" if dial.scale is not None and row[0] == f"{dial.scale:g}" else None)
    console.print()
    console.print(table)
    console.print()
    for note in notes(dial):
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)
    of = f"{dial.prompts} prompts ({dial.settings['prompts']}), {dial.samples} replies to each"
    console.print(Text(f"KL in nats, with 95 % intervals over {of}.", "dim"), soft_wrap=True)


class _Phases:
    """A bar that begins anew with each phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("loading", total=None, count="")
        self._phase = "loading"

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Move the bar."""
        if phase != self._phase:
            self._phase = phase
            self._progress.reset(self._task)
        self._progress.update(self._task, description=phase, completed=done, total=total, count=f"{done}/{total}")
