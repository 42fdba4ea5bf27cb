"""A Kleash run as a log: what its database holds, under the names it already has."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kleash.errors import RunDirError
from kleash.metrics import lookup
from kleash.monitor.log import Column, Log, LoggedSample
from kleash.monitor.logs.trainers import KLEASH
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample, Step


def read(path: Path) -> Log:
    """Read a run directory, also while it is being written.

    Raises:
        RunDirError: a damaged or newer database, or one that vanished while it was read.
    """
    try:
        with RunReader(path) as reader:
            steps = reader.steps()
            return Log(
                path=path,
                source=KLEASH,
                steps=steps,
                columns=_columns(steps),
                notes=[f"A Kleash run, {reader.status}: {path} holds run.db."],
                samples=[_sample(sample) for sample in reader.samples()],
                settings=reader.config,
                events=reader.events(),
                checkpoints=reader.checkpoints(),
            )
    except (sqlite3.Error, ValueError) as error:  # the second from texts inside that are no longer JSON or numbers
        raise RunDirError(
            f"{path} could not be read to its end ({error}): the run was deleted, moved or replaced meanwhile, or its "
            "file is damaged. Check that the folder is there and try again."
        ) from error


def _columns(steps: list[Step]) -> list[Column]:
    keys = dict.fromkeys(key for step in steps for key in step.metrics)
    return [Column(key, key, _says(key)) for key in keys]


def _says(key: str) -> str:
    try:
        metric = lookup(key)
    except KeyError:
        return "not in the catalogue of this release"
    return ", ".join(filter(None, (metric.title, metric.unit)))


def _sample(sample: Sample) -> LoggedSample:
    rewards = {"reward": sample.reward} | ({} if sample.gold is None else {"gold": sample.gold})
    return LoggedSample(sample.step, sample.prompt, sample.completion, rewards, sample.kl)
