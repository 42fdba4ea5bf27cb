"""What is particular to W&B: the names that its web page gives to the columns of a chart that is exported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kleash.errors import DataError
from kleash.monitor.logs.lines import Line

HISTORY_STEP = "_step"
_DIVIDER = " - "
_BOUNDS = ("__MIN", "__MAX")


def is_history(columns: Iterable[str]) -> bool:
    """Whether columns are those of a run's history, as the API or the page exports it."""
    return HISTORY_STEP in columns


def is_chart(columns: Iterable[str], step_column: str) -> bool:
    """Whether columns are those of an exported chart: each is `RUN - METRIC` but the step's.

    A run's name may hold the divider itself, so that the last one counts.
    """
    others = [column for column in columns if column != step_column]
    return bool(others) and all(_DIVIDER in column for column in others)


def chart_lines(path: Path, lines: list[Line], step_column: str) -> list[Line]:
    """Return the rows of an exported chart under the metrics' own names, without the bounds of its averages.

    Raises:
        DataError: the chart shows more than one run.
    """
    columns = [column for column in (lines[0].values if lines else ()) if column != step_column]
    runs = sorted({column.rpartition(_DIVIDER)[0] for column in columns})
    if len(runs) > 1:
        raise DataError(
            f"{path} is a W&B chart of {len(runs)} runs: {', '.join(runs[:5])}. A log is of one run: hide the others "
            "on the page and export again."
        )
    kept = {column: column.rpartition(_DIVIDER)[2] for column in columns if not column.endswith(_BOUNDS)}
    kept[step_column] = step_column
    return [
        Line(line.where, {kept[name]: value for name, value in line.values.items() if name in kept}) for line in lines
    ]
