"""What the monitor sees of somebody else's training: the callback's measurements and the trainer's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from kleash.metrics import HELD_OUT
from kleash.monitor.actions import Action
from kleash.monitor.ladder import Ladder
from kleash.monitor.logs import mappings as m
from kleash.monitor.logs.raw import numbers
from kleash.monitor.monitor import Monitor
from kleash.monitor.suspects import suspect_windows
from kleash.monitor.watched import measured_in, windows_over
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Step

TRAINERS = {
    "GRPOConfig": m.GRPO,
    "RLOOConfig": m.RLOO,
    "DPOConfig": m.DPO,
    "KTOConfig": m.KTO,
    "XPOConfig": m.XPO,
    "NashMDConfig": m.NASH,
    "OnlineDPOConfig": m.ONLINE,
    "CPOConfig": m.NO_REFERENCE,
    "ORPOConfig": m.NO_REFERENCE,
    "SFTConfig": m.SFT,
}
"""The trainer's name in the mapping table, by the class of its arguments."""


class Watch:
    """The monitor of one training, and the ladder that it leads up.

    A key that the callback measures is seen as measured, on the same prompts every time: the trainer's number of that
    name is another series, of the training's prompts, and the two are never mixed. The trainer's other numbers are
    seen as it logs them.
    """

    def __init__(self, ladder: Ladder) -> None:
        """Watch a training from its start."""
        self._monitor = Monitor()
        self._ladder = ladder
        self._measured: set[str] = set()

    def __call__(self, recorded: Step) -> tuple[list[Event], Action | None]:
        """Return the events of a step, and what to do about its alarms."""
        events = self._monitor.observe(self._seen(recorded))
        return events, self._ladder.decide(self._monitor.pressing, recorded.step)

    def replay(self, recorded: Iterable[Step]) -> None:
        """Go through the steps of a run that goes on: alarms and ladder stand where they stood."""
        for step in recorded:
            self(step)

    def _seen(self, recorded: Step) -> Step:
        mine = {key.removeprefix(HELD_OUT): key for key in recorded.metrics if key.startswith(HELD_OUT)}
        self._measured.update(mine)
        theirs = {key: key for key in recorded.metrics if not key.startswith(HELD_OUT) and key not in self._measured}
        names = mine | theirs
        return Step(
            recorded.step,
            {name: recorded.metrics[key] for name, key in names.items()},
            {name: recorded.stderr[key] for name, key in names.items() if key in recorded.stderr},
            recorded.notes,
        )


def trainer_name(args: TrainingArguments) -> str:
    """The trainer's name in the mapping table; a subclass of a trainer's arguments counts as that trainer's."""
    classes = (cls.__name__ for cls in type(args).__mro__)
    return next((TRAINERS[name] for name in classes if name in TRAINERS), m.HF)


def translated(logs: Mapping[str, Any], trainer: str, beta: float | None) -> dict[str, float]:
    """A trainer's numbers under the keys of the catalogue; of two columns for one key, the better one's.

    Args:
        logs: what it logs of a training step, under its own names; evaluations of its own are left out.
        trainer: its name in the mapping table.
        beta: what its rewards are divided by, where the table asks for it.
    """
    left = numbers(logs)
    found: dict[str, float] = {}
    for row in m.rows_of(trainer).values():
        for column in [column for column in left if row.matches(column) is not None]:
            key, value = row.matches(column), row.scale.apply(left.pop(column), beta)
            if key and value is not None:
                found.setdefault(key, value)
    return found


def trusted_checkpoint(run_dir: Path) -> Path | None:
    """The newest checkpoint of a run that is on disk and lies under no alarm."""
    with RunReader(run_dir) as run:
        windows, settings = suspect_windows(run.events()), run.config
        checkpoints = [saved for saved in run.checkpoints() if saved.path.is_dir()]
    trusted = [saved.path for saved in checkpoints if not windows_over(windows, measured_in(settings, saved.step))]
    return trusted[-1] if trusted else None
