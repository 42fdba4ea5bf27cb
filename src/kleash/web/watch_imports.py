"""Other trainers' logs as runs: each is read into a run directory of its own, and is then a run like any.

The rules of the monitor are replayed over its steps, and what they find are the events of the run. A log that has
changed is read again.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from kleash.errors import KleashError
from kleash.runs.records import Sample
from kleash.runs.writer import RunWriter

if TYPE_CHECKING:
    from kleash.monitor.log import Log

IMPORTED = "imported"
"""The fact about a run that says whose log it was read from, and what its columns were taken for."""

PAUSE_SECONDS = 5.0
"""Between two readings of a log that goes on growing."""

Stamp = tuple[int, int, int]


@dataclass
class _Reading:
    """The last reading of a log: when, of which state, and the folder or what was wrong."""

    stamp: Stamp
    at: float
    result: Path | KleashError


class Imports:
    """Logs read into run directories inside a folder, which must exist. Used by many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readings: dict[Path, _Reading] = {}
        self._count = 0
        self._lock = threading.Lock()

    def folder_of(self, path: Path) -> Path:
        """Return the run directory that a log was read into.

        Raises:
            KleashError: the log cannot be read.
        """
        with self._lock:
            reading = self._readings.get(path)
            stamp = log_stamp(path)
            if reading is None or (reading.stamp != stamp and time.monotonic() - reading.at > PAUSE_SECONDS):
                reading = self._read(path, stamp, reading)
        if isinstance(reading.result, KleashError):
            raise reading.result
        return reading.result

    def state(self, path: Path) -> object:
        """Return a value that is another one as soon as a log that has changed may be read again."""
        reading = self._readings.get(path)
        stamp = log_stamp(path)
        if reading is None or (reading.stamp != stamp and time.monotonic() - reading.at > PAUSE_SECONDS):
            return stamp
        return reading.stamp

    def _read(self, path: Path, stamp: Stamp, before: _Reading | None) -> _Reading:
        self._count += 1
        folder = self._folder / str(self._count)
        result: Path | KleashError
        try:
            result = import_log(path, folder)
        except KleashError as error:
            result = error
        if before is not None and isinstance(before.result, Path):
            shutil.rmtree(before.result)
        self._readings[path] = _Reading(stamp, time.monotonic(), result)
        return self._readings[path]


def import_log(path: Path, folder: Path) -> Path:
    """Read a log, replay the rules over it, and write both as a run.

    Args:
        path: the log, or the folder that its trainer wrote.
        folder: the run's, which must not exist.

    Raises:
        KleashError: no known format, or a damaged file.
    """
    from kleash.monitor.logs.facts import facts_of, planned_steps
    from kleash.monitor.logs.reading import read_log
    from kleash.monitor.monitor import Monitor

    try:
        log = read_log(path)
    except ModuleNotFoundError as error:
        raise KleashError(
            f"{path} cannot be read: its format needs the package {error.name}, which is not installed. Install it:"
            " pip install 'kleash[logs]'."
        ) from error
    known = facts_of(log)
    events = log.events or Monitor(known).replay(log.steps)
    origin = {
        "source": log.source,
        "notes": list(log.notes),
        "columns": [asdict(column) for column in log.columns],
        "planned": planned_steps(log),
        "beta": known.beta,
    }
    settings = json.loads(json.dumps(dict(log.settings), default=str), parse_constant=str)
    with RunWriter.create(folder, settings, {IMPORTED: origin}) as writer:
        for step in log.steps:
            writer.write_step(step)
        for event in events:
            writer.write_event(event)
        for checkpoint in log.checkpoints:
            writer.write_checkpoint(checkpoint)
        writer.write_samples(_samples(log))
        writer.set_status("finished")
    return folder


def log_stamp(path: Path) -> Stamp:
    """Return the newest change, the size and the number of the files of a log, down to its folders' folders."""
    files = [path] if path.is_file() else [file for depth in ("*", "*/*") for file in path.glob(depth)]
    found = []
    for file in files:
        try:
            found.append(file.stat())
        except OSError:
            continue  # it was deleted a moment ago
    return max((file.st_mtime_ns for file in found), default=0), sum(file.st_size for file in found), len(found)


def _samples(log: Log) -> Iterator[Sample]:
    """Yield a log's completions as samples: prompts numbered as they come, rewards summed, tokens unknown."""
    prompts: dict[str, int] = {}
    drawn: Counter[tuple[int, int]] = Counter()
    for logged in log.samples:
        prompt = prompts.setdefault(logged.prompt, len(prompts))
        rewards = [value for value in logged.rewards.values() if value is not None]
        yield Sample(
            step=logged.step,
            split="train",
            prompt_index=prompt,
            sample_index=drawn[logged.step, prompt],
            prompt=logged.prompt,
            completion=logged.completion,
            tokens=(),
            token_kl=(),
            reward=sum(rewards) if rewards else None,
            gold=None,
            kl=nan if logged.kl is None else logged.kl,
            stopped=True,
        )
        drawn[logged.step, prompt] += 1
