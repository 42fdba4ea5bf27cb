"""The Kleash run of somebody else's training: what is recorded, watched and told, in the one process that writes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from kleash.errors import RunDirError
from kleash.integrations.watching import Watch
from kleash.monitor.actions import Action
from kleash.monitor.ladder import Ladder
from kleash.monitor.notify import Notifier
from kleash.report.run_page import write_report
from kleash.runs.reader import RunReader
from kleash.runs.records import Checkpoint, Event, Sample, Status, Step
from kleash.runs.schema import DATABASE
from kleash.runs.writer import RunWriter

logger = logging.getLogger(__name__)


class Recorder:
    """Writes a run, shows each step to the monitor, and tells of its alarms: console, webhook and command.

    Attributes:
        path: the run's folder.
    """

    def __init__(self, writer: RunWriter, ladder: Ladder, ways_to_tell: Mapping[str, str | None]) -> None:
        """Go on with a run that is open, from the steps that it has recorded.

        Args:
            writer: of the run.
            ladder: what alarms lead to.
            ways_to_tell: `webhook` and `command`, or None for each.
        """
        self.path = writer.path
        self._writer = writer
        self._watch = Watch(ladder)
        with RunReader(self.path) as run:
            self._watch.replay(run.steps())
        self._notifier = Notifier(str(self.path), lowest="warning", **ways_to_tell)

    def step(self, step: Step, samples: Sequence[Sample]) -> Action | None:
        """Record a step with its alarms, tell of them, and return what they lead to."""
        events, action = self._watch(step)
        self._writer.write_step(step, samples, events)
        for event in events:
            self._tell(event)
        return action

    def event(self, event: Event) -> None:
        """Record something that happened, and tell of it."""
        self._writer.write_event(event)
        self._tell(event)

    def checkpoint(self, step: int, folder: Path) -> None:
        """Record a checkpoint of the trainer."""
        self._writer.write_checkpoint(Checkpoint(step, folder))

    def close(self, status: Status, reason: str, after: Sequence[Sample]) -> None:
        """Close the run with the replies after training, and write its report."""
        self._writer.write_samples([replace(sample, split="after") for sample in after])
        self._writer.set_status(status, reason)
        self._writer.close()
        self._notifier.close()
        self._say_problems()
        write_report(self.path)

    def _tell(self, event: Event) -> None:
        """Say an alarm or an action, the likeliest cause and what to do; the other causes are in the run."""
        if event.severity != "info":
            likeliest = [f"Maybe {cause.text} ({cause.check})." for cause in event.causes[:1]]
            words = " ".join([event.message, *likeliest, event.advice]).rstrip()
            logger.warning("Kleash: %s, step %d, %s: %s", event.severity, event.step, event.name, words)
        self._notifier.send(event)
        self._say_problems()

    def _say_problems(self) -> None:
        for problem in self._notifier.problems():
            logger.warning("Kleash: %s", problem)


def resumed_writer(run_dir: Path, step: int) -> RunWriter:
    """Take a run up again from the trainer's checkpoint of `step`, with the records and checkpoints up to it."""
    with RunReader(run_dir) as run:
        newest = max(recorded.step for recorded in run.steps() if recorded.step <= step)
    return RunWriter.resume(run_dir, newest, checkpoint=step)


def check_free(run_dir: Path) -> None:
    """Refuse a folder that holds a run already.

    Raises:
        RunDirError: it does.
    """
    if (run_dir / DATABASE).exists():
        raise RunDirError(
            f"The run {run_dir} exists: run_dir names it, it holds a {DATABASE}, and a run is never overwritten. Give "
            "another folder, leave run_dir out (each training then gets one of its own), or go on with that run: "
            "trainer.train(resume_from_checkpoint=...)."
        )


def free_folder(output_dir: Path) -> Path:
    """`kleash` in the trainer's folder, or the first of `kleash-2`, `kleash-3`, ... that holds no run."""
    names = ("kleash" if i == 1 else f"kleash-{i}" for i in count(1))
    return next(output_dir / name for name in names if not (output_dir / name / DATABASE).exists())


def plain_settings(args: Any) -> dict[str, bool | int | float | str | None]:
    """The trainer's arguments, tokens masked, ready for JSON."""
    plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in args.to_dict().items()}
