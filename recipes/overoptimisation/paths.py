"""What a run or best-of-n measured, as the points of a frontier in units that can be pooled over seeds and compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev, stdev
from typing import Any

import numpy as np

from kleash.frontier.analysis import analyse
from kleash.frontier.points import Mean, Point, RewardKind
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample

Json = dict[str, Any]
Judge = Callable[[Sequence[str], Sequence[str]], Sequence[float]]
"""From openers and completions to scores."""
DIGITS = 4
"""Of what is kept."""


def held_out_samples(reader: RunReader) -> list[Sample]:
    """Return the samples of all held-out evaluations, by step."""
    return [*reader.samples("before"), *reader.samples("eval"), *reader.samples("after")]


def spread(samples: Sequence[Sample]) -> float:
    """Return the standard deviation of the proxy on samples of the start."""
    return pstdev(sample.reward for sample in samples if sample.step == 0 and sample.reward is not None)


def in_sd(points: Sequence[Point], sd: float, proxy: str) -> list[Point]:
    """Return points with the proxy counted from the start, in `sd`; those of one name `proxy` are pooled."""
    start = value(points[0], "proxy")
    return [
        replace(
            point,
            source=replace(point.source, proxy=proxy),
            proxy=point.proxy and Mean((point.proxy.value - start) / sd, (point.proxy.stderr or 0.0) / sd),
        )
        for point in points
    ]


def by_judge(points: Sequence[Point], samples: Sequence[Sample], judge: Judge) -> list[Point]:
    """Return points whose gold is the judge's mean score, counted from the start in sd there."""
    scores = judge([one.prompt for one in samples], [one.completion for one in samples])
    by_step: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample, score in zip(samples, scores, strict=True):
        by_step[sample.step][sample.prompt_index].append(score)
    start = [score for group in by_step[0].values() for score in group]
    centre, sd = fmean(start), pstdev(start)
    return [replace(point, gold=_over_prompts(by_step[point.at], centre, sd)) for point in points]


def strands(points: Sequence[Point]) -> list[Json]:
    """Return what `kleash frontier` says of the points of one method, for each reward."""
    found = analyse(points, by="gold").to_dict()["strands"]
    return [{key: rounded(strand[key]) for key in ("by", "fit", "smooth")} for strand in found]


def rounded(found: Any) -> Any:
    """Return numbers in JSON's types with `DIGITS` digits."""
    if isinstance(found, Mapping):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.{DIGITS}g}") if isinstance(found, float) else found


def lead_at(points: Sequence[Point], others: Sequence[Point], by: RewardKind, kl: float) -> float:
    """Return the lead over another path at one KL."""
    place = [math.sqrt(kl)]
    return _heights(points, by, place)[0] - _heights(others, by, place)[0]


def lead_at_equal_drift(points: Sequence[Point], others: Sequence[Point], by: RewardKind, least: float) -> float:
    """Return the mean lead of points over another path at their own d, from `least` to where that path ends."""
    reach = max(map(root, others))
    shared = [point for point in points if least <= root(point) <= reach]
    theirs = _heights(others, by, [root(point) for point in shared])
    return fmean(value(point, by) - their for point, their in zip(shared, theirs, strict=True))


def value(point: Point, by: RewardKind) -> float:
    """Return the mean reward of a point that has it."""
    reward = point.reward(by)
    assert reward is not None
    return reward.value


def root(point: Point) -> float:
    """Return d = sqrt(KL); KL in nats per sequence, and a start that measures less than 0 by rounding is at 0."""
    return math.sqrt(max(0.0, point.kl.value))


def plain(point: Point) -> Json:
    """Return a point in JSON's types."""
    return {
        "at": point.at,
        "kl": round(point.kl.value, 4),
        "gold": round(value(point, "gold"), 4),
        "proxy": round(value(point, "proxy"), 4),
        "alarms": list(point.alarms),
    }


def _heights(points: Sequence[Point], by: RewardKind, d: Sequence[float]) -> list[float]:
    """Return the reward of a path at each d = sqrt(KL), on straight lines between its points by KL."""
    places = sorted((root(point), value(point, by)) for point in points)
    return [float(one) for one in np.interp(d, [place for place, _ in places], [height for _, height in places])]


def _over_prompts(groups: Mapping[int, Sequence[float]], centre: float, sd: float) -> Mean:
    means = [(fmean(group) - centre) / sd for group in groups.values()]
    return Mean(fmean(means), stdev(means) / math.sqrt(len(means)))
