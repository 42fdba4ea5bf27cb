"""The folder of a sweep: `sweep.json`, which is written once, and for each point a run directory, a log and a lock.

A point's lock is held by the process that trains it, so it is free again the moment that process is gone, however it
ended; what a point has reached is in its run directory. So nothing here can be out of date.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kleash.errors import ConfigError, RunDirError
from kleash.sweep.points import Point

FILE = "sweep.json"
FORMAT = 1
VERSIONED = ("kleash", "torch", "transformers", "peft", "accelerate")
SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class Sweep:
    """A sweep that is on disk.

    Attributes:
        folder: where it is.
        swept: the values of each swept key, as written.
        points: its runs.
    """

    folder: Path
    swept: Mapping[str, tuple[str, ...]]
    points: tuple[Point, ...]

    def run_dir(self, point: Point) -> Path:
        """Where a point's run is."""
        return self.folder / point.name

    def log(self, point: Point) -> Path:
        """What a point's process prints."""
        return self.folder / f"{point.name}.log"

    def settings_file(self, point: Point) -> Path:
        """The settings of a point, frozen: a change to the sweep's own file does not reach points that start later."""
        return self.folder / f"{point.name}.toml"

    def take(self, point: Point) -> int | None:
        """Take a point's lock; None where a process holds it. A child that inherits the descriptor holds it too."""
        descriptor = os.open(self.folder / f".{point.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def begin(folder: Path, swept: Mapping[str, tuple[str, ...]], points: Sequence[Point]) -> Sweep:
    """Write a sweep's record into a new or empty folder, or find the same sweep there.

    Raises:
        ConfigError: another sweep, or something else, is there.
        RunDirError: it cannot be written.
    """
    sweep = Sweep(folder, swept, tuple(points))
    if (folder / FILE).exists():
        _check_same(open_sweep(folder), sweep)
        return sweep
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != f"{FILE}.new" for path in folder.iterdir()):
            raise ConfigError(
                f"The folder {folder} is not empty and holds no {FILE}, so it is not a sweep. Give the sweep another "
                "name with name=..., or another output_dir."
            )
        _write(folder / FILE, json.dumps(_to_dict(sweep), ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise _unwritable(folder, error) from error
    return sweep


def open_sweep(folder: Path) -> Sweep:
    """Read a sweep's record.

    Raises:
        RunDirError: there is none, or it cannot be read.
    """
    try:
        stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirError(
            f"{folder} is not a sweep: it holds no {FILE}. Give the folder that `kleash sweep` made, often "
            "runs/NAME; a single run goes on with `kleash train --resume`."
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirError(
            f"{folder / FILE} cannot be read ({error}). Restore it from a copy, or start the sweep under another "
            "name; its finished runs can still be read one by one."
        ) from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        found = stored.get("format") if isinstance(stored, dict) else None
        raise RunDirError(
            f"{folder / FILE} has format {found}; this Kleash reads format {FORMAT}. If a newer Kleash wrote it, "
            "upgrade with `pip install --upgrade kleash`."
        )
    swept = {key: tuple(values) for key, values in stored["swept"].items()}
    return Sweep(folder, swept, tuple(Point(**point) for point in stored["points"]))


def freeze(sweep: Sweep, point: Point) -> Path:
    """Write the settings file of a point and return it.

    Raises:
        RunDirError: it cannot be written.
    """
    path = sweep.settings_file(point)
    try:
        _write(path, point.toml)
    except OSError as error:
        raise _unwritable(sweep.folder, error) from error
    return path


def _to_dict(sweep: Sweep) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED}
        | {"python": platform.python_version()},
        "swept": sweep.swept,
        "points": [asdict(point) for point in sweep.points],
    }


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)


def _check_same(there: Sweep, here: Sweep) -> None:
    """Refuse a folder whose sweep has other values or other settings."""
    advice = f"Give this sweep another name with name=..., or go on with that one: kleash sweep --resume {there.folder}"
    if there.swept != here.swept:
        raise ConfigError(
            f"{there.folder} is another sweep: there {_values(there.swept)}, here {_values(here.swept)}. {advice}"
        )
    before = {point.name: point.settings for point in there.points}
    now = {point.name: json.loads(json.dumps(point.settings)) for point in here.points}
    if before == now:
        return
    changed = sorted(
        {
            f"{key} is {_value(before[name], key)} there and {_value(now[name], key)} here"
            for name in before.keys() & now.keys()
            for key in before[name].keys() | now[name].keys()
            if _value(before[name], key) != _value(now[name], key)
        }
    )
    said = "; ".join(changed[:SHOWN_DIFFERENCES]) or "its points have other names"
    raise ConfigError(f"{there.folder} is a sweep of other settings: {said}. {advice}")


def _values(swept: Mapping[str, tuple[str, ...]]) -> str:
    return " and ".join(f"{key} = {', '.join(values)}" for key, values in swept.items())


def _value(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "not set"


def _unwritable(folder: Path, error: OSError) -> RunDirError:
    return RunDirError(
        f"The sweep's folder {folder} cannot be written: {error.strerror or error}. Choose an output_dir that can be "
        "written, or change its permissions."
    )
