"""A run as the monitor reads it, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kleash.runs.records import Checkpoint, Event, Step


@dataclass(frozen=True)
class LoggedSample:
    """A completion that a trainer logged; most trainers log no KL with it.

    Args:
        step: the step it was sampled in.
        prompt: the text the model was given.
        completion: the text it wrote.
        rewards: by the name of the reward.
        kl: KL(policy ‖ reference), nats per sequence, or None where it was not logged.
    """

    step: int
    prompt: str
    completion: str
    rewards: Mapping[str, float | None]
    kl: float | None = None


@dataclass(frozen=True)
class Column:
    """What one column of a foreign log is, and under which key of the catalogue it is kept.

    Args:
        name: as the trainer writes it.
        key: of `kleash.metrics`, or None where it has no counterpart and is left out.
        says: in words: between whom, which estimator, which unit, and what was done to sign or unit.
    """

    name: str
    key: str | None
    says: str


@dataclass(frozen=True)
class Log:
    """A run's numbers under Kleash's names.

    Args:
        path: what was read.
        source: who wrote it, such as "kleash" or "TRL GRPO".
        steps: the numbers, by step; keys and units of `kleash.metrics`.
        columns: what each column was taken for.
        notes: what a reader must know: what is absent and why, what was skipped.
        samples: completions, where they were logged.
        settings: of the run, as far as they are in the log.
        events: what the trainer itself recorded; empty for other trainers.
        checkpoints: what can be gone back to.
    """

    path: Path
    source: str
    steps: Sequence[Step]
    columns: Sequence[Column] = ()
    notes: Sequence[str] = ()
    samples: Sequence[LoggedSample] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Event] = ()
    checkpoints: Sequence[Checkpoint] = ()
