"""A run's numbers as a chart takes them: a column a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kleash.runs.reader import RunReader


def series(reader: RunReader, keys: Sequence[str], after: int, points: int) -> dict[str, Any]:
    """Return columns of numbers, null where one is NaN or infinite.

    Args:
        reader: of the run.
        keys: of the metrics; one that was not recorded is an empty column.
        after: the last step that is known already; -1 for none.
        points: how many values of a metric at most, at least 4; a longer column is thinned, and the answer says so.
    """
    columns = {key: reader.column(key, after, points) for key in keys}
    return {
        "last_step": reader.counts().last_step,
        "reduced": any(column.thinned for column in columns.values()),
        "series": {
            key: {"steps": column.steps, "values": _finite(column.values), "stderr": _finite(column.stderrs)}
            for key, column in columns.items()
        },
    }


def _finite(values: Sequence[float | None]) -> list[float | None]:
    return [value if value is not None and math.isfinite(value) else None for value in values]
