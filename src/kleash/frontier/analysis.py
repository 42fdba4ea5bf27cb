"""Everything a frontier says, from its points: curves and peaks of each method, fronts, and the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kleash.errors import DataError
from kleash.frontier.choosing import Choice, choose
from kleash.frontier.curves import Curve, curve_of
from kleash.frontier.fits import Fit, Range, fit
from kleash.frontier.forms import BEST_OF_N as BEST_OF_N_FORM
from kleash.frontier.forms import LEARNING
from kleash.frontier.pareto import pareto_front
from kleash.frontier.points import BEST_OF_N, Point, RewardKind
from kleash.frontier.smooth import Smooth, smooth

SCHEMA_VERSION = 1
KINDS: tuple[RewardKind, ...] = ("gold", "proxy")


@dataclass(frozen=True, eq=False)
class Strand:
    """The points of one method under one reward, and what can be said of their curve.

    Attributes:
        method: such as "RLOO".
        by: whether the reward is gold or proxy.
        reward: what it is.
        points: those that have it, by KL.
        curve: None where no start was measured.
        fit: Gao's form; None where there are too few points to check it by.
        smooth: the curve without a form; None where there are too few.
        front: the points that none other dominates.
    """

    method: str
    by: RewardKind
    reward: str
    points: tuple[Point, ...]
    curve: Curve | None
    fit: Fit | None
    smooth: Smooth | None
    front: tuple[Point, ...]

    @property
    def missing(self) -> str:
        """Why there is no fit or no curve; empty where there are both."""
        if self.curve is None:
            return "No start with an error was measured beside a later point, so nothing can be fitted."
        if self.fit is None:
            return (
                f"{len(self.points)} points are too few to fit two numbers and to check the fit: 5 with the start do."
            )
        return "" if self.smooth else "A curve without a form takes 5 different KLs."


@dataclass(frozen=True, eq=False)
class Frontier:
    """All points, the strands they form, and the choice among them."""

    points: tuple[Point, ...]
    strands: tuple[Strand, ...]
    choice: Choice

    @property
    def methods(self) -> list[str]:
        """In the order given."""
        return list(dict.fromkeys(point.source.method for point in self.points))

    def to_dict(self) -> dict[str, Any]:
        """Return the result in JSON's types, `schema_version` first; an end at infinity is null."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kl": KL_NOTE,
            "choice": _choice(self.choice),
            "strands": [_strand(strand) for strand in self.strands],
            "points": [_point(point) for point in self.points],
        }


KL_NOTE = (
    "KL(policy ‖ start), nats per sequence, and not to be compared across methods: at equal KL best-of-n has optimised "
    "more than reinforcement learning has, and the estimators differ"
)


def analyse(points: Sequence[Point], max_kl: float | None = None, by: RewardKind | None = None) -> Frontier:
    """Build the frontier of points.

    Args:
        points: of any runs and methods.
        max_kl: limit for the choice, nats per sequence.
        by: the reward to choose by; None takes gold where any point has it.

    Raises:
        ConfigError: a limit that is not positive.
        DataError: a single point, no reward to choose by, or rewards that cannot be ranked against each other.
    """
    if len(points) < 2:
        raise DataError(
            f"There is {len(points)} point in all ({', '.join(point.name for point in points)}), and a frontier needs "
            "two to compare. Give more runs, or evaluate more often with a smaller training.eval_every."
        )
    chosen_by: RewardKind = by or ("gold" if any(point.gold for point in points) else "proxy")
    choice = choose(points, max_kl, chosen_by)
    return Frontier(tuple(points), tuple(_strands(points)), choice)


def _strands(points: Sequence[Point]) -> list[Strand]:
    groups: dict[tuple[str, RewardKind, str], list[Point]] = {}
    for by in KINDS:
        for point in points:
            if point.reward(by) is not None:
                groups.setdefault((point.source.method, by, point.rewarded_by(by) or "not stated"), []).append(point)
    order = list(dict.fromkeys(point.source.method for point in points))
    return [_build(*key, groups[key]) for key in sorted(groups, key=lambda key: order.index(key[0]))]


def _build(method: str, by: RewardKind, reward: str, points: Sequence[Point]) -> Strand:
    curve = curve_of(points, by)
    form = BEST_OF_N_FORM if method == BEST_OF_N else LEARNING
    return Strand(
        method=method,
        by=by,
        reward=reward,
        points=tuple(sorted(points, key=lambda point: point.kl.value)),
        curve=curve,
        fit=None if curve is None else fit(form, curve),
        smooth=None if curve is None else smooth(curve),
        front=tuple(pareto_front(points, by)),
    )


def _choice(choice: Choice) -> dict[str, Any]:
    lead = choice.lead
    return {
        "by": choice.by,
        "max_kl": choice.max_kl,
        "chosen": None if choice.chosen is None else _point(choice.chosen),
        "runner_up": None if choice.runner_up is None else _point(choice.runner_up),
        "lead": None if lead is None else asdict(lead),
        "told_apart": choice.told_apart,
        "nearest": None if choice.nearest is None else _point(choice.nearest),
        "left_out": [
            {"reason": one.reason, "points": [point.name for point in one.points]} for one in choice.exclusions
        ],
        "sentences": choice.sentences(),
    }


def _point(point: Point) -> dict[str, Any]:
    plain = asdict(point)
    return {**plain, "checkpoint": None if point.checkpoint is None else str(point.checkpoint)}


def _strand(strand: Strand) -> dict[str, Any]:
    return {
        "method": strand.method,
        "by": strand.by,
        "reward": strand.reward,
        "points": [point.name for point in strand.points],
        "front": [point.name for point in strand.front],
        "fit": None if strand.fit is None else _fit(strand.fit),
        "smooth": None if strand.smooth is None else _smooth(strand.smooth),
        "missing": strand.missing,
    }


def _fit(found: Fit) -> dict[str, Any]:
    return {
        "form": found.form.formula,
        "alpha": _range(found.alpha_range),
        "beta": _range(found.beta_range),
        "peak_kl": _range(found.peak.kl),
        "peak_gain": _range(found.peak.gain),
        "reached": found.peak.reached,
        "largest_kl_measured": found.peak.reach,
        "chi_squared": found.chi_squared,
        "degrees_of_freedom": found.freedom,
        "p_value": found.p_value,
        "error_inflation": found.inflation,
    }


def _smooth(found: Smooth) -> dict[str, Any]:
    low, high = found.peak_kl
    return {
        "best_kl": found.best_kl,
        "peak_kl": {"low": low, "high": _finite(high)},
        "turns_over": found.turns_over,
        "error_inflation": found.inflation,
        "kl": [float(d**2) for d in found.d],
        "reward": found.reward.tolist(),
        "stderr": found.stderr.tolist(),
    }


def _range(found: Range) -> dict[str, float | None]:
    return {"value": _finite(found.value), "low": _finite(found.low), "high": _finite(found.high)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
