"""Finds out what a path is, and reads it as a log under Kleash's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kleash.errors import DataError, KleashError, near_match
from kleash.monitor.log import Log
from kleash.monitor.logs import kleash_run, table, tensorboard, trl
from kleash.monitor.logs.lines import gone, text_of
from kleash.monitor.logs.naming import to_log
from kleash.monitor.logs.raw import Raw
from kleash.monitor.logs.text import with_text
from kleash.runs.schema import DATABASE

LOOKED_FOR = (
    "a Kleash run (run.db)",
    "a TRL output directory (checkpoint-N/trainer_state.json)",
    "TensorBoard event files (events.out.tfevents...)",
    "one CSV or JSON Lines file with a step column: metrics.jsonl, a W&B history, verl's log",
)
"""What a folder is searched for, in this order."""

_TABLES = (".jsonl", ".csv", ".ndjson")
_HEAD = 4096


def read_log(
    path: Path, *, columns: Mapping[str, str] | None = None, trainer: str | None = None, beta: float | None = None
) -> Log:
    """Read the log of a run, whoever wrote it.

    Args:
        path: a Kleash run, TRL's output directory, TensorBoard event files, a W&B history, CSV or JSON Lines.
        columns: the user's own names, from column to key of the catalogue; "step" names the step's column.
        trainer: which trainer wrote it, where its columns do not say.
        beta: reward per nat, where the log does not say it.

    Raises:
        DataError: nothing that is known, or a file that cannot be read; the text says what was looked for.
        RunDirError: a run directory that cannot be read.
        ModuleNotFoundError: the package that a format needs is not installed.
    """
    if not path.exists():
        raise _missing(path)
    try:
        run = path.parent if path.name == DATABASE else path
        if (run / DATABASE).is_file():
            _check_bare(path, columns or {}, trainer)
            return kleash_run.read(run)
        raw = _read_folder(path, columns or {}) if path.is_dir() else _read_file(path, columns or {})
    except KleashError:
        raise
    except OSError as error:
        raise gone(path, error) from error
    return with_text(to_log(raw, columns or {}, trainer, beta))


def _check_bare(path: Path, columns: Mapping[str, str], trainer: str | None) -> None:
    given = [f"--column {name}={key}" for name, key in columns.items()]
    given += [] if trainer is None else [f"--trainer '{trainer}'"]
    if given:
        raise DataError(
            f"{path} is a Kleash run: its numbers have the catalogue's names already, so that {', '.join(given)} would "
            "change nothing. Leave it out."
        )


def _read_folder(folder: Path, columns: Mapping[str, str]) -> Raw:
    if trl.is_output(folder):
        return trl.read(folder)
    if tensorboard.event_files(folder):
        return tensorboard.read(folder)
    tables = [path for path in sorted(folder.iterdir()) if path.suffix in _TABLES and path.is_file()]
    named = [path for path in tables if path.name == "metrics.jsonl"] or tables
    if len(named) == 1:
        return _read_file(named[0], columns)
    if named:
        raise DataError(
            f"{folder} holds {len(named)} tables ({', '.join(path.name for path in named[:6])}) and nothing that says "
            "which is the log. Name the file."
        )
    raise _nothing(folder)


def _read_file(path: Path, columns: Mapping[str, str]) -> Raw:
    if "tfevents" in path.name:
        return tensorboard.read(path)
    head = _head(path)
    if not head.strip():
        raise DataError(f"{path} is empty. Audit it when a step has been logged.")
    if head.startswith(b"SQLite format 3"):
        raise DataError(f"{path} is an SQLite file but not named {DATABASE}. Give the folder of a Kleash run.")
    if b"\0" in head or head.startswith(b"PAR1"):
        raise DataError(f"{path} is a binary file. {_looked_for()}")
    text = text_of(path)
    if path.name == trl.STATE or (path.suffix == ".json" and f'"{trl.HISTORY}"' in text):
        return trl.read(path)
    return table.read(path, text, columns)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise gone(path, error) from error


def _missing(path: Path) -> DataError:
    near = near_match(path.name, (entry.name for entry in path.parent.iterdir())) if path.parent.is_dir() else ""
    return DataError(f"There is no {path}.{near} Check the path.")


def _nothing(folder: Path) -> DataError:
    inside = sorted(path.name for path in folder.iterdir())
    held = f"It holds {', '.join(inside[:8])}{', ...' if len(inside) > 8 else ''}." if inside else "It is empty."
    return DataError(f"{folder} is no log that is known. {held} {_looked_for()}")


def _looked_for() -> str:
    return f"Looked for: {'; '.join(LOOKED_FOR)}."
