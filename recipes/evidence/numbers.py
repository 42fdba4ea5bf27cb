"""Means over seeds with their standard errors, and tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from kleash.report.wording import with_error


def standard_error(values: Sequence[float]) -> float | None:
    """Return that of a mean over seeds; None for a single seed."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def over_seeds(values: Sequence[float]) -> str:
    """Return "mean ± standard error" of one number a seed."""
    return with_error(fmean(values), standard_error(values))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar in a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
