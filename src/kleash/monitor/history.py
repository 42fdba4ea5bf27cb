"""The steps of a run so far, as rules read them: the latest values of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kleash.runs.records import Step

Values = NDArray[np.float64]


class Track:
    """One number of a run: the steps in which it was measured, its values and standard errors, in order."""

    def __init__(self) -> None:
        """Start empty."""
        self._data = np.empty((3, 64))
        self._count = 0

    def __len__(self) -> int:
        """Return how often it was measured."""
        return self._count

    def append(self, step: int, value: float, stderr: float) -> None:
        """Add a measurement; an unknown standard error is NaN."""
        if self._count == self._data.shape[1]:
            self._data = np.concatenate([self._data, np.empty_like(self._data)], axis=1)
        self._data[:, self._count] = step, value, stderr
        self._count += 1

    def steps(self, last: int | None = None) -> Values:
        """Return the newest `last` steps (None: all)."""
        return self._rows(last, 0)

    def values(self, last: int | None = None) -> Values:
        """Return the newest `last` values (None: all)."""
        return self._rows(last, 1)

    def stderrs(self, last: int | None = None) -> Values:
        """Return the standard errors of the newest `last` values (None: all); NaN where unknown."""
        return self._rows(last, 2)

    def _rows(self, last: int | None, row: int) -> Values:
        first = 0 if last is None else max(0, self._count - last)
        return self._data[row, first : self._count]


class History:
    """All numbers of a run up to the step that is being looked at.

    Attributes:
        now: that step; -1 before the first.
        fresh: the keys that it measured, non-finite values among them.
    """

    def __init__(self) -> None:
        """Start before the first step."""
        self.now = -1
        self.fresh: Mapping[str, float] = {}
        self._tracks: dict[str, Track] = {}

    def push(self, step: Step) -> None:
        """Take a step in. Non-finite values are in `fresh` alone: no mean or trend is taken over them."""
        self.now = step.step
        self.fresh = {key: value for key, value in step.metrics.items() if value is not None}
        for key, value in self.fresh.items():
            if np.isfinite(value):
                track = self._tracks.setdefault(key, Track())
                track.append(step.step, value, step.stderr.get(key, np.nan))

    def __getitem__(self, key: str) -> Track:
        """Return the track of a key; an empty one where it was never measured."""
        return self._tracks.get(key, _NOTHING)

    def keys(self) -> Sequence[str]:
        """Return the keys measured so far."""
        return list(self._tracks)

    def latest(self, key: str) -> float | None:
        """Return the newest finite value, of whatever step; None if there is none."""
        track = self[key]
        return float(track.values(1)[0]) if len(track) else None

    def first_of(self, keys: Sequence[str]) -> str | None:
        """Return the first of some keys that this run measures, best first; None if it measures none."""
        return next((key for key in keys if key in self._tracks), None)


_NOTHING = Track()
