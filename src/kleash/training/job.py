"""What the loop asks of a job: one protocol for every algorithm, whether it samples or reads comparisons.

A job is prepared first (settings, data, functions: all that can fail before a weight is read), then built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator

from kleash.config.schema import RunConfig
from kleash.control.controller import Controller
from kleash.runs.records import Sample, Split
from kleash.training.observer import Observer
from kleash.training.statistics import Numbers

Progress = Callable[[str, int, int], None]
"""Told of a phase, and how much of it is done."""


NOTHING_BESIDE: Mapping[str, Any] = {}
"""For a checkpoint of a job alone."""


def quiet(phase: str, done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Made:
    """What a step or an evaluation has to record, and why the run must end after it, if it must."""

    numbers: Numbers = field(default_factory=Numbers)
    samples: Sequence[Sample] = ()
    stop: str | None = None


class Job(Protocol):
    """Everything a run holds in memory.

    `midway` is True from a step's first update until the step is recorded: what is in memory then is no state to
    resume from.
    """

    config: RunConfig
    accelerator: Accelerator
    midway: bool

    @property
    def controller(self) -> Controller | None:
        """What sets beta and can shorten the leash; None for algorithms that have none."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of the frozen weights that the run must find again when it resumes."""
        ...

    def facts(self, fingerprint: str) -> Mapping[str, Any]:
        """What a later reader needs to know of the models."""
        ...

    def preflight(self, observer: Observer, fingerprint: str) -> None:
        """Check and tell all that can be known before the first step; RunStopped if a check fails."""
        ...

    def evaluate(self, step: int, split: Split, progress: Progress) -> Made:
        """Measure on held-out data; no metrics where there is none."""
        ...

    def step(self, step: int, progress: Progress) -> Made:
        """Train one step. What is measured belongs to the weights before its update."""
        ...

    def conclude(self) -> Mapping[str, Any]:
        """What is worth keeping of the finished run besides its numbers."""
        ...

    def save(self, folder: Path, step: int, fingerprint: str, beside: Mapping[str, Any] = NOTHING_BESIDE) -> None:
        """Write the checkpoint after `step` updates with what is `beside` the job, all of it or nothing."""
        ...

    def restore(self, saved: Mapping[str, Any], fingerprint: str) -> int:
        """Put a saved state back, whatever was trained since; returns the step to go on with.

        RunDirError if the frozen weights differ.
        """
        ...


class Prepared(Protocol):
    """A job before its weights are read."""

    def facts(self) -> Mapping[str, Any]:
        """How much data there is, by name."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of the data's tokens, in their order."""
        ...

    def build(self, accelerator: Accelerator) -> Job:
        """Read the weights."""
        ...
