"""Reads one metric over the steps of a run: all of it, or thinned so that no spike is lost.

Twenty thousand steps do not fit a screen. A long column is cut into equal stretches of steps, and of each the smallest
and the largest value are kept, a broken number counting as the largest. SQLite does it, in a tenth of the rows.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from kleash.runs.encoding import restore

MEASURED = "FROM metrics WHERE key = :key AND step > :after AND value IS NOT NULL"

# With one min or max, the other columns come from the row that has it: sqlite.org/lang_select.html#bareagg
EXTREMES = f"""
SELECT step, min(value), stderr {MEASURED} GROUP BY (step - :first) / :stretch
UNION
SELECT step, max(value), stderr {MEASURED} GROUP BY (step - :first) / :stretch
UNION
SELECT step, value, stderr {MEASURED} AND step IN (:first, :last)
ORDER BY step
"""


@dataclass(frozen=True)
class Column:
    """A metric in the steps in which it was measured, in order.

    Args:
        steps: of the values.
        values: NaN and infinities are kept.
        stderrs: standard errors, None where there is none.
        thinned: whether values were left out.
    """

    steps: list[int]
    values: list[float]
    stderrs: list[float | None]
    thinned: bool


def read_column(connection: sqlite3.Connection, metric: str, after: int, points: int | None) -> Column:
    """Return a metric past a step.

    Args:
        connection: of the run.
        metric: its key.
        after: the last step to leave out; -1 for none.
        points: how many values at most, at least 4, the first and the last among them; None for all.
    """
    asked = {"key": metric, "after": after}
    count, first, last = connection.execute(f"SELECT count(*), min(step), max(step) {MEASURED}", asked).fetchone()
    thinned = points is not None and count > points
    if points is not None and thinned:
        stretch = -(-(last - first + 1) // ((points - 2) // 2))
        asked |= {"first": first, "last": last, "stretch": stretch}
        found = connection.execute(EXTREMES, asked).fetchall()
    else:
        found = connection.execute(f"SELECT step, value, stderr {MEASURED} ORDER BY step", asked).fetchall()
    return Column(
        [step for step, _, _ in found],
        [float(value) for _, value, _ in found],
        [restore(stderr) for _, _, stderr in found],
        thinned,
    )
