"""Which checkpoints stay on disk, and which of them can be gone back to.

Those of the schedule count. One that was saved besides, because a run was left, goes when the next is saved: a run that
was interrupted then finds the same checkpoints to go back to as one that was not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kleash.config.schema import Training
from kleash.monitor.suspects import suspicions
from kleash.runs.records import Event


def on_disk(folder: Path) -> dict[int, Path]:
    """Return checkpoint folders by step, oldest first."""
    found = [path for path in folder.glob("step_*") if path.name.removeprefix("step_").isdigit()]
    return dict(sorted((int(path.name.removeprefix("step_")), path) for path in found))


def newest_trusted(steps: Iterable[int], events: Sequence[Event], training: Training) -> int | None:
    """Return the newest scheduled step that lies under no warning and no critical alarm, or None."""
    trusted = [step for step in _scheduled(steps, training) if not suspicions(events, step)]
    return max(trusted, default=None)


def superseded(steps: Collection[int], now: int, events: Sequence[Event], training: Training) -> list[int]:
    """Return the steps whose checkpoints can go when that of step `now` has been saved.

    It stays, the newest trusted one, and the newest `keep_checkpoints` of the schedule. Later ones were left over by a
    run that was killed and taken up from an earlier one.
    """
    reached = [step for step in steps if step <= now]
    kept = {now, newest_trusted(reached, events, training)}
    kept |= set(_scheduled(reached, training)[-training.keep_checkpoints :])
    return [step for step in steps if step not in kept]


def _scheduled(steps: Iterable[int], training: Training) -> list[int]:
    return sorted(step for step in steps if step % training.checkpoint_every == 0 or step == training.steps)
