"""What `kleash audit` prints: the log and who wrote it, what its KLs are, the alarms, the last numbers."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from kleash.metrics import HELD_OUT, METRICS
from kleash.monitor.log import Column, Log
from kleash.monitor.logs.health import Alarm, Health
from kleash.monitor.logs.trainers import KLEASH
from kleash.report.catalogue import title, unit
from kleash.report.wording import number

COMPARISONS = ("kl/", HELD_OUT + "kl/", "update/", "sampler/")
"""Keys that compare two models; `kl` in a column's name makes it look like one."""

DETAILS = ("kl/class_", "kl/token_", "kl/sequence_", "time/", "critic/", "judge/", "throughput/", "reward/function/")
"""Keys that are left out of the last numbers: `--json` has them."""

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}


def print_audit(console: Console, log: Log, health: Health) -> None:
    """Print everything for a reader."""
    _print_head(console, log)
    _print_kls(console, log)
    _print_alarms(console, log, health)
    _print_suspects(console, health)
    _print_numbers(console, log)


def last_values(log: Log) -> dict[str, tuple[int, float]]:
    """Return the last measured value of each key and its step, in the catalogue's order."""
    found: dict[str, tuple[int, float]] = {}
    for step in log.steps:
        found |= {key: (step.step, value) for key, value in step.metrics.items() if value is not None}
    order = {key: place for place, key in enumerate(METRICS)}
    return {key: found[key] for key in sorted(found, key=lambda key: _place(key, order))}


def _place(key: str, order: dict[str, int]) -> tuple[int, bool, str]:
    return order.get(key.removeprefix(HELD_OUT), len(order)), key.startswith(HELD_OUT), key


def _print_head(console: Console, log: Log) -> None:
    steps = [step.step for step in log.steps]
    span = f"{len(steps)}, from {steps[0]} to {steps[-1]}" if steps else "none"
    head = Table.grid(padding=(0, 2))
    head.add_row("log", str(log.path))
    head.add_row("trainer", log.source)
    head.add_row("steps", span)
    if log.samples:
        head.add_row("completions", str(len(log.samples)))
    for note in log.notes:
        head.add_row("note", note)
    console.print(head)


def _print_kls(console: Console, log: Log) -> None:
    table = _table("column", "is", "kept as")
    for column in log.columns:
        if _is_comparison(column) and not (log.source == KLEASH and column.name.startswith((HELD_OUT, *DETAILS))):
            table.add_row(column.name, column.says, column.key or "–")
    if table.row_count:
        _heading(console, "KL, and what looks like it")
        console.print(table)
    unused = [column.name for column in log.columns if column.key is None and not _is_comparison(column)]
    if unused:
        _heading(console, "Columns left out")
        console.print(", ".join(unused))


def _is_comparison(column: Column) -> bool:
    if column.key == "control/beta":
        return False
    named = "kl" in column.name.lower().replace("kleash", "")
    return named or (column.key or "").startswith(COMPARISONS)


def _print_alarms(console: Console, log: Log, health: Health) -> None:
    _heading(console, "Alarms")
    console.print(_basis(log, health))
    for note in health.notes:
        console.print(note)
    for alarm in health.alarms:
        _print_alarm(console, alarm)


def _basis(log: Log, health: Health) -> str:
    """Say where the alarms are from, and what it means if there is none."""
    if health.from_record:
        return "As the run recorded them while it was trained." if health.alarms else "None was recorded in training."
    unwatched = "The run was trained without a monitor; its steps were shown to the rules now. "
    whose = unwatched if log.source == KLEASH and log.settings else ""
    if health.alarms:
        return f"{whose}What is not logged was not looked at."
    return f"{whose}None: no rule found anything in these numbers. What is not logged was not looked at."


def _print_alarm(console: Console, alarm: Alarm) -> None:
    event = alarm.event
    when = f"since step {alarm.noticed if event.began is None else event.began}, noticed in {alarm.noticed}"
    ended = "" if alarm.over is None else f", over in {alarm.over}"
    console.print(f"{event.severity:<8}  {event.name}  {when}{ended}", style=STYLES[event.severity])
    grid = Table.grid(padding=(0, 2))
    grid.add_row("", "what", event.message)
    for cause in event.causes:
        grid.add_row("", "likely", cause.text)
        grid.add_row("", "check", cause.check)
    if event.advice:
        grid.add_row("", "do", event.advice)
    console.print(grid)


def _print_suspects(console: Console, health: Health) -> None:
    if not health.suspects:
        return
    _heading(console, "Suspect checkpoints")
    table = _table("step", "folder", "under")
    for suspect in health.suspects:
        names = ", ".join(dict.fromkeys(event.name for event in suspect.events))
        table.add_row(str(suspect.checkpoint.step), str(suspect.checkpoint.path), names)
    console.print(table)


def _print_numbers(console: Console, log: Log) -> None:
    _heading(console, "Last numbers")
    table = _table("metric", "value", "unit", "step", "key")
    for key, (step, value) in last_values(log).items():
        if not key.removeprefix(HELD_OUT).startswith(DETAILS):
            table.add_row(title(key), number(value), unit(key), str(step), key)
    console.print(table)


def _heading(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _table(*titles: str) -> Table:
    table = Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    return table
