"""Logs that are a table: CSV and JSON Lines, of verl, tinker, prime-rl, W&B, Kleash's mirror, or anyone's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kleash.errors import DataError, near_match
from kleash.monitor.logs import wandb
from kleash.monitor.logs.lines import Line, csv_lines, json_lines
from kleash.monitor.logs.raw import Entry, Raw, gather, numbers, to_step

STEP = "step"
STEP_COLUMNS = (
    "train/global_step", "trainer/global_step", "training/global_step", "global_step", STEP, "Step", "_step",
    "progress/batch", "iteration", "update",
)  # fmt: skip
"""Where the step is, the best first: W&B's own `_step` counts calls of its log function, not updates."""

_VERL_DATA = "data"


def read(path: Path, text: str, columns: Mapping[str, str]) -> Raw:
    """Read a table.

    Args:
        path: the file.
        text: what it holds.
        columns: the user's column map, which may name the step's column.

    Raises:
        DataError: a line that cannot be read, or no column with the step.
    """
    if text.lstrip().startswith(("{", "[")):
        form, (lines, notes) = "JSON Lines", json_lines(path, text)
        lines = [_flat(line) for line in lines]
    else:
        form, (lines, notes) = "CSV", csv_lines(path, text)
    names = dict.fromkeys(str(name) for line in lines for name in line.values)
    step_column = _step_column(path, names, columns)
    if wandb.is_chart(names, step_column):
        form, lines = "A chart exported from W&B as CSV", wandb.chart_lines(path, lines, step_column)
    elif wandb.is_history(names):
        form = f"A W&B history as {form}"
    skipped: list[str] = []
    rows, doubled = gather(_entries(lines, step_column, skipped))
    if skipped:
        notes = [*notes, f"{len(skipped)} lines without {step_column} were skipped, the first is {skipped[0]}."]
    return Raw(path, f"{form} with the step in {step_column}", rows, notes=[*notes, *doubled])


def _entries(lines: Iterable[Line], step_column: str, skipped: list[str]) -> Iterator[Entry]:
    for where, values in lines:
        step = values.get(step_column)
        if step is None or step == "":
            skipped.append(where)
            continue
        named = numbers({name: value for name, value in values.items() if name not in STEP_COLUMNS})
        named.pop(step_column, None)
        yield Entry(where, to_step(step, where, step_column), named)


def _flat(line: Line) -> Line:
    """Return a line of verl, `{"step": 3, "data": {...}}`, as one flat object; others as they are."""
    data = line.values.get(_VERL_DATA)
    if isinstance(data, dict) and STEP in line.values:
        return Line(line.where, {**data, STEP: line.values[STEP]})
    return line


def _step_column(path: Path, names: Mapping[str, None], columns: Mapping[str, str]) -> str:
    given = next((name for name, key in columns.items() if key == STEP), None)
    if given is not None:
        if given not in names:
            raise DataError(
                f"--column {given}=step: {path} has no column '{given}'.{near_match(given, names)} It has: "
                f"{', '.join(list(names)[:12])}."
            )
        return given
    found = next((name for name in STEP_COLUMNS if name in names), None)
    if found is None:
        if not names:
            raise DataError(f"{path} holds no line yet. Audit it when a step has been logged.")
        raise DataError(
            f"{path} has no column with the step: looked for {', '.join(STEP_COLUMNS)}, found "
            f"{', '.join(list(names)[:12])}. Name it, such as --column NAME=step."
        )
    return found
