"""Which checkpoints stay on disk, and which of them can be gone back to.

Those of the schedule count. One that was saved besides, because a run was left, goes when the next is saved: a run that
was interrupted then finds the same checkpoints to go back to as one that was not.

A slow drift is noticed late, up to some 300 steps after it began, when the newest checkpoints are all of the drift. So
a thinned past stays as well: about one checkpoint of each age band. Which one depends on its step alone, and one of a
wide band is one of the narrower bands too, so that it lives long enough to reach its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kleash.config.schema import Training
from kleash.monitor.suspects import suspicions
from kleash.runs.records import Event

PAST = ((50, 100), (100, 200), (200, 600))
"""Spacing of the checkpoints that stay, and the age that they reach, in steps: at most five beside the newest."""


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

    It stays, the newest trusted one, the newest `keep_checkpoints` of the schedule and a thinned past. Later ones were
    left over by a run that was killed and taken up from an earlier one.
    """
    reached = [step for step in steps if step <= now]
    kept = {now, newest_trusted(reached, events, training)}
    scheduled = _scheduled(reached, training)
    kept |= set(scheduled[-training.keep_checkpoints :])
    kept |= {step for step in scheduled if _is_of_the_past(step, now, training.checkpoint_every)}
    return [step for step in steps if step not in kept]


def kept_at_the_end(training: Training) -> int:
    """Return how many checkpoints a run without alarms leaves on disk."""
    saved = sorted({*range(0, training.steps, training.checkpoint_every), training.steps})
    return len(saved) - len(superseded(saved, training.steps, [], training))


def _is_of_the_past(step: int, now: int, every: int) -> bool:
    """Whether a checkpoint is the first after a multiple of a band's spacing, and not yet too old for the band."""
    return any(step % spacing < every and now - step < oldest for spacing, oldest in PAST)


def _scheduled(steps: Iterable[int], training: Training) -> list[int]:
    return sorted(step for step in steps if step % training.checkpoint_every == 0 or step == training.steps)
