"""The points of one method as arrays: reward over d = sqrt(KL), with errors on both axes and their common start.

Runs that were measured on the same held-out prompts with the same random numbers have one and the same start; it is
counted once. Other starts are moved onto the first one's, which compares what was gained and not where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from kleash.frontier.points import Mean, Point, RewardKind, Source

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Curve:
    """K points, starts included.

    Attributes:
        d: sqrt(KL), KL in nats per sequence.
        d_stderr: its standard error; 0 at a start.
        reward: moved so that all measured starts agree.
        stderr: standard error of the reward as it was measured.
        start: which start a point belongs to, from 0 up.
        is_start: whether the point is one.
    """

    d: Float[Array, " K"]
    d_stderr: Float[Array, " K"]
    reward: Float[Array, " K"]
    stderr: Float[Array, " K"]
    start: Int[Array, " K"]
    is_start: Bool[Array, " K"]

    @property
    def reach(self) -> float:
        """The largest KL measured, nats per sequence."""
        return float(self.d.max() ** 2)


def curve_of(points: Sequence[Point], by: RewardKind) -> Curve | None:
    """Put points of one method in arrays; None where none has a start, an error and a KL.

    Left out: points of a source whose start was not measured, and those whose reward has no standard error or one of 0.
    """
    starts = _starts(points, by)
    kinds = list(dict.fromkeys(starts.values()))
    rows: list[tuple[float, float, float, float, int, bool]] = []
    for index, start in enumerate(kinds):
        rows.append((0.0, 0.0, kinds[0].value, _error(start), index, True))
    for point in points:
        reward, start_of = point.reward(by), starts.get(point.source)
        if start_of is None or reward is None or not reward.stderr or point.is_start or point.kl.value <= 0:
            continue
        d = math.sqrt(point.kl.value)
        moved = reward.value + kinds[0].value - start_of.value
        rows.append((d, (point.kl.stderr or 0.0) / (2 * d), moved, reward.stderr, kinds.index(start_of), False))
    if len(rows) == len(kinds):
        return None
    d_, d_stderr, reward_, stderr, start_, is_start = map(np.array, zip(*rows, strict=True))
    return Curve(d_, d_stderr, reward_, stderr, start_, is_start)


def shifts(points: Sequence[Point], by: RewardKind) -> dict[Source, float]:
    """Return what each source's rewards are moved by, so that all starts agree; 0 where the start is not known."""
    starts = _starts(points, by)
    first = next(iter(starts.values()), None)
    return {
        point.source: first.value - starts[point.source].value if first and point.source in starts else 0.0
        for point in points
    }


def _starts(points: Sequence[Point], by: RewardKind) -> dict[Source, Mean]:
    """The start of each source that has one with an error."""
    found = {}
    for point in points:
        reward = point.reward(by)
        if point.is_start and reward is not None and reward.stderr:
            found[point.source] = reward
    return found


def _error(start: Mean) -> float:
    return float(start.stderr or 0.0)
