"""The loop around the step: evaluation, recording, checkpoints, and an orderly end whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from accelerate.utils import gather_object

from kleash.control.target import Target
from kleash.errors import RunStopped
from kleash.runs.records import Checkpoint, Sample, Split, Step
from kleash.runs.schema import CHECKPOINTS
from kleash.runs.trackers import Mirror
from kleash.runs.writer import RunWriter
from kleash.training import state
from kleash.training.evaluate import evaluate, samples_of
from kleash.training.interrupts import Interrupts
from kleash.training.observer import Observer
from kleash.training.seeds import prompts_of_step
from kleash.training.session import Session
from kleash.training.statistics import Numbers
from kleash.training.step import StepResult, on_policy_step


class Loop:
    """Runs a session from one step to its last, into a run directory that only the main process writes."""

    def __init__(
        self,
        session: Session,
        writer: RunWriter | None,
        observer: Observer,
        fingerprint: str,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        """Record into `writer` (None in all processes but the main one)."""
        self._session, self._writer, self._observer = session, writer, observer
        self._fingerprint, self._mirrors = fingerprint, mirrors
        self._reached, self._saved = 0, -1

    def run(self, first_step: int) -> None:
        """Train from `first_step` to the end; leaves a checkpoint that resumes, whatever ends it.

        Raises:
            RunStopped: a rule ended the run.
            KeyboardInterrupt: the user did.
        """
        training = self._session.config.training
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
        if self._session.accelerator.num_processes == 1:
            return requested
        return any(gather_object([requested]))

    def _one(self, step: int) -> None:
        """Evaluate if it is time, train one step, record both as one."""
        numbers = Numbers()
        samples: list[Sample] = []
        if step % self._session.config.training.eval_every == 0:
            numbers, samples = self._evaluate(step, "before" if step == 0 else "eval")
        result = on_policy_step(self._session, step, self._observer.progress)
        self._loosen(numbers, result.numbers)
        self._record(step, result.numbers.beside(numbers), [*samples, *self._kept(result, step)])
        self._reached, self._session.updater.midway = step + 1, False
        limit = self._session.config.algorithm.kl.stop_above
        kl = result.numbers.metrics["kl/exact_per_sequence"]
        if limit is not None and kl is not None and kl > limit:
            raise RunStopped(
                f"step {step}: KL is {kl:.3g} nats per sequence, above algorithm.kl.stop_above = {limit:g}. "
                "Lower the learning rate, or hold a target"
            )

    def _last(self, step: int) -> None:
        """Measure the trained model on the held-out prompts."""
        numbers, samples = self._evaluate(step, "after")
        if numbers.metrics:
            self._record(step, numbers, samples)

    def _evaluate(self, step: int, split: Split) -> tuple[Numbers, list[Sample]]:
        if not self._session.data.held_out:
            return Numbers(), []
        return evaluate(
            self._session, step, split, lambda done, total: self._observer.progress("held-out", done, total)
        )

    def _loosen(self, held_out: Numbers, training: Numbers) -> None:
        """At an evaluation, raise the target if the settings and the held-out reward say so."""
        rule, controller = self._session.loosening, self._session.controller
        reward = held_out.metrics.get("eval/reward/proxy")
        if rule is None or reward is None or not isinstance(controller, Target):
            return
        per_token = self._session.config.algorithm.kl.target_nats_per_token is not None
        kl = training.metrics["kl/exact_per_token" if per_token else "kl/exact_per_sequence"]
        assert kl is not None
        target = rule.update(target=controller.final_target, kl=kl, reward=reward, beta_at_floor=controller.at_floor)
        if target != controller.final_target:
            controller.retarget(target)
        training.notes["target"] = rule.reason

    def _kept(self, result: StepResult, step: int) -> list[Sample]:
        training = self._session.config.training
        indices = prompts_of_step(len(self._session.data.train), training.prompts_per_step, step, training.seed)
        processes = self._session.accelerator.num_processes
        by_rank = [i for rank in range(processes) for i in indices[rank::processes]]
        return samples_of(
            result.experience,
            result.record,
            self._session.policy.tokenizer,
            step,
            "train",
            by_rank,
            training.save_samples,
        )

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
        state.save(self._session, folder, step, self._fingerprint)
        self._writer.write_checkpoint(Checkpoint(step, folder, {}))
        self._saved = step
        for old in _checkpoints(folder.parent)[: -self._session.config.training.keep_checkpoints]:
            shutil.rmtree(old, ignore_errors=True)

    def _leave(self) -> None:
        """Save what was reached, unless the weights are between two states."""
        if self._session.updater.midway:
            self._observer.fact("stopped within an update: the last checkpoint is the one to resume from")
        elif self._reached != self._saved:
            self._checkpoint(self._reached)


def _checkpoints(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest step first."""
    found = [path for path in folder.glob("step_*") if path.name.removeprefix("step_").isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))
