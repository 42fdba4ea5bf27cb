"""Which checkpoint to take: the best held-out reward within a KL limit, never one under an alarm.

The best of many noisy means leans up: what is chosen is worth a little less than it measured. So the runner-up is told,
and whether the two can be told apart at all; all points are measured on held-out prompts, often the same ones, and
taking their errors as independent is then on the careful side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kleash.errors import ConfigError, DataError
from kleash.frontier.points import BEST_OF_N, Mean, Point, RewardKind
from kleash.report.wording import number, with_error

MOST_NAMED = 4
UNDER_ALARM = "Under a warning or critical alarm"


@dataclass(frozen=True)
class Exclusion:
    """Points that were not taken into account, and why."""

    reason: str
    points: tuple[Point, ...]

    @property
    def sentence(self) -> str:
        """The reason with the points' names."""
        names = [point.name for point in self.points[:MOST_NAMED]]
        more = len(self.points) - len(names)
        return f"{self.reason}: {', '.join(names)}" + (f" and {more} more." if more else ".")


@dataclass(frozen=True)
class Choice:
    """What to take.

    Attributes:
        by: the reward it was chosen by.
        max_kl: limit that the upper end of a point's 95 % interval of KL must keep, nats per sequence.
        chosen: the best that qualifies; None where nothing does.
        runner_up: the next best.
        nearest: of the best's method, the one with the least KL that cannot be told apart from it; may be the best.
        exclusions: all others, by reason.
    """

    by: RewardKind
    max_kl: float | None
    chosen: Point | None
    runner_up: Point | None
    nearest: Point | None
    exclusions: tuple[Exclusion, ...]

    @property
    def lead(self) -> Mean | None:
        """Reward of the chosen less that of the runner-up."""
        if self.chosen is None or self.runner_up is None:
            return None
        return _reward(self.chosen, self.by).minus(_reward(self.runner_up, self.by))

    @property
    def told_apart(self) -> bool:
        """Whether the chosen is better than the runner-up by more than noise, at 95 %."""
        lead = self.lead
        return lead is not None and lead.stderr is not None and lead.ends[0] > 0

    def sentences(self) -> list[str]:
        """Say what was chosen, what comes next, and what was left out, a sentence for each reason."""
        limit = "" if self.max_kl is None else f" within {number(self.max_kl)} nats per sequence"
        left_out = [exclusion.sentence for exclusion in self.exclusions]
        if self.chosen is None:
            return [f"No checkpoint qualifies{limit}.", *left_out]
        return [f"Best {self.by} reward{limit}: {_said(self.chosen, self.by)}.", *self._next(), *left_out]

    def _next(self) -> list[str]:
        if self.runner_up is None or self.chosen is None or self.nearest is None or self.lead is None:
            return ["Nothing else qualifies."]
        lead = with_error(self.lead.value, self.lead.stderr)
        apart = "told apart" if self.told_apart else "not told apart at 95 %"
        said = [f"Runner-up: {_said(self.runner_up, self.by)}; {lead} less, {apart}."]
        if self.nearest != self.chosen:
            said.append(f"As good within noise and nearest to the start: {_said(self.nearest, self.by)}.")
        return said


def choose(points: Sequence[Point], max_kl: float | None = None, by: RewardKind = "gold") -> Choice:
    """Choose among the checkpoints of one or many runs.

    Args:
        points: of any methods; those that are no checkpoint, are under an alarm or gone from the disk never qualify.
        max_kl: nats per sequence that the upper end of a KL's 95 % interval may reach; None for no limit.
        by: the reward to rank by.

    Raises:
        ConfigError: a limit that is not positive.
        DataError: no point has that reward, or the points have different ones, whose numbers cannot be ranked.
    """
    if max_kl is not None and not max_kl > 0:
        raise ConfigError(f"max_kl = {max_kl}: a limit of KL is a positive number of nats per sequence.")
    _check(points, by)
    left, exclusions = list(points), []
    for reason, applies in _reasons(max_kl, by):
        out = tuple(point for point in left if applies(point))
        left = [point for point in left if not applies(point)]
        if out:
            exclusions.append(Exclusion(_with_alarms(reason, out), out))
    ranked = sorted(left, key=lambda point: (-_reward(point, by).value, point.kl.value))
    if not ranked:
        return Choice(by, max_kl, None, None, None, tuple(exclusions))
    best, method = _reward(ranked[0], by), ranked[0].source.method
    alike = [p for p in ranked if p.source.method == method and not best.is_above(_reward(p, by))]
    nearest = min(alike, key=lambda point: point.kl.value)
    return Choice(by, max_kl, ranked[0], ranked[1] if len(ranked) > 1 else None, nearest, tuple(exclusions))


def _reasons(max_kl: float | None, by: RewardKind) -> list[tuple[str, Callable[[Point], bool]]]:
    """Why a point does not qualify; the first reason that applies to it counts."""
    found: list[tuple[str, Callable[[Point], bool]]] = [
        ("Best-of-n is a way of sampling and no checkpoint", lambda point: point.source.method == BEST_OF_N),
        (f"Without a held-out {by} reward", lambda point: point.reward(by) is None),
        (UNDER_ALARM, lambda point: bool(point.alarms)),
        ("No checkpoint on disk", lambda point: point.checkpoint is None),
    ]
    if max_kl is not None:
        limit = max_kl
        over = f"KL's 95 % interval reaches above {number(limit)} nats per sequence"
        found.append((over, lambda point: point.kl.ends[1] > limit))
    return found


def _with_alarms(reason: str, points: Sequence[Point]) -> str:
    if reason != UNDER_ALARM:
        return reason
    return f"{reason} ({', '.join(sorted({alarm for point in points for alarm in point.alarms}))})"


def _check(points: Sequence[Point], by: RewardKind) -> None:
    """Refuse rewards that cannot be ranked against each other."""
    sources: dict[str, list[str]] = {}
    for point in points:
        if point.reward(by) is not None:
            names = sources.setdefault(point.rewarded_by(by) or "not stated", [])
            names += [] if point.source.name in names else [point.source.name]
    if not sources:
        advice = "set reward.gold in the runs, or choose by proxy" if by == "gold" else "choose by gold"
        raise DataError(f"No point has a held-out {by} reward, so none can be chosen by it: {advice}.")
    if len(sources) > 1:
        named = "; ".join(f"{reward} in {', '.join(names)}" for reward, names in sources.items())
        other = " or choose by gold," if by == "proxy" else ""
        raise DataError(
            f"The points have different {by} rewards, whose numbers cannot be ranked: {named}. Give runs of one reward,"
            f"{other} or ask for one kind of run at a time."
        )


def _reward(point: Point, by: RewardKind) -> Mean:
    reward = point.reward(by)
    if reward is None:
        raise ValueError(f"{point.name} has no {by} reward")
    return reward


def _said(point: Point, by: RewardKind) -> str:
    reward = _reward(point, by)
    return (
        f"{point.name} ({point.source.method}), {by} {with_error(reward.value, reward.stderr)} at "
        f"{with_error(point.kl.value, point.kl.stderr)} nats"
    )
