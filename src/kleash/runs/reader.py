"""Reads a run directory: while it is being written, after it was killed, from a read-only disk.

Needs neither torch nor the model: a finished run can be read on a laptop.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

from kleash.errors import RunDirError
from kleash.runs import rows, samples
from kleash.runs.columns import Column, read_column
from kleash.runs.encoding import restore
from kleash.runs.records import Checkpoint, Event, Sample, Split, Status, Step
from kleash.runs.samples import FoundSamples, SampleNumbers, SampleQuery
from kleash.runs.schema import DATABASE, check_database


@dataclass(frozen=True)
class Counts:
    """How much of a run is recorded: its highest step (-1 before the first) and the number of rows of each kind."""

    last_step: int
    steps: int
    events: int
    checkpoints: int
    samples: int


class RunReader:
    """A read-only view of a run; every call sees what has been committed by then.

    Args:
        path: the run's folder.

    Raises:
        RunDirError: no such folder, no run in it, a damaged or foreign file, or one from a newer Kleash.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        database = self.path / DATABASE
        if not self.path.is_dir():
            raise RunDirError(
                f"There is no run directory {self.path}. Check the name; `kleash runs list` shows those there are."
            )
        if not database.is_file():
            raise RunDirError(
                f"{self.path} is not a run: it holds no {DATABASE}. Give the folder that a training run made."
            )
        self._connection = _open(database)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings the run was started with."""
        return cast(dict[str, Any], json.loads(self._run("config")))

    @property
    def meta(self) -> dict[str, Any]:
        """Versions, fingerprints and other facts, `schema_version` among them."""
        stored = self._connection.execute("SELECT key, value FROM meta")
        return {key: json.loads(value) for key, value in stored}

    @property
    def created_at(self) -> str:
        """When the run began: ISO 8601, UTC."""
        return self._run("created_at")

    @property
    def status(self) -> Status:
        """How the run stands. A run that was killed could not say so: it still reads "running"."""
        return cast(Status, self._run("status"))

    @property
    def status_reason(self) -> str:
        """Why the run stands so, in words; may be empty."""
        return self._run("reason")

    def steps(self) -> list[Step]:
        """Return every step, in order."""
        return rows.select_steps(self._connection)

    def series(self, metric: str) -> list[tuple[int, float, float | None]]:
        """Return (step, value, standard error or None) for each step in which the metric was measured."""
        found = self._connection.execute(
            "SELECT step, value, stderr FROM metrics WHERE key = ? AND value IS NOT NULL ORDER BY step",
            (metric,),
        )
        return [(step, float(value), restore(stderr)) for step, value, stderr in found]

    def column(self, metric: str, after: int = -1, points: int | None = None) -> Column:
        """Return a metric in the steps past one in which it was measured; thinned to so many points at most."""
        return read_column(self._connection, metric, after, points)

    def metric_keys(self) -> list[str]:
        """Return the keys that the run has recorded, by name: found one after the other in the index."""
        found = self._connection.execute(
            "WITH RECURSIVE found(key) AS (SELECT min(key) FROM metrics UNION ALL"
            " SELECT (SELECT min(key) FROM metrics WHERE key > found.key) FROM found WHERE found.key IS NOT NULL)"
            " SELECT key FROM found WHERE key IS NOT NULL"
        )
        return [key for (key,) in found]

    def last_point(self, metric: str) -> tuple[int, float, float | None] | None:
        """Return (step, value, standard error or None) where a metric was last measured; None where it never was."""
        found = self._connection.execute(
            "SELECT step, value, stderr FROM metrics WHERE key = ? AND value IS NOT NULL ORDER BY step DESC LIMIT 1",
            (metric,),
        ).fetchone()
        return None if found is None else (found[0], float(found[1]), restore(found[2]))

    def last_value(self, metric: str) -> float | None:
        """Return the newest value of a metric, of whatever step; None where it was never measured."""
        point = self.last_point(metric)
        return None if point is None else point[1]

    def measured(self, metric: str) -> int:
        """Return in how many steps a metric was measured."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM metrics WHERE key = ? AND value IS NOT NULL", (metric,)
        ).fetchone()
        return cast(int, count)

    def counts(self) -> Counts:
        """Return how much is recorded, from the indices alone."""
        return Counts(
            *self._connection.execute(
                "SELECT (SELECT coalesce(max(step), -1) FROM steps), (SELECT count(*) FROM steps),"
                " (SELECT count(*) FROM events), (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM samples)"
            ).fetchone()
        )

    def find_samples(self, query: SampleQuery) -> FoundSamples:
        """Return a page of the samples that a query asks for: their numbers and as much text as a list shows."""
        return samples.find_samples(self._connection, query)

    def find_sample(self, split: Split, step: int, prompt_index: int, sample_index: int) -> Sample | None:
        """Return the sample of a place, or None."""
        return samples.find_sample(self._connection, split, step, prompt_index, sample_index)

    def find_prompt(self, split: Split, prompt_index: int, limit: int) -> list[SampleNumbers]:
        """Return the numbers of a prompt's samples by step, over the splits that share it; `limit` of them at most."""
        return samples.find_prompt(self._connection, split, prompt_index, limit)

    def sample_counts(self) -> dict[Split, int]:
        """Return the number of samples by split."""
        return samples.count_samples(self._connection)

    def samples(self, split: Split | None = None, step: int | None = None) -> list[Sample]:
        """Return the samples of a split and a step; None means all of them."""
        return rows.select_samples(self._connection, split, step)

    def events(self) -> list[Event]:
        """Return every event, in the order written."""
        return rows.select_events(self._connection)

    def checkpoints(self) -> list[Checkpoint]:
        """Return every recorded checkpoint, by step."""
        return rows.select_checkpoints(self._connection, self.path)

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the recorded checkpoint of the highest step whose folder exists, or None."""
        return next((found for found in reversed(self.checkpoints()) if found.path.exists()), None)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, column: str) -> str:
        (value,) = self._connection.execute(f"SELECT {column} FROM run").fetchone()
        return cast(str, value)


def list_runs(folder: Path | str) -> list[Path]:
    """Return the run directories directly inside a folder, by name.

    Raises:
        RunDirError: there is no such folder.
    """
    parent = Path(folder)
    if not parent.is_dir():
        raise RunDirError(
            f"There is no folder {parent}, so there are no runs in it. Give the folder that holds them, often `runs`."
        )
    return sorted(child for child in parent.iterdir() if (child / DATABASE).is_file())


def _open(database: Path) -> sqlite3.Connection:
    """Open read-only, with the fallback that a read-only folder needs.

    A database in WAL mode wants a small index file beside it. Where the folder forbids that, SQLite can read
    the database alone, which is complete as long as no write-ahead log waits beside it.
    """
    try:
        connection = _connect(database, "mode=ro")
    except sqlite3.OperationalError as error:
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            raise RunDirError(
                f"{database} cannot be opened ({error}): the run was killed and its last steps wait in "
                f"{log.name}, which can only be read where the folder can be written. Copy the folder to "
                "such a place and read it there."
            ) from error
        connection = _connect(database, "mode=ro&immutable=1")
    try:
        check_database(connection, database)
    except RunDirError:
        connection.close()
        raise
    return connection


def _connect(database: Path, options: str) -> sqlite3.Connection:
    """Open and touch the file, so that one that cannot be opened says so here and not later."""
    location = f"file:{quote(str(database.absolute()))}?{options}"
    connection = sqlite3.connect(location, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        raise
    except sqlite3.DatabaseError:
        pass  # not SQLite, or damaged: `check_database` says so in a sentence
    return connection
