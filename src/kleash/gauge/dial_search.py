"""At which scale of an adapter does its KL stay within a limit? Numbers only: what is measured is a function passed in.

Two parts, on prompts of their own:

    search   roughly where the KL crosses the limit, on prompts that decide nothing
    climb    from a small scale upwards on held-out prompts, until the upper end of the 95 % interval of the mean KL
             is above the limit; the last scale below it is the answer

Why the climb needs no correction for the scales it tries: they are fixed before it looks at its prompts, they are
tested from the smallest up, and the first failure ends it. To end above the limit, the first scale whose true KL is
above it must pass, and one scale passes wrongly with probability 2.5 %: a fixed-sequence test (Maurer, Hothorn and
Lehmacher 1995). Going down from 1 to the first success would pick the luckiest of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kleash.gauge.records import Estimate

SCHEMA_VERSION = 1
SEARCHED = 4
"""Scales of a search at most, scale 1 included."""
NEAR = 0.1
"""A search ends when its KL is within this share of the limit."""
LADDER = (0.3, 0.5, 0.65, 0.78, 0.88, 0.95, 1.0, 1.1, 1.25)
"""The climb's scales, as shares of the limit that the search predicts their KL to be."""

Searched = tuple[float, float]
"""A scale and the KL that the search found there, nats per sequence."""


@dataclass(frozen=True)
class Point:
    """What was measured at one scale on the held-out prompts."""

    scale: float
    kl: Estimate
    """KL(policy ‖ reference), exact over the vocabulary, nats per sequence."""
    kl_per_token: Estimate
    length: Estimate
    """Tokens, the stop token included."""
    reward: Estimate | None
    """Before shaping, as `reward/proxy` is; None where the run has none that could be asked."""
    gold: Estimate | None


@dataclass(frozen=True)
class Dial:
    """One checkpoint at several scales of its adapter.

    Attributes:
        run: the run's name.
        step: of the checkpoint.
        limit: nats per sequence that were allowed; None where no scale was looked for.
        scale: the largest tried whose interval lies within the limit, or None.
        points: what was measured, by scale.
        searched: the search's scales and KLs, on other prompts.
        prompts: held-out prompts behind every point.
        samples: replies to each.
        settings: where prompts and replies come from.
        notes: what a reader must know.
    """

    run: str
    step: int
    limit: float | None
    scale: float | None
    points: tuple[Point, ...]
    searched: tuple[Searched, ...]
    prompts: int
    samples: int
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    def at(self, scale: float) -> Point:
        """The point of a scale that was measured."""
        return next(point for point in self.points if point.scale == scale)

    def to_dict(self) -> dict[str, Any]:
        """The result in JSON's types, `schema_version` first; numbers that are not finite become None."""
        return {"schema_version": SCHEMA_VERSION, **_plain(asdict(self))}


def search(kl_at: Callable[[float], float], limit: float) -> tuple[Searched, ...]:
    """Scale 1, then where the KL should cross the limit, until it is near or the tries are used up.

    Args:
        kl_at: measures the KL at a scale, nats per sequence.
        limit: nats per sequence.

    Returns:
        The scales tried, ascending; scale 1 alone where its KL is within the limit.
    """
    points = [(1.0, kl_at(1.0))]
    while len(points) < SEARCHED and all(abs(kl - limit) > NEAR * limit for _, kl in points):
        scale = _short(crossing(points, limit))
        if scale >= 1:
            break
        points = sorted([*points, (scale, kl_at(scale))])
    return tuple(points)


def crossing(points: Sequence[Searched], kl: float) -> float:
    """The scale at which the KL should be `kl`, from what was measured; beyond 1 where scale 1 has less.

    log KL is linear in log scale between neighbours, after a running maximum has made it monotone. Below the smallest
    scale and above the largest KL grows as the square of the scale: near the reference the KL is quadratic in the
    weights. No KL anywhere: infinity.
    """
    scales, found = np.array(sorted(points), dtype=np.float64).T
    rising = np.maximum.accumulate(found)
    known = rising > 0
    if not known.any():
        return math.inf
    log_scale, log_kl, wanted = np.log(scales[known]), np.log(rising[known]), math.log(kl)
    if wanted <= log_kl[0]:
        return float(np.exp(log_scale[0] - (log_kl[0] - wanted) / 2))
    if wanted >= log_kl[-1]:
        return float(np.exp(log_scale[-1] + (wanted - log_kl[-1]) / 2))
    return float(np.exp(np.interp(wanted, log_kl, log_scale)))


def ladder(points: Sequence[Searched], limit: float) -> tuple[float, ...]:
    """The scales of a climb, ascending: where the KL should be a share of the limit, and 1 if they reach it."""
    scales = [_short(crossing(points, share * limit)) for share in LADDER]
    below = [scale for scale in dict.fromkeys(scales) if scale < 1]
    return tuple(below) if scales[-1] < 1 else (*below, 1.0)


def climb(measure: Callable[[float], Point], scales: Sequence[float], limit: float) -> tuple[list[Point], float | None]:
    """Measure scales in their order until the interval of one does not lie within the limit.

    Args:
        measure: what is measured at a scale, on prompts that had no say in the choice of `scales`.
        scales: ascending.
        limit: nats per sequence.

    Returns:
        All that was measured, the failure included, and the last scale that passed; None where the first failed.
    """
    measured: list[Point] = []
    passed = None
    for scale in scales:
        measured.append(measure(scale))
        if not measured[-1].kl.high <= limit:
            break
        passed = scale
    return measured, passed


def _short(scale: float) -> float:
    """A scale in three digits: what is exported can be written down."""
    return float(f"{scale:.3g}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
