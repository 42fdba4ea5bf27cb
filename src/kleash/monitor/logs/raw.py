"""A log as it was written: the trainer's own columns by step, before anything is known of what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kleash.errors import DataError
from kleash.monitor.log import LoggedSample
from kleash.runs.records import Checkpoint

LARGEST_STEP = 2**53
"""Beyond it floats skip whole numbers."""


@dataclass(frozen=True)
class Raw:
    """What a reader of one format found.

    Args:
        path: what was read.
        format: the format in words.
        rows: values by the trainer's own column, by step, in order.
        notes: what was skipped, torn or doubled.
        samples: completions, where they were logged.
        settings: of the run, as far as they are in the log.
        checkpoints: what can be gone back to.
        tag: of TRL's trainer, where something besides the columns says it; empty otherwise.
        tag_from: what says it.
    """

    path: Path
    format: str
    rows: Mapping[int, Mapping[str, float]]
    notes: Sequence[str] = ()
    samples: Sequence[LoggedSample] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Sequence[Checkpoint] = ()
    tag: str = ""
    tag_from: str = ""


class Entry(NamedTuple):
    """One line or row of a log, and the place it was read from, such as `metrics.jsonl:3`."""

    where: str
    step: int
    values: Mapping[str, float]


def gather(entries: Iterable[Entry]) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Put entries of the same step together, in the order of the steps.

    Trainers log a step's evaluation beside its training. A column that a step has twice, with two values, keeps the
    last one, and a note says so.
    """
    rows: dict[int, dict[str, float]] = {}
    doubled: dict[int, set[str]] = {}
    for entry in entries:
        row = rows.setdefault(entry.step, {})
        again = {name for name, value in entry.values.items() if name in row and not _same(row[name], value)}
        if again:
            doubled.setdefault(entry.step, set()).update(again)
        row.update(entry.values)
    return {step: rows[step] for step in sorted(rows)}, _doubled_note(doubled)


def to_number(value: object) -> float | None:
    """Return a value as a float, NaN and the infinities among them; None for what is no number."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def numbers(values: Mapping[Any, object]) -> dict[str, float]:
    """Return those of some named values that are numbers."""
    found = {str(name): to_number(value) for name, value in values.items() if name is not None}
    return {name: value for name, value in found.items() if value is not None}


def to_step(value: object, where: str, column: str) -> int:
    """Return a step as an integer.

    Raises:
        DataError: it is no whole number, or too large for one.
    """
    number = to_number(value)
    if number is None or not abs(number) <= LARGEST_STEP or number != int(number):
        raise DataError(
            f"{where}: {column} is {value!r}, which is no step: steps are whole numbers up to {LARGEST_STEP}. Mend the "
            "line, or name the step's column with --column NAME=step."
        )
    return int(number)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _doubled_note(doubled: Mapping[int, set[str]]) -> list[str]:
    if not doubled:
        return []
    step, columns = next(iter(doubled.items()))
    shown = ", ".join(sorted(columns)[:3]) + (", ..." if len(columns) > 3 else "")
    count = "1 step is" if len(doubled) == 1 else f"{len(doubled)} steps are"
    return [
        f"{count} in the log more than once with different values, the first is step {step} ({shown}): the last value "
        "counts. A run that was resumed does that."
    ]
