"""`kleash runs list` and `kleash runs show`: what the run directories say, read without the model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from kleash.cli.screen import screen
from kleash.config.describe import UNSET, run_settings, toml
from kleash.errors import RunDirError
from kleash.metrics import METRICS
from kleash.monitor.suspects import Window, suspect_windows
from kleash.monitor.watched import measured_in, was_watched, windows_over
from kleash.report.catalogue import HELD_OUT, title, unit
from kleash.report.run_summary import algorithm, controlled_key
from kleash.report.wording import number, with_error
from kleash.runs.reader import RunReader, list_runs
from kleash.runs.records import SEVERITIES, Event, Split
from kleash.runs.schema import REPORT
from kleash.web.watch_views import shown_setting

COLUMNS = ("run", "status", "health", "algorithm", "model", "steps", "result", "KL", "beta", "started")
REWARD = ("reward", "reward/proxy", "eval/reward/proxy")
ACCURACY = ("accuracy", "eval/preference/accuracy", "preference/accuracy")
RESULTS = {"dpo": ACCURACY, "reward_model": ACCURACY, "sft": ("loss", "eval/loss/sft", "loss/sft")}
"""What a run is about, by its algorithm: the name, and the metrics that tell it, the first measured one counts."""


def list_all(folder: Path) -> None:
    """Print one line a run. A run that cannot be read keeps its line, and its reason goes to standard error.

    Raises:
        RunDirError: there is no such folder.
    """
    table = _table(*COLUMNS)
    reasons = []
    found = list_runs(folder)
    for run_dir in found:
        try:
            table.add_row(*_overview(run_dir))
        except RunDirError as error:
            table.add_row(str(run_dir), "unreadable")
            reasons.append(str(error))
    console = screen()
    if found:
        console.print(table)
    else:
        console.print(f"There are no runs in {folder}. `kleash demo` makes one.")
    for reason in reasons:
        print(reason, file=sys.stderr)


def show(run_dir: Path) -> None:
    """Print a run: how it stands, what was set, its last numbers, events, checkpoints and where its report is.

    Raises:
        RunDirError: no run there, or one that cannot be read.
    """
    console = screen()
    with RunReader(run_dir) as reader:
        _print_head(console, reader)
        events = reader.events()
        windows = suspect_windows(events)
        for heading, table in (
            ("Settings that differ from the defaults", _settings(reader)),
            ("Last numbers", _numbers(reader)),
            ("Alarms", _alarms(windows)),
            ("Events", _events(events, windows)),
            ("Checkpoints", _checkpoints(reader, windows)),
        ):
            if table.row_count:
                console.print(f"\n{heading}", style="bold")
                console.print(table)


def _overview(run_dir: Path) -> list[str]:
    with RunReader(run_dir) as reader:
        config = reader.config
        kl_key = controlled_key(config)
        kl = _last(reader, kl_key, HELD_OUT + kl_key)
        return [
            str(run_dir),
            reader.status,
            health(config, reader.events()),
            _algorithm(reader),
            str(config.get("model", {}).get("name", number(None))),
            str(_steps_done(reader)),
            _result(reader),
            kl if kl == number(None) else f"{kl} {unit(kl_key)}",
            _last(reader, "control/beta"),
            _minute(reader.created_at),
        ]


def _print_head(console: Console, reader: RunReader) -> None:
    planned = reader.config.get("training", {}).get("steps")
    samples = reader.sample_counts()
    report = reader.path / REPORT
    head = Table.grid(padding=(0, 2))
    reason = f": {reader.status_reason}" if reader.status_reason else ""
    head.add_row("run", str(reader.path))
    head.add_row("status", reader.status + reason)
    head.add_row("started", f"{_minute(reader.created_at)} UTC")
    head.add_row("algorithm", _algorithm(reader))
    head.add_row("steps", f"{_steps_done(reader)} of {number(planned)}")
    head.add_row("samples", ", ".join(f"{samples.get(split, 0)} {split}" for split in get_args(Split)))
    head.add_row("report", str(report) if report.exists() else f"none yet: kleash report {reader.path}")
    console.print(head)


def _settings(reader: RunReader) -> Table:
    config = dict(_leaves(reader.config))
    defaults = {
        entry.key: entry.default
        for entry in run_settings()
        if entry.when is None or config.get(entry.when.key) in entry.when.kinds
    }
    table = _table("setting", "value")
    for key, value in config.items():
        text = UNSET if value is None else toml(value)
        if text != defaults.get(key, UNSET):
            table.add_row(key, UNSET if value is None else toml(shown_setting(key, value)))
    return table


def _numbers(reader: RunReader) -> Table:
    """Return the last value of every metric with its error, in training and on the held-out prompts."""
    measured = {key.removeprefix(HELD_OUT) for key in reader.metric_keys()}
    table = _table("metric", "training", "held out", "unit", "key")
    for key in [*METRICS, *sorted(measured - METRICS.keys())]:
        if key in measured:
            table.add_row(title(key), _last(reader, key), _last(reader, HELD_OUT + key), unit(key), key)
    return table


def health(settings: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Return the worst of the alarms that are open at the end of the record, with how many there are besides.

    Args:
        settings: of the run, which tell whether a monitor watched it.
        events: of the run.
    """
    if not was_watched(settings, events):
        return "not watched"
    still = [window.event for window in suspect_windows(events) if window.last is None]
    if not still:
        return "no alarm"
    worst = max(still, key=lambda event: SEVERITIES.index(event.severity))
    return f"{worst.severity}: {worst.name}" + (f" and {len(still) - 1} more" if len(still) > 1 else "")


def _alarms(windows: Sequence[Window]) -> Table:
    """Return warnings and critical alarms, each with the steps that it lasted."""
    table = _table("began", "last", "severity", "alarm", "what happened")
    for window in windows:
        event = window.event
        last = "open" if window.last is None else str(window.last)
        table.add_row(str(window.first), last, event.severity, event.name, event.message)
    return table


def _events(events: Sequence[Event], windows: Sequence[Window]) -> Table:
    """Return what is no alarm: what was done about some, and what is only worth knowing."""
    alarms = {window.event.name for window in windows}
    table = _table("step", "severity", "event", "what happened")
    for event in events:
        if event.name not in alarms:
            table.add_row(str(event.step), event.severity, event.name, event.message)
    return table


def _checkpoints(reader: RunReader, windows: Sequence[Window]) -> Table:
    settings = reader.config
    table = _table("step", "suspect because of", "folder")
    for checkpoint in reader.checkpoints():
        gone = "" if checkpoint.path.exists() else " (gone)"
        over = windows_over(windows, measured_in(settings, checkpoint.step))
        alarms = ", ".join(window.event.name for window in over)
        table.add_row(str(checkpoint.step), alarms or number(None), f"{checkpoint.path}{gone}")
    return table


def _table(*titles: str) -> Table:
    table = Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    return table


def _steps_done(reader: RunReader) -> int:
    return reader.measured("time/total")


def _algorithm(reader: RunReader) -> str:
    return algorithm(reader.config) or number(None)


def _result(reader: RunReader) -> str:
    """Return the number that a run is about, with its name: held out where training does not measure the same."""
    name, *keys = RESULTS.get(algorithm(reader.config), REWARD)
    value = _last(reader, *keys)
    return value if value == number(None) else f"{name} {value}"


def _last(reader: RunReader, *keys: str) -> str:
    """Return the last value of the first of some metrics that the run has measured."""
    point = next((found for key in keys if (found := reader.last_point(key))), None)
    return with_error(*point[1:]) if point else number(None)


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
