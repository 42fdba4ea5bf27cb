"""Numbers of real runs, kept as compressed CSV: what alarms look at, rounded to four significant digits.

`python -m benchmarks.alarms trace RUN NAME` writes one from a run directory.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.alarms.numbers import Array, Numbers
from kleash.runs.reader import RunReader
from kleash.runs.records import Step

FOLDER = Path(__file__).parent / "traces"
STDERR = " stderr"
LEFT_OUT = ("time/", "throughput/", "loss/", "judge/", "eval/loss/", "eval/judge/")
"""Keys that no rule looks at."""


def names() -> list[str]:
    """Return the names of the traces."""
    return sorted(path.name.removesuffix(".csv.gz") for path in FOLDER.glob("*.csv.gz"))


def write(run: Path, name: str) -> Path:
    """Write the trace of a run; return its path."""
    path = FOLDER / f"{name}.csv.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(to_csv(RunReader(run).steps()).encode(), mtime=0))
    return path


@cache
def read(name: str) -> Numbers:
    """Return the numbers of a trace."""
    return from_csv(gzip.decompress((FOLDER / f"{name}.csv.gz").read_bytes()).decode())


def to_csv(steps: Sequence[Step]) -> str:
    """Return a table with a row a step and a column a key; standard errors in columns of their own."""
    keys = sorted({key for step in steps for key in step.metrics if not key.startswith(LEFT_OUT)})
    with_stderr = [key for key in keys if any(step.stderr.get(key) for step in steps)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *(key + STDERR for key in with_stderr)])
    for step in steps:
        row = [*(step.metrics.get(key) for key in keys), *(step.stderr.get(key) for key in with_stderr)]
        writer.writerow(["" if value is None else f"{value:.4g}" for value in row])
    return text.getvalue()


def from_csv(text: str) -> Numbers:
    """Return the numbers of such a table."""
    header, *rows = csv.reader(io.StringIO(text))
    columns: dict[str, Array] = {
        name: np.array([float(row[column] or "nan") for row in rows]) for column, name in enumerate(header)
    }
    return Numbers(
        {name: array for name, array in columns.items() if not name.endswith(STDERR)},
        {name.removesuffix(STDERR): array for name, array in columns.items() if name.endswith(STDERR)},
    )
