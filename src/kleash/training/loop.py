"""The loop around the step: evaluation, recording, alarms, checkpoints, and an orderly end whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from accelerate.utils import gather_object

from kleash.config.monitor_checks import address_of
from kleash.errors import RunStopped
from kleash.monitor.notify import Notifier
from kleash.runs.records import Checkpoint, Event, Sample, Split, Step
from kleash.runs.schema import CHECKPOINTS
from kleash.runs.trackers import Mirror
from kleash.runs.writer import RunWriter
from kleash.training.acting import SAVED, Acting, Outcome
from kleash.training.checkpoints import on_disk, superseded
from kleash.training.interrupts import Interrupts
from kleash.training.job import Job, Made
from kleash.training.observer import Observer
from kleash.training.statistics import Numbers


class Loop:
    """Runs a job from one step to its last, into a run directory that only the main process writes."""

    def __init__(
        self,
        job: Job,
        writer: RunWriter | None,
        observer: Observer,
        fingerprint: str,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        """Record into `writer` (None in all processes but the main one)."""
        self._job, self._writer, self._observer = job, writer, observer
        self._fingerprint, self._mirrors = fingerprint, mirrors
        self._reached, self._saved = 0, -1
        self._acting = Acting(job, fingerprint, None if writer is None else writer.path / CHECKPOINTS)
        self._notifier = _notifier(job, writer)

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Go on from the saved state that the job was restored from."""
        self._acting.take_up(saved, None if self._writer is None else self._writer.path)

    def run(self, first_step: int) -> None:
        """Train from `first_step` to the end; leaves a checkpoint that resumes, whatever ends it.

        Raises:
            RunStopped: a rule ended the run.
            KeyboardInterrupt: the user did.
        """
        training = self._job.config.training
        self._observer.began(first_step, training.steps)
        self._reached = first_step
        try:
            if first_step == 0:
                self._checkpoint(0)
            with Interrupts(self._observer.fact) as interrupts:
                while self._reached < training.steps:
                    self._one(self._reached)
                    if self._reached % training.checkpoint_every == 0 or self._reached == training.steps:
                        self._checkpoint(self._reached)
                    if self._anyone(interrupts.requested):
                        raise KeyboardInterrupt
                self._last(self._reached)
        except BaseException:
            self._leave()
            raise
        finally:
            self._notifier.close()
            self._mention(*self._notifier.problems())

    def _anyone(self, requested: bool) -> bool:
        """Whether any process was asked to end: all of them must end after the same step."""
        if self._job.accelerator.num_processes == 1:
            return requested
        return any(gather_object([requested]))

    def _one(self, step: int) -> None:
        """Evaluate if it is time, train one step, act on what it shows, record all of it as one."""
        evaluated = Made()
        if step % self._job.config.training.eval_every == 0:
            evaluated = self._evaluate(step, "before" if step == 0 else "eval")
        made = self._job.step(step, self._observer.progress)
        row = _row(step, made.numbers.beside(evaluated.numbers))
        outcome = self._acting.after(row) if made.stop is None else Outcome(self._acting.watch(row), stop=made.stop)
        row = replace(row, notes={**row.notes, **outcome.notes})
        self._record(row, [*evaluated.samples, *made.samples], outcome.events)
        if outcome.failure is not None:
            raise outcome.failure
        self._reached, self._job.midway = step + 1, False
        if outcome.stop is not None:
            raise RunStopped(f"step {step}: {outcome.stop}")

    def _last(self, step: int) -> None:
        """Measure the trained model on held-out data."""
        made = self._evaluate(step, "after")
        if made.numbers.metrics:
            row = _row(step, made.numbers)
            self._record(row, made.samples, self._acting.watch(row))
        kept = self._job.conclude()
        if self._writer is not None and kept:
            self._writer.update_meta(kept)

    def _evaluate(self, step: int, split: Split) -> Made:
        return self._job.evaluate(step, split, self._observer.progress)

    def _record(self, row: Step, samples: Sequence[Sample], events: Sequence[Event]) -> None:
        if self._writer is not None:
            self._writer.write_step(row, samples, events)
        self._mention(*(mirror.log(row) for mirror in self._mirrors))
        self._observer.stepped(row)
        for event in events:
            self._notifier.send(event)
            self._observer.alarmed(event)
        self._mention(*self._notifier.problems())

    def _mention(self, *problems: str | None) -> None:
        for problem in filter(None, problems):
            self._observer.fact(f"note       {problem}")

    def _checkpoint(self, step: int) -> None:
        """Save, and forget those that are superseded."""
        if self._writer is None:
            self._saved = step
            return
        folder = self._writer.path / CHECKPOINTS / f"step_{step}"
        self._job.save(folder, step, self._fingerprint, {SAVED: self._acting.state_dict()})
        self._writer.write_checkpoint(Checkpoint(step, folder, {}))
        self._saved = step
        folders = on_disk(folder.parent)
        for old in superseded(folders, step, self._acting.events, self._job.config.training):
            shutil.rmtree(folders[old], ignore_errors=True)

    def _leave(self) -> None:
        """Save what was reached, unless the weights are between two states."""
        if self._job.midway:
            self._observer.fact("stopped within an update: the last checkpoint is the one to resume from")
        elif self._reached != self._saved:
            self._checkpoint(self._reached)


def _row(step: int, numbers: Numbers) -> Step:
    return Step(step, numbers.metrics, numbers.stderr, numbers.notes)


def _notifier(job: Job, writer: RunWriter | None) -> Notifier:
    """Who is told of alarms: nobody in processes that do not write."""
    settings = job.config.monitor
    if writer is None:
        return Notifier("", lowest=settings.notify, webhook=None, command=None)
    return Notifier(str(writer.path), lowest=settings.notify, webhook=address_of(settings), command=settings.command)
