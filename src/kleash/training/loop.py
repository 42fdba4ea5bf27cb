"""The loop around the step: evaluation, recording, checkpoints, and an orderly end whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from accelerate.utils import gather_object

from kleash.errors import RunStopped
from kleash.runs.records import Checkpoint, Sample, Split, Step
from kleash.runs.schema import CHECKPOINTS
from kleash.runs.trackers import Mirror
from kleash.runs.writer import RunWriter
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

    def _anyone(self, requested: bool) -> bool:
        """Whether any process was asked to end: all of them must end after the same step."""
        if self._job.accelerator.num_processes == 1:
            return requested
        return any(gather_object([requested]))

    def _one(self, step: int) -> None:
        """Evaluate if it is time, train one step, record both as one."""
        evaluated = Made()
        if step % self._job.config.training.eval_every == 0:
            evaluated = self._evaluate(step, "before" if step == 0 else "eval")
        made = self._job.step(step, self._observer.progress)
        self._record(step, made.numbers.beside(evaluated.numbers), [*evaluated.samples, *made.samples])
        self._reached, self._job.midway = step + 1, False
        if made.stop is not None:
            raise RunStopped(f"step {step}: {made.stop}")

    def _last(self, step: int) -> None:
        """Measure the trained model on held-out data."""
        made = self._evaluate(step, "after")
        if made.numbers.metrics:
            self._record(step, made.numbers, made.samples)
        kept = self._job.conclude()
        if self._writer is not None and kept:
            self._writer.update_meta(kept)

    def _evaluate(self, step: int, split: Split) -> Made:
        return self._job.evaluate(step, split, self._observer.progress)

    def _record(self, step: int, numbers: Numbers, samples: Sequence[Sample]) -> None:
        row = Step(step, numbers.metrics, numbers.stderr, numbers.notes)
        if self._writer is not None:
            self._writer.write_step(row, samples)
        for mirror in self._mirrors:
            self._mention(mirror.log(row))
        self._observer.stepped(row)

    def _mention(self, problem: str | None) -> None:
        if problem is not None:
            self._observer.fact(f"note       {problem}")

    def _checkpoint(self, step: int) -> None:
        """Save, and forget all but the newest."""
        if self._writer is None:
            self._saved = step
            return
        folder = self._writer.path / CHECKPOINTS / f"step_{step}"
        self._job.save(folder, step, self._fingerprint)
        self._writer.write_checkpoint(Checkpoint(step, folder, {}))
        self._saved = step
        for old in _checkpoints(folder.parent)[: -self._job.config.training.keep_checkpoints]:
            shutil.rmtree(old, ignore_errors=True)

    def _leave(self) -> None:
        """Save what was reached, unless the weights are between two states."""
        if self._job.midway:
            self._observer.fact("stopped within an update: the last checkpoint is the one to resume from")
        elif self._reached != self._saved:
            self._checkpoint(self._reached)


def _checkpoints(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest step first."""
    found = [path for path in folder.glob("step_*") if path.name.removeprefix("step_").isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))
