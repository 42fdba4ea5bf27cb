"""How a point of a sweep stands, by its run directory alone: to be started, to be resumed, or at its end."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from enum import Enum
from pathlib import Path

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.runs.schema import DATABASE, MIRROR

OF_A_START = {MIRROR, *(DATABASE + ending for ending in ("", "-wal", "-shm", "-journal"))}
"""Files of a run that was killed before it could save its first checkpoint."""


class Standing(Enum):
    """What is to be done with a point."""

    TO_START = "to start"
    TO_RESUME = "to resume"
    FINISHED = "finished"
    STOPPED = "stopped"


def standing(run_dir: Path) -> Standing:
    """Read how a point's run stands; nobody may be training it. Removes what a killed start has left behind.

    Only a folder that holds no step and no checkpoint is removed: there is nothing in it that training gave.

    Raises:
        RunDirError: the folder is no run, or one that can be neither resumed nor started anew.
    """
    if not run_dir.exists():
        return Standing.TO_START
    if _is_bare_start(run_dir):
        _remove(run_dir)
        return Standing.TO_START
    with RunReader(run_dir) as reader:
        status, steps = reader.status, reader.counts().steps
        checkpoint, name = reader.latest_checkpoint(), reader.config.get("name")
    if status == "finished":
        return Standing.FINISHED
    if status == "stopped":
        return Standing.STOPPED
    if checkpoint is not None:
        return Standing.TO_RESUME
    if steps == 0 and name == run_dir.name:
        _remove(run_dir)
        return Standing.TO_START
    raise RunDirError(
        f"{run_dir} has {steps} steps of the run '{name}' but no checkpoint to resume from. Put its checkpoints back, "
        "or move the folder away to train this point anew."
    )


def _remove(run_dir: Path) -> None:
    """Remove all of it or, if this process dies, none that would be found again."""
    aside = run_dir.with_name(f".{run_dir.name}.unfinished")
    shutil.rmtree(aside, ignore_errors=True)
    run_dir.rename(aside)
    shutil.rmtree(aside)


def _is_bare_start(run_dir: Path) -> bool:
    """Whether there are only the first files of a run and nothing in them: killed before its record was laid out."""
    files = {path.name: path for path in run_dir.iterdir()}
    if not files.keys() <= OF_A_START or (MIRROR in files and files[MIRROR].stat().st_size > 0):
        return False
    return DATABASE not in files or _is_without_tables(files[DATABASE])


def _is_without_tables(database: Path) -> bool:
    """Whether nothing was committed; a transaction that was cut off is rolled back first."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError:
            return False
    return bool(tables == 0)
