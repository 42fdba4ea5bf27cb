"""`kleash watch --plain`: runs in the terminal, for those who work over ssh.

One run is shown with its newest numbers and how they went, several as a list. Where the output is no terminal, each
change is a line.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kleash.cli.screen import screen
from kleash.errors import KleashError
from kleash.report.catalogue import HELD_OUT, title, unit
from kleash.report.wording import number, with_error
from kleash.runs.reader import RunReader
from kleash.web.watch_library import Entry, Library
from kleash.web.watch_list import RunList
from kleash.web.watch_views import KL_KEYS, Json

LOOK_SECONDS = 2.0
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32
STYLES = {"ok": "green", "not watched": "dim", "warning": "yellow", "critical": "bold red", "unreadable": "bold red"}

KEYS = (
    "reward/proxy",
    "reward/gold",
    *KL_KEYS,
    "control/target",
    "control/beta",
    "entropy/per_token",
    "length/mean",
    "length/stop_rate",
    "text/distinct_2",
    "text/repeated_4gram",
    "loss/preference",
    "loss/sft",
    "preference/accuracy",
    "preference/margin",
    "preference/chosen_drift",
    "preference/rejected_drift",
)
"""What is shown of one run, as far as it was measured."""


def show_once(runs: Sequence[Path]) -> None:
    """Print runs as they are now.

    Raises:
        RunDirError: one of them is not there.
    """
    with _opened(runs) as (library, listed):
        screen().print(picture(library, listed))


def follow(runs: Sequence[Path]) -> None:
    """Show runs as they go on until Ctrl-C: on the whole screen, or a line a change where there is no terminal.

    Raises:
        RunDirError: one of them is not there.
    """
    console = screen()
    with _opened(runs) as (library, listed):
        try:
            if not console.is_terminal:
                for line in changes(listed):
                    console.print(line)
            with Live(picture(library, listed), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(LOOK_SECONDS)
                    live.update(picture(library, listed), refresh=True)
        except KeyboardInterrupt:
            return


def changes(listed: RunList) -> Iterator[str]:
    """Yield a line for each run, and another whenever it has changed, without end."""
    told: dict[str, str] = {}
    while True:
        for run in listed.summaries():
            news = sentence(run)
            if told.get(run["id"]) != news:
                told[run["id"]] = news
                yield f"{datetime.now():%H:%M:%S} {news}"
        time.sleep(LOOK_SECONDS)


def sentence(run: Json) -> str:
    """Return how a run stands, as one line."""
    if run["problem"]:
        return f"{run['name']}: {run['problem']}"
    said = [f"{run['name']} {run['status']}", f"step {_steps(run)}"]
    said += [f"{name} {text}" for name, text in (("reward", _reward(run)), ("KL", _kl(run)), ("beta", _beta(run)))]
    alarms = ", ".join(f"{alarm['severity']} {alarm['name']}" for alarm in run["alarms"])
    return ", ".join([*said, alarms or "no open alarm"])


def picture(library: Library, listed: RunList) -> RenderableType:
    """Return what the screen shows now: the one run there is, or the list."""
    runs = listed.summaries()
    if not runs:
        return Text("There are no runs here yet. One that begins is shown by itself.")
    if len(runs) > 1:
        return Group(_list(runs), *_alarms(runs))
    entry = library.entry(runs[0]["id"])
    return Group(_list(runs), Text(), _numbers(library, entry), *_alarms(runs))


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return values as a row of bars, of as many neighbours a bar as it takes; a broken one is a cross."""
    if not values:
        return ""
    means = np.array([part.mean() for part in np.array_split(np.array(values), min(width, len(values)))])
    finite = means[np.isfinite(means)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] if np.isfinite(mean) else "×" for mean in means.tolist())


@contextmanager
def _opened(runs: Sequence[Path]) -> Iterator[tuple[Library, RunList]]:
    with tempfile.TemporaryDirectory(prefix="kleash-watch-") as imports:
        library = Library(runs, Path(imports))
        yield library, RunList(library)


def _list(runs: Sequence[Json]) -> Table:
    table = _table("run", "status", "steps", "reward", "KL", "beta", "health")
    for run in runs:
        health = Text(run["health"], STYLES[run["health"]])
        if run["problem"]:
            table.add_row(run["name"], "", "", "", "", "", health)
        else:
            table.add_row(run["name"], run["status"], _steps(run), _reward(run), _kl(run), _beta(run), health)
    return table


def _numbers(library: Library, entry: Entry) -> RenderableType:
    try:
        with library.open(entry) as reader:
            return _measured(reader)
    except KleashError:
        return Text()  # its sentence stands with the alarms


def _measured(reader: RunReader) -> Table:
    table = _table("metric", "last", "unit", "how it went")
    for key in (*KEYS, *(HELD_OUT + key for key in KEYS)):
        column = reader.column(key)
        if column.values:
            last = with_error(column.values[-1], column.stderrs[-1])
            table.add_row(title(key), last, unit(key), sparkline(column.values))
    return table


def _alarms(runs: Sequence[Json]) -> list[Text]:
    """Return a paragraph for each open alarm and each run that cannot be read."""
    lines = []
    for run in runs:
        if run["problem"]:
            lines.append(Text(f"\n{run['name']}: {run['problem']}", STYLES["unreadable"]))
        for alarm in run["alarms"]:
            head = f"\n{run['name']}: {alarm['severity']}, {alarm['title']}, since step {alarm['began']}. "
            lines.append(Text(head, STYLES[alarm["severity"]]).append(alarm["message"], "default"))
    return lines


def _table(*titles: str) -> Table:
    table = Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    return table


def _steps(run: Json) -> str:
    return f"{run['steps']} of {run['planned']}" if run["planned"] else str(run["steps"])


def _reward(run: Json) -> str:
    return number(run["latest"]["reward"]) + _held_out(run, "reward")


def _kl(run: Json) -> str:
    kl = number(run["latest"]["kl"])
    in_unit = f"{kl} {run['latest']['kl_unit']}" if run["latest"]["kl_unit"] else kl
    return in_unit + _held_out(run, "kl")


def _held_out(run: Json, name: str) -> str:
    """Return where a number comes from if training does not measure it."""
    latest = run["latest"]
    held_out = (latest[f"{name}_key"] or "").startswith(HELD_OUT)
    return f" (held out, step {latest[f'{name}_step']})" if held_out else ""


def _beta(run: Json) -> str:
    return number(run["latest"]["beta"])
