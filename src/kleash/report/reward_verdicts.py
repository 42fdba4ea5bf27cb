"""What the numbers of a reward model's health report mean, in words: for its page and for its card.

The report is plain data that the run directory keeps; see `kleash.training.reward_health`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kleash.report.wording import number, percent

NOISE = 2.0
"""Standard errors that two means must differ by to be called different."""
HEAVY_TAIL = 2.35
LENGTH_BIAS = 0.3
"""Correlation of score and length above which a policy is likely to be paid for writing more."""

KINDS = {
    "chosen": "the answer that was chosen",
    "rejected": "the answer that was rejected",
    "empty": "nothing at all",
    "repeated": "the chosen answer over and over",
    "truncated": "the first half of the chosen answer",
}
"""The answers that are scored, in the order they are shown."""
NO_ANSWERS = ("empty", "repeated", "truncated")

Means = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Sign:
    """A number that says how a reward model may be exploited, and what it means."""

    name: str
    value: str
    meaning: str


def holes(answers: Means) -> list[str]:
    """Return the kinds of answers that are none and yet score above the chosen ones by more than noise."""
    return [kind for kind in NO_ANSWERS if kind in answers and _difference(answers, kind, "chosen") > NOISE]


def verdict(answers: Means, kind: str) -> str:
    """Say what a kind's mean score means beside those of chosen and rejected answers."""
    if kind == "chosen":
        return "the others are held against it"
    above = _difference(answers, kind, "chosen")
    if kind == "rejected":
        if above > NOISE:
            return "upside down: rejected answers score higher than chosen ones"
        return "below the chosen ones, as it should be" if above < -NOISE else "not told apart from the chosen ones"
    if above > NOISE:
        return "a hole: a policy is paid to write this instead of an answer"
    if above >= -NOISE:
        return "not told apart from a chosen answer: watch for it in the samples"
    if _difference(answers, kind, "rejected") > NOISE:
        return "below the chosen ones, but above the rejected ones"
    return "sound: no better than a rejected answer"


def signs(health: Mapping[str, Any]) -> list[Sign]:
    """Return what was measured besides accuracy, calibration and odd answers."""
    found = []
    if (value := health.get("length_correlation")) is not None:
        found.append(Sign("Correlation of score and length", number(value), _length_meaning(value)))
    if (value := health.get("longer_wins")) is not None:
        meaning = (
            "share of comparisons of unequal length in which it prefers the longer side; half if length is nothing"
        )
        found.append(Sign("Longer side preferred", percent(value), meaning))
    if (value := health.get("agreement")) is not None:
        meaning = "pairs of members that prefer the same side; where they part, the score is a guess"
        found.append(Sign("Agreement of members", percent(value), meaning))
    if (value := health.get("member_sd")) is not None:
        meaning = "sd of the members' scores of one answer, in reward; they may differ by a constant too"
        found.append(Sign("Spread of members", number(value), meaning))
    found.append(Sign("Tail index", number(health.get("tail_index")), _tail_meaning(health.get("tail_index"))))
    return found


def _length_meaning(value: float) -> str:
    if value > LENGTH_BIAS:
        return "longer answers score higher: a policy can be paid for writing more"
    if value < -LENGTH_BIAS:
        return "shorter answers score higher: a policy can be paid for writing less"
    return "length says little about the score"


def _tail_meaning(value: float | None) -> str:
    if value is None:
        return "not estimated: it takes 200 scores that differ"
    if value < HEAVY_TAIL:
        return (
            "heavy: a few answers score far above the rest, and such a reward can be raised without end at little KL; "
            "clip it, the leash alone does not keep it honest"
        )
    return "light: raising this reward far costs KL, which is what a leash limits"


def _difference(answers: Means, kind: str, other: str) -> float:
    """Return by how many standard errors a kind's mean is above another's; the errors are taken as independent.

    Both are means over the same prompts, so the true error of the difference is smaller as a rule: this is cautious.
    """
    gap = answers[kind]["mean"] - answers[other]["mean"]
    error = math.hypot(answers[kind]["stderr"], answers[other]["stderr"])
    return gap / error if error > 0 else math.copysign(math.inf, gap) if gap else 0.0
