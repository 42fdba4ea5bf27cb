"""Which beta, before any training: the optimum over a range of beta, what each would favour, and the one to start with.

The rule for the suggestion, among the betas at which something is claimed, from the shortest leash to the longest:

* with a gold reward: the smallest beta at which one more nat still gains gold beyond its interval;
* without one: the first at which a nat gains less than a quarter of what the nats before it gained on average (a
  reward that is normal under the reference never comes to that: a nat gains half of the average);
* where neither comes to an end, the smallest beta at which something is claimed.

Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kleash.errors import DataError
from kleash.gauge import statistics
from kleash.gauge.records import Estimate
from kleash.gauge.tilting import LEAST_SCORED, Point, Prediction, PromptDraws, predict, tilt
from kleash.report.wording import number, with_interval

SCHEMA_VERSION = 1
NEGLIGIBLE_KL = 0.01
"""Nats per sequence at which the range of beta begins, by the law of small KL."""
BETAS_PER_OCTAVE = 2
MOST_BETAS = 20
SATURATED = 0.25
"""A nat that gains less than this share of the average nat so far is not worth it."""
FAVOURED = 4
"""Samples that are shown for each beta."""


@dataclass(frozen=True)
class Favoured:
    """A sample that the optimum writes much more often than the reference does."""

    beta: float
    prompt: str
    completion: str
    factor: float
    """Its weight times the samples of its prompt: how many times as likely as under the reference."""
    reward: float
    gold: float | None


@dataclass(frozen=True)
class Suggestion:
    """The beta to start with; without one where the samples give none."""

    beta: float | None
    kl: float | None
    """What it is predicted to end at, nats per sequence: the same choice as a target."""
    reason: str


@dataclass(frozen=True)
class Start:
    """The reference itself, where KL is 0."""

    reward: Estimate
    gold: Estimate | None
    length: Estimate


@dataclass(frozen=True)
class Forecast:
    """What the samples of a reference say about training under a reward."""

    model: str
    prompts: int
    samples: int
    """G, drawn for each prompt."""
    unscored: int
    """Samples without a score, of all prompts together."""
    left_out: int
    """Prompts with too few scored samples."""
    spread: float
    """Standard deviation of the reward that is optimised, among the samples of a prompt."""
    start: Start
    points: tuple[Point, ...]
    """From the largest beta to the smallest."""
    favoured: tuple[Favoured, ...]
    suggestion: Suggestion
    notes: tuple[str, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the result in JSON's types, `schema_version` first; what is no finite number is null."""
        plain: dict[str, Any] = _finite({"schema_version": SCHEMA_VERSION, **asdict(self)})
        return plain


def forecast(
    draws: Sequence[PromptDraws],
    betas: Sequence[float] | None,
    *,
    also: float | None = None,
    model: str = "",
    notes: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
) -> Forecast:
    """Predict where each beta would end.

    Args:
        draws: samples of the reference, as many of each prompt.
        betas: the betas to predict; None begins where the KL is negligible and goes on until nothing is claimed.
        also: one more, such as the run's own.
        model: the reference's name, for the record.
        notes: what a reader must know about the samples.
        settings: what they were drawn and scored with, for the record.

    Raises:
        DataError: no two prompts with enough scored samples, or a reward that never differs within a prompt.
    """
    used = [one for one in draws if (~np.isnan(one.optimised)).sum() >= LEAST_SCORED]
    _check(draws, used)
    spread = math.sqrt(float(np.mean([np.nanvar(one.optimised, ddof=1) for one in used])))
    if spread == 0:
        paid = ", ".join(number(value) for value in sorted({float(np.nanmax(one.optimised)) for one in used})[:3])
        raise DataError(
            f"The reward pays all samples of a prompt the same ({paid}): no beta favours one over another, and there "
            "is nothing to learn. See what the reward gives to other samples, or sample longer or warmer."
        )
    points = _until_nothing_is_claimed(used, spread) if betas is None else [predict(used, beta) for beta in betas]
    if also is not None and all(point.beta != also for point in points):
        points.append(predict(used, also))
    points.sort(key=lambda point: -point.beta)
    start = _start(used)
    return Forecast(
        model=model,
        prompts=len(draws),
        samples=len(draws[0].optimised),
        unscored=sum(int(np.isnan(one.optimised).sum()) for one in draws),
        left_out=len(draws) - len(used),
        spread=spread,
        start=start,
        points=tuple(points),
        favoured=tuple(sample for point in points for sample in favoured(used, point.beta)),
        suggestion=suggest(points, start),
        notes=tuple(notes),
        settings=settings or {},
    )


def favoured(draws: Sequence[PromptDraws], beta: float) -> list[Favoured]:
    """Return the samples with the largest weights, at most one of a prompt; of equal ones the first."""
    found = []
    for one in draws:
        scored = np.flatnonzero(~np.isnan(one.optimised))
        weights = tilt(np.zeros(len(scored)), one.optimised[scored], beta).weights
        best = int(np.argmax(weights))
        row = int(scored[best])
        gold = None if one.gold is None or np.isnan(one.gold[row]) else float(one.gold[row])
        factor = float(weights[best]) * len(scored)
        found.append(Favoured(beta, one.prompt, one.completions[row], factor, float(one.reward[row]), gold))
    return sorted(found, key=lambda sample: -sample.factor)[:FAVOURED]


def suggest(points: Sequence[Point], start: Start) -> Suggestion:
    """Choose a beta by the rule of the module, from points in descending order of beta."""
    claimed = [(point.beta, point.predicted) for point in points if point.predicted is not None]
    if not claimed:
        return Suggestion(None, None, f"Nothing can be claimed at any of these betas: {points[-1].reason}.")
    if claimed[0][1].gold_per_nat is not None:
        return _while_gold_rises(claimed)
    return _until_it_saturates(claimed, start)


def _while_gold_rises(claimed: Sequence[tuple[float, Prediction]]) -> Suggestion:
    chosen, ended = None, ""
    for beta, found in claimed:
        gain = found.gold_per_nat
        if gain is None or not gain.low > 0:
            said = "an unknown amount" if gain is None else with_interval(gain.value, gain.low, gain.high)
            ended = f"at beta {beta:g} a nat gains {said} of gold"
            break
        chosen = (beta, found)
    if chosen is None:
        return Suggestion(
            None,
            None,
            f"Gold does not rise with the reward beyond its interval, not even on the shortest leash: {ended}. Mend "
            "the reward before training on it.",
        )
    if ended:
        return _suggestion(*chosen, f"it is the longest leash on which gold still rises beyond its interval: {ended}")
    return _suggestion(*chosen, "gold still rises there, and these samples tell nothing about a longer leash")


def _until_it_saturates(claimed: Sequence[tuple[float, Prediction]], start: Start) -> Suggestion:
    for beta, found in claimed:
        if found.kl.low <= 0:  # no average gain can be told
            continue
        average = (found.reward.value - start.reward.value) / found.kl.value
        if found.reward_per_nat.value < SATURATED * average:
            return _suggestion(
                beta,
                found,
                f"one more nat gains {number(found.reward_per_nat.value)} of reward there, less than a quarter of the "
                f"{number(average)} that a nat gained on average; there is no gold reward to choose by",
            )
    return _suggestion(
        *claimed[-1],
        "these samples tell nothing about a longer leash, on which the reward would still rise; there is no gold "
        "reward to choose by",
    )


def _suggestion(beta: float, found: Prediction, why: str) -> Suggestion:
    kl = found.kl
    about = with_interval(kl.value, kl.low, kl.high)
    return Suggestion(beta, kl.value, f"beta = {beta:g}, about {about} nats per sequence: {why}.")


def _until_nothing_is_claimed(draws: Sequence[PromptDraws], spread: float) -> list[Point]:
    """From the beta at which the KL is negligible, in equal ratios, to the first at which nothing is claimed."""
    first = spread / math.sqrt(2 * NEGLIGIBLE_KL)
    points: list[Point] = []
    for k in range(MOST_BETAS):
        points.append(predict(draws, float(f"{first / 2 ** (k / BETAS_PER_OCTAVE):.2g}")))
        if points[-1].predicted is None:
            break
    return points


def _start(draws: Sequence[PromptDraws]) -> Start:
    """Means of the scored samples."""
    prompts = np.arange(len(draws))

    def mean(values: Sequence[float]) -> Estimate:
        return statistics.mean(values, prompts[: len(values)])

    scored = [~np.isnan(one.optimised) for one in draws]
    with_gold = [one.gold for one in draws if one.gold is not None and not np.isnan(one.gold).all()]
    return Start(
        mean([float(one.reward[kept].mean()) for one, kept in zip(draws, scored, strict=True)]),
        mean([float(np.nanmean(gold)) for gold in with_gold]) if len(with_gold) > 1 else None,
        mean([float(one.lengths[kept].mean()) for one, kept in zip(draws, scored, strict=True)]),
    )


def _check(draws: Sequence[PromptDraws], used: Sequence[PromptDraws]) -> None:
    if len(used) < 2:
        raise DataError(
            f"{len(used)} of {len(draws)} prompts have {LEAST_SCORED} scored samples, and a prediction with an "
            "interval needs two. See why the reward gives no score (None), or give more prompts or samples."
        )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
