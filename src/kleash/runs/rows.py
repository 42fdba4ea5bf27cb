"""Records to rows and back: the only place that names the columns."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from kleash.runs.encoding import (
    Stored,
    dump,
    dump_named,
    dump_numbers,
    load_named,
    load_numbers,
    restore,
    store,
)
from kleash.runs.records import Cause, Checkpoint, Event, Sample, Severity, Split, Step

SAMPLE_COLUMNS = (
    "step, split, prompt_index, sample_index, prompt, completion, tokens, token_kl, reward, gold, kl, stopped"
)


def insert_step(connection: sqlite3.Connection, step: Step) -> None:
    """Add a step and its metrics."""
    connection.execute("INSERT INTO steps (step, notes) VALUES (?, ?)", (step.step, dump(dict(step.notes))))
    connection.executemany(
        "INSERT INTO metrics (step, key, value, stderr) VALUES (?, ?, ?, ?)",
        [(step.step, key, store(value), store(step.stderr.get(key))) for key, value in step.metrics.items()],
    )


def select_steps(connection: sqlite3.Connection) -> list[Step]:
    """Return every step in order, metrics in the order of their names."""
    metrics: dict[int, dict[str, float | None]] = defaultdict(dict)
    stderrs: dict[int, dict[str, float]] = defaultdict(dict)
    measured = "SELECT step, key, value, stderr FROM metrics ORDER BY key, step"
    for number, key, value, stderr in connection.execute(measured):
        metrics[number][key] = restore(value)
        if stderr is not None:
            stderrs[number][key] = float(stderr)
    return [
        Step(number, metrics[number], stderrs[number], json.loads(notes))
        for number, notes in connection.execute("SELECT step, notes FROM steps ORDER BY step")
    ]


def insert_samples(connection: sqlite3.Connection, samples: Iterable[Sample]) -> None:
    """Add samples."""
    connection.executemany(
        f"INSERT INTO samples ({SAMPLE_COLUMNS}, num_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                sample.step,
                sample.split,
                sample.prompt_index,
                sample.sample_index,
                sample.prompt,
                sample.completion,
                dump(list(sample.tokens)),
                dump_numbers(sample.token_kl),
                store(sample.reward),
                store(sample.gold),
                store(sample.kl),
                bool(sample.stopped),
                len(sample.tokens),
            )
            for sample in samples
        ],
    )


def select_samples(connection: sqlite3.Connection, split: Split | None, step: int | None) -> list[Sample]:
    """Return the samples of a split and a step (None: all), in the order step, prompt, sample."""
    rows = connection.execute(
        f"SELECT {SAMPLE_COLUMNS} FROM samples "
        "WHERE (:split IS NULL OR split = :split) AND (:step IS NULL OR step = :step) "
        "ORDER BY step, split, prompt_index, sample_index",
        {"split": split, "step": step},
    )
    return [read_sample(*row) for row in rows]


def read_sample(
    step: int,
    split: Split,
    prompt_index: int,
    sample_index: int,
    prompt: str,
    completion: str,
    tokens: str,
    token_kl: str,
    reward: Stored,
    gold: Stored,
    kl: float | str,
    stopped: int,
) -> Sample:
    """Return the sample of a row of `SAMPLE_COLUMNS`."""
    return Sample(
        step=step,
        split=split,
        prompt_index=prompt_index,
        sample_index=sample_index,
        prompt=prompt,
        completion=completion,
        tokens=tuple(json.loads(tokens)),
        token_kl=load_numbers(token_kl),
        reward=restore(reward),
        gold=restore(gold),
        kl=float(kl),
        stopped=bool(stopped),
    )


def insert_event(connection: sqlite3.Connection, event: Event) -> None:
    """Add an event."""
    causes = [[cause.text, cause.check] for cause in event.causes]
    connection.execute(
        "INSERT INTO events (step, severity, name, message, numbers, began, causes, advice, ends) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.step,
            event.severity,
            event.name,
            event.message,
            dump_named(event.values),
            event.began,
            dump(causes),
            event.advice,
            bool(event.ends),
        ),
    )


def select_events(connection: sqlite3.Connection) -> list[Event]:
    """Return every event in the order they were written; a database of version 1 knows no causes."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    later = "began, causes, advice, ends" if version > 1 else "NULL, '[]', '', 0"
    rows = connection.execute(f"SELECT step, severity, name, message, numbers, {later} FROM events ORDER BY id")
    return [_event(*row) for row in rows]


def _event(
    step: int,
    severity: Severity,
    name: str,
    message: str,
    numbers: str,
    began: int | None,
    causes: str,
    advice: str,
    ends: int,
) -> Event:
    return Event(
        step=step,
        severity=severity,
        name=name,
        message=message,
        values=load_named(numbers),
        began=began,
        causes=tuple(Cause(text, check) for text, check in json.loads(causes)),
        advice=advice,
        ends=bool(ends),
    )


def insert_checkpoint(connection: sqlite3.Connection, checkpoint: Checkpoint, folder: Path) -> None:
    """Add a checkpoint; a path inside the run's folder is kept relative, so that the run can be moved."""
    path = Path(checkpoint.path).absolute()
    inside = path.is_relative_to(folder.absolute())
    stored = path.relative_to(folder.absolute()) if inside else path
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints (step, path, metrics) VALUES (?, ?, ?)",
        (checkpoint.step, stored.as_posix(), dump_named(checkpoint.metrics)),
    )


def select_checkpoints(connection: sqlite3.Connection, folder: Path) -> list[Checkpoint]:
    """Return every checkpoint by step, its path joined to where the run's folder is now."""
    rows = connection.execute("SELECT step, path, metrics FROM checkpoints ORDER BY step")
    return [Checkpoint(step, folder / path, load_named(metrics)) for step, path, metrics in rows]


def delete_after(connection: sqlite3.Connection, step: int, checkpoint: int) -> None:
    """Drop what was recorded after `step`, checkpoints after `checkpoint`, and samples of an end that is none now."""
    for table in ("metrics", "steps", "samples", "events"):
        connection.execute(f"DELETE FROM {table} WHERE step > ?", (step,))
    connection.execute("DELETE FROM checkpoints WHERE step > ?", (checkpoint,))
    connection.execute("DELETE FROM samples WHERE split = 'after'")
