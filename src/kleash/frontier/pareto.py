"""Which points are worth having: none other is as good for as little drift."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.frontier.points import Point, RewardKind


def pareto_front(points: Sequence[Point], by: RewardKind) -> list[Point]:
    """Return the points that no other one dominates, by rising KL. Give points of one method.

    A point is dominated by one with no less reward and no more KL, if one of the two is better by more than noise
    (95 %, errors taken as independent). What cannot be told apart therefore stays. Points under an alarm take no part.
    """
    able = [point for point in points if point.reward(by) is not None and not point.alarms]
    kept = [point for point in able if not any(_dominates(other, point, by) for other in able)]
    return sorted(kept, key=lambda point: point.kl.value)


def _dominates(other: Point, point: Point, by: RewardKind) -> bool:
    better, reward = other.reward(by), point.reward(by)
    if better is None or reward is None or better.value < reward.value or other.kl.value > point.kl.value:
        return False
    return better.is_above(reward) or point.kl.is_above(other.kl)
