"""Which runs a page shows: found in folders as they appear, kept in the list when they are deleted.

A client names a run by its id, which is made here and is never part of a path. A run is opened anew for every
question, so one that is deleted, moved back or replaced is noticed at the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader, list_runs
from kleash.runs.schema import DATABASE
from kleash.web.watch_imports import Imports

NAME_LENGTH = 40


class RunNotFound(RunDirError):
    """A run that nobody knows of, or that is no longer there."""


@dataclass(frozen=True)
class Entry:
    """A run in the list.

    Args:
        id: what stands for it in an address.
        path: its folder, or the log of another trainer.
        is_log: whether it is such a log.
    """

    id: str
    path: Path
    is_log: bool

    @property
    def name(self) -> str:
        """What people call it."""
        return self.path.resolve().name or str(self.path)


class Library:
    """The runs that a page shows. Used by many threads.

    Args:
        roots: run directories, folders that hold runs, other trainers' logs.
        imports: where other trainers' logs are read into.

    Raises:
        RunDirError: one of the roots does not exist.
    """

    def __init__(self, roots: Sequence[Path], imports: Path) -> None:
        for root in roots:
            if not root.exists():
                raise RunDirError(
                    f"There is no {root}. Give a run's folder, a folder that holds runs, or another trainer's log;"
                    " without one, `runs` is taken."
                )
            if not os.access(root, os.R_OK):
                raise RunDirError(f"{root} may not be read by this user. Change its permissions, or give another one.")
        self._roots = tuple(roots)
        self._imports = Imports(imports)
        self._known: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """Return every run that has been seen so far, new ones included."""
        with self._lock:
            for root in self._roots:
                with suppress(OSError):  # it was deleted a moment ago
                    self._look_into(root)
            return list(self._known.values())

    def entry(self, run_id: str) -> Entry:
        """Return the run of an id.

        Raises:
            RunNotFound: no run has it.
        """
        entry = self._known.get(run_id) or next((found for found in self.entries() if found.id == run_id), None)
        if entry is None:
            raise RunNotFound(f"No run here has the id {run_id!r}. Go back to the list of runs.")
        return entry

    @contextmanager
    def open(self, entry: Entry) -> Iterator[RunReader]:
        """Open a run for one question.

        Raises:
            RunNotFound: it has been deleted.
            RunDirError: it cannot be read.
            KleashError: it is a log that cannot be read.
        """
        if not entry.path.exists():
            raise RunNotFound(f"{entry.path} is gone: the run was deleted or moved. Put it back to see it again.")
        folder = self._imports.folder_of(entry.path) if entry.is_log else entry.path
        try:
            with RunReader(folder) as reader:
                yield reader
        except (sqlite3.Error, json.JSONDecodeError) as error:
            raise RunDirError(
                f"{entry.path / DATABASE} cannot be read to the end ({error}): the file is damaged, was replaced, or"
                " another program holds it. Try again; if that does not help, restore it from a copy."
            ) from error

    def _look_into(self, root: Path) -> None:
        """Add what is under a root: runs, or a log where there are no runs and never were."""
        runs, log = _runs(root), _entry(root, is_log=True)
        if runs or any(entry.path.parent == root for entry in self._known.values()):
            if log.id in self._known and self._known[log.id].is_log:
                del self._known[log.id]
            self._known |= {entry.id: entry for entry in runs}
        elif root.is_file() or any(root.iterdir()):
            self._known[log.id] = log

    def state(self, entry: Entry) -> object:
        """Return a value that is another one as soon as something in a run has been written."""
        if entry.is_log:
            return self._imports.state(entry.path)
        return tuple(_stamp(entry.path / name) for name in (DATABASE, f"{DATABASE}-wal"))


def _runs(root: Path) -> list[Entry]:
    """Return the run that a root is, or those directly inside it."""
    if (root / DATABASE).is_file():
        return [_entry(root, is_log=False)]
    return [_entry(run, is_log=False) for run in list_runs(root)] if root.is_dir() else []


def _entry(path: Path, *, is_log: bool) -> Entry:
    """Return the entry of a path, whose id is readable and the same at every start."""
    whole = path.resolve()
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", whole.name)[:NAME_LENGTH].strip("-") or "run"
    digest = hashlib.sha256(str(whole).encode("utf-8", "surrogateescape")).hexdigest()
    return Entry(f"{name}-{digest[:8]}", path, is_log)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return when a file was last written and its size; None where it is not there, or empty as readers leave it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found.st_size else None
