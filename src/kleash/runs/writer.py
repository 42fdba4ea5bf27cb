"""Writes a run directory: one step is one transaction, then one line of the mirror.

A process killed at any moment loses at most the step it was writing. What is not here: checkpoints
themselves, which the training loop saves before it records them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from kleash.errors import RunDirError
from kleash.runs import mirror, rows
from kleash.runs.encoding import dump
from kleash.runs.records import Checkpoint, Event, Sample, Status, Step
from kleash.runs.schema import DATABASE, MIRROR, check_database, create_tables, upgrade

BUSY_SECONDS = 30.0


class RunWriter:
    """The one writer of a run. Made by `create` or `resume`; a context manager that closes itself.

    Attributes:
        path: the run's folder.
        notices: what the user should be told once about how this run is stored; often empty.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.notices = choose_journal(connection)
        self._connection = connection
        self._mirror = (path / MIRROR).open("a", encoding="utf-8")

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, object], meta: Mapping[str, object]) -> Self:
        """Begin a run in a folder that does not exist yet, or is empty.

        Args:
            path: the folder, made with its parents.
            config: the resolved settings, ready for JSON.
            meta: versions, fingerprints, host: anything about the run that is not a setting, ready for JSON.

        Raises:
            RunDirError: the run exists, the folder holds other files, or it cannot be written.
        """
        folder = Path(path)
        _claim(folder)
        connection = _connect(folder / DATABASE)
        try:
            with _transaction(connection, f"begin the run in {folder}"):
                create_tables(connection)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                connection.execute(
                    "INSERT INTO run (id, config, created_at, status) VALUES (1, ?, ?, 'running')",
                    (dump(dict(config)), now),
                )
                _put_meta(connection, meta)
        except BaseException:
            connection.close()
            raise
        return cls(folder, connection)

    @classmethod
    def resume(cls, path: Path | str, step: int, *, checkpoint: int | None = None) -> Self:
        """Take a run up again after `step`: drop what came later, from the database and from the mirror.

        Args:
            path: the run's folder.
            step: the last recorded step to keep; -1 for none.
            checkpoint: the last to keep, that of the resumed training; by default it is one more than `step`.

        Raises:
            RunDirError: no run there, one that cannot be written, or a step that was never recorded.
        """
        folder = Path(path)
        if not (folder / DATABASE).is_file():
            raise RunDirError(
                f"There is no run to resume in {folder}: it holds no {DATABASE}. Check the path, or start "
                "the run without resuming."
            )
        connection = _connect(folder / DATABASE)
        try:
            check_database(connection, folder / DATABASE)
            _check_recorded(connection, folder, step)
            with _transaction(connection, f"resume the run in {folder}"):
                upgrade(connection)
                rows.delete_after(connection, step, step + 1 if checkpoint is None else checkpoint)
                connection.execute("UPDATE run SET status = 'running', reason = ''")
            mirror.rewrite(folder / MIRROR, rows.select_steps(connection))
        except BaseException:
            connection.close()
            raise
        return cls(folder, connection)

    def write_step(self, step: Step, samples: Iterable[Sample] = (), events: Iterable[Event] = ()) -> None:
        """Record a step with its samples and events: all of it or, if the process dies, none of it.

        Raises:
            RunDirError: the disk refuses, or the step is recorded already.
        """
        with _transaction(self._connection, f"record step {step.step} in {self.path}"):
            rows.insert_step(self._connection, step)
            rows.insert_samples(self._connection, samples)
            for event in events:
                rows.insert_event(self._connection, event)
        try:
            self._mirror.write(mirror.line(step))
            self._mirror.flush()
        except OSError as error:
            raise RunDirError(
                f"Step {step.step} is in {DATABASE}, but {self.path / MIRROR} cannot be written ({error}). "
                "Mend the disk and resume: that writes the mirror anew."
            ) from error

    def write_samples(self, samples: Iterable[Sample]) -> None:
        """Record samples that belong to no training step, such as those before and after training."""
        with _transaction(self._connection, f"record samples in {self.path}"):
            rows.insert_samples(self._connection, samples)

    def write_event(self, event: Event) -> None:
        """Record an event between steps."""
        with _transaction(self._connection, f"record the event '{event.name}' in {self.path}"):
            rows.insert_event(self._connection, event)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record a checkpoint that is complete on disk. A second one at the same step replaces the first."""
        with _transaction(self._connection, f"record checkpoint {checkpoint.step} in {self.path}"):
            rows.insert_checkpoint(self._connection, checkpoint, self.path)

    def update_meta(self, values: Mapping[str, object]) -> None:
        """Add to what is known about the run; a key that exists is replaced."""
        with _transaction(self._connection, f"record facts about the run in {self.path}"):
            _put_meta(self._connection, values)

    def set_status(self, status: Status, reason: str = "") -> None:
        """Say how the run stands, and why in words.

        Args:
            status: "running", "finished", "interrupted" (Ctrl-C, SIGTERM), "stopped" (by a rule) or "failed".
            reason: a sentence; empty where the status says it all.
        """
        with _transaction(self._connection, f"set the status '{status}' of {self.path}"):
            self._connection.execute("UPDATE run SET status = ?, reason = ?", (status, reason))

    def close(self) -> None:
        """Close the run and fold the write-ahead log into one plain file, unless someone is reading it."""
        self._mirror.close()
        try:
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            pass  # a reader holds the file: it stays in WAL mode, which every reader here can open
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def choose_journal(connection: sqlite3.Connection) -> list[str]:
    """Turn the write-ahead log on where the file system can hold one, else keep the rollback journal.

    Returns:
        What to tell the user: nothing, or one sentence on the rollback journal.
    """
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError:
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode == "wal":
        connection.execute("PRAGMA synchronous = NORMAL")
        return []
    return [
        f"This file system cannot hold SQLite's write-ahead log, so {DATABASE} uses the '{mode}' journal: "
        "nothing is lost, but a page that watches the run may have to wait for a step to be written."
    ]


def _claim(folder: Path) -> None:
    """Make the folder and an empty database in it, so that no other run can take it."""
    if (folder / DATABASE).exists():
        raise RunDirError(
            f"The run {folder} exists: it holds a {DATABASE}, and a run is never overwritten. Go on with it "
            "by resuming (--resume), give this run another name, or delete the folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RunDirError(
                f"The folder {folder} is not empty and holds no {DATABASE}, so it is not a run. Give the "
                "run another name, or empty the folder."
            )
        (folder / DATABASE).touch(exist_ok=False)
    except RunDirError:
        raise
    except OSError as error:
        raise RunDirError(
            f"The run directory {folder} cannot be written: {error.strerror or error}. Choose a folder that "
            "can be written, or change its permissions."
        ) from error


def _connect(database: Path) -> sqlite3.Connection:
    """Open for writing, outside of any transaction."""
    try:
        return sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise RunDirError(
            f"{database} cannot be opened for writing: {error}. Change the permissions of the file or its folder."
        ) from error


@contextmanager
def _transaction(connection: sqlite3.Connection, purpose: str) -> Iterator[None]:
    """Commit all of the body, or roll all of it back and say in a sentence what could not be done."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except sqlite3.IntegrityError as error:
        _roll_back(connection)
        raise RunDirError(
            f"Could not {purpose}: {error}. It is recorded already, or does not fit the schema; a run "
            "records each step once. Resume from a checkpoint to replace what came after it."
        ) from error
    except sqlite3.OperationalError as error:
        _roll_back(connection)
        raise RunDirError(
            f"Could not {purpose}: {error}. The disk may be full, the folder read-only, or another process "
            "may be writing the run. What was recorded before is intact; mend that and resume."
        ) from error
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _put_meta(connection: sqlite3.Connection, values: Mapping[str, object]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
        [(key, dump(value)) for key, value in values.items()],
    )


def _check_recorded(connection: sqlite3.Connection, folder: Path, step: int) -> None:
    """Refuse to resume past the record, which would leave a gap in it."""
    (last,) = connection.execute("SELECT coalesce(max(step), 0) FROM steps").fetchone()
    if step > last:
        raise RunDirError(
            f"The run {folder} cannot resume after step {step}: its record ends at step {last}, and the "
            "steps between would be missing. Resume from a checkpoint at or before the end of the record."
        )
