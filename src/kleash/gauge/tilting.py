"""Where would a beta end? Samples of the reference, reweighted towards the optimum; what they cannot tell is left out.

The optimum of E[r] - beta KL(policy ‖ reference) is, prompt by prompt, reference(y) exp(r(y) / beta) / Z. G samples of
the reference with rewards r_i stand for it with the weights w_i ∝ exp(r_i / beta):

    E*[v] = sum_i w_i v_i,   log Z = log mean_i exp(r_i / beta),   KL = E*[r] / beta - log Z   nats per sequence.

From few samples all three are biased: log Z lies low, and where the optimum is far so does the KL, for no G samples
show more than log G nats. So:

* each prompt's numbers are jackknifed (one sample left out at a time), which takes the bias of order 1 / G off;
* an interval is the bootstrap over prompts, and each arm grows by twice what half of the samples would have said
  differently: what the jackknife left shows there;
* nothing is claimed where the weights leave too few samples: fewer than 50 effective ones in all, or fewer than 8 of a
  prompt in a tenth of the prompts (bias is each prompt's own and does not average out), or where the interval of the
  KL reaches log G.

A reward whose tail under the reference is no lighter than an exponential is beyond any such check. Axes: P prompts, G
samples. NaN marks a sample without a score. Exact values of enumerable models are in `kleash.kl.posterior`.

Source: Korbak et al. 2022, arXiv 2205.11275 (the optimum); Efron and Stein 1981 (the jackknife). Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import logsumexp

from kleash.gauge import statistics
from kleash.gauge.records import Estimate
from kleash.report.wording import number

LEAST_EFFECTIVE = 50.0
"""Effective samples of all prompts together, below which nothing is claimed."""
LEAST_EFFECTIVE_OF_A_PROMPT = 8.0
"""The same for one prompt; a share of `SPARSE` of the prompts may have fewer."""
SPARSE = 0.1
LEAST_SCORED = 4
"""Scored samples without which a prompt is left out: two in each half."""
HALVES_WEIGHT = 2.0
"""How much of the halves' difference an arm grows by: enough for a bias that falls no faster than 1 / sqrt(G)."""

Floats = NDArray[np.float64]


class Tilted(NamedTuple):
    """The optimum at one beta, on given samples or on all sequences."""

    weights: Floats
    """[..., G], summing to 1."""
    log_z: Floats
    """[...], nats."""
    kl: Floats
    """[...], KL(optimum ‖ reference), nats per sequence."""


@dataclass(frozen=True)
class PromptDraws:
    """G samples of the reference for one prompt, with their scores."""

    prompt: str
    completions: Sequence[str]
    optimised: Floats
    """The reward that the run would optimise, shaping included; NaN where there is no score."""
    reward: Floats
    """The reward before shaping, which a run records as `reward/proxy`."""
    gold: Floats | None
    lengths: Floats
    """Tokens of each sample, the stop token included."""


@dataclass(frozen=True)
class Prediction:
    """The optimum at one beta, each number a mean over prompts with its 95 % interval."""

    kl: Estimate
    """Nats per sequence."""
    kl_per_token: Estimate
    """KL over the predicted length."""
    reward: Estimate
    gold: Estimate | None
    length: Estimate
    """Tokens."""
    reward_per_nat: Estimate
    """What one more nat of KL would gain; beta itself where the reward is not shaped."""
    gold_per_nat: Estimate | None


@dataclass(frozen=True)
class Point:
    """What the samples say about one beta."""

    beta: float
    predicted: Prediction | None
    """None where nothing is claimed."""
    reason: str
    """Why nothing is claimed; empty where something is."""
    effective_size: float
    """1 / sum of the squared weights, summed over prompts."""
    sparse_effective_size: float
    """The same of one prompt, which a tenth of the prompts do not exceed."""
    small_kl: float
    """Var(r) / (2 beta^2), nats per sequence: the KL where it is small, to hold the prediction against."""


def tilt(log_base: Float[np.ndarray, "*any G"], rewards: Float[np.ndarray, "*any G"], beta: float) -> Tilted:
    """Return weights, log Z and KL of the optimum.

    With the log-probabilities of all sequences as `log_base` the result is exact; with -log G for each of G samples of
    the reference it is the self-normalised estimate.

    Raises:
        ValueError: beta is not a positive finite number.

    Example:
        >>> found = tilt(np.log([0.5, 0.5]), np.array([0.0, 1.0]), beta=1.0)
        >>> found.weights.round(4), float(found.kl.round(4))
        (array([0.2689, 0.7311]), 0.1109)
    """
    if not (beta > 0 and math.isfinite(beta)):
        raise ValueError(f"beta = {beta}: the optimum exists for a positive, finite beta only")
    exponents = log_base + rewards / beta
    log_z = np.asarray(logsumexp(exponents, axis=-1))
    weights = np.exp(exponents - log_z[..., None])
    return Tilted(weights, log_z, (weights * rewards).sum(-1) / beta - log_z)


def effective_size(weights: Float[np.ndarray, "*any G"]) -> Float[np.ndarray, "*any"]:
    """Return 1 / sum w^2: G for equal weights, 1 where a single sample has all. Unit: samples."""
    size: Floats = 1.0 / (weights**2).sum(-1)
    return size


def jackknifed(
    rewards: Float[np.ndarray, " G"], values: Float[np.ndarray, "K G"], beta: float
) -> Float[np.ndarray, " K+1"]:
    """Return KL and E*[v] of each row of values, with the bias of order 1 / G taken off.

    G f(all) - (G - 1) mean_i f(all but i), for G of at least 2.
    """
    count = len(rewards)

    def numbers(log_base: Floats) -> Floats:
        tilted = tilt(log_base, rewards, beta)
        return np.vstack([tilted.kl[None], values @ np.moveaxis(tilted.weights, -1, 0)])

    whole = numbers(np.full((1, count), -math.log(count)))[:, 0]
    corrected: Floats = count * whole - (count - 1) * numbers(_leaving_one_out(count)).mean(1)
    return corrected


def predict(draws: Sequence[PromptDraws], beta: float) -> Point:
    """Predict the optimum at a beta from samples of the reference; see the module for what is claimed.

    Args:
        draws: P prompts, of which at least two have `LEAST_SCORED` scored samples and rewards that are finite.
        beta: reward given up per nat.
    """
    rows = [_scored(one, ~np.isnan(one.optimised)) for one in draws]
    rows = [one for one in rows if len(one.optimised) >= LEAST_SCORED]
    weights = [tilt(_uniform(one), one.optimised, beta).weights for one in rows]
    effective = np.array([effective_size(one) for one in weights])
    found = _estimates(rows, [np.stack([one.reward, one.lengths]) for one in rows], beta)
    kl, reward, length = (_estimate(found[..., column]) for column in range(3))
    limit = float(np.mean([math.log(len(one.optimised)) for one in rows]))
    reason = _reason(effective, kl, limit)
    predicted = None
    if not reason:
        gold, gold_per_nat = _gold(rows, beta)
        predicted = Prediction(
            kl=kl,
            kl_per_token=_estimate(found[..., 0], found[..., 2]),
            reward=reward,
            gold=gold,
            length=length,
            reward_per_nat=_per_nat(rows, [one.reward for one in rows], beta),
            gold_per_nat=gold_per_nat,
        )
    return Point(
        beta=beta,
        predicted=predicted,
        reason=reason,
        effective_size=float(effective.sum()),
        sparse_effective_size=float(np.quantile(effective, SPARSE)),
        small_kl=float(np.mean([one.optimised.var(ddof=1) for one in rows])) / (2 * beta**2),
    )


def _scored(draws: PromptDraws, kept: NDArray[np.bool_]) -> PromptDraws:
    """The samples that are kept, in the order they were drawn."""
    return PromptDraws(
        draws.prompt,
        [text for text, keep in zip(draws.completions, kept, strict=True) if keep],
        draws.optimised[kept],
        draws.reward[kept],
        None if draws.gold is None else draws.gold[kept],
        draws.lengths[kept],
    )


def _uniform(draws: PromptDraws) -> Floats:
    count = len(draws.optimised)
    return np.full(count, -math.log(count))


@lru_cache(maxsize=8)
def _leaving_one_out(count: int) -> Floats:
    """Log-probability of each sample in each of `count` sets that lack one, `[count, count]`."""
    without = np.full((count, count), -math.log(count - 1))
    np.fill_diagonal(without, -np.inf)
    return without


def _estimates(rows: Sequence[PromptDraws], values: Sequence[Floats], beta: float) -> Float[np.ndarray, "P 3 K+1"]:
    """KL and E*[v] of each prompt from all of its samples, from the first half and from the second."""
    found = []
    for one, numbers in zip(rows, values, strict=True):
        half = len(one.optimised) // 2
        parts = (slice(None), slice(None, half), slice(half, None))
        found.append([jackknifed(one.optimised[part], numbers[:, part], beta) for part in parts])
    return np.array(found)


def _estimate(numbers: Float[np.ndarray, "P 3"], counts: Float[np.ndarray, "P 3"] | None = None) -> Estimate:
    """Ratio of totals over prompts; its arms grow by what the halves of the samples say differently."""
    counts = np.ones_like(numbers) if counts is None else counts
    whole = statistics.estimate(numbers[:, 0], counts[:, 0], np.arange(len(numbers)))
    halves = numbers[:, 1:].sum(0) / counts[:, 1:].sum(0)
    more = HALVES_WEIGHT * abs(float(halves.mean()) - whole.value)
    return replace(whole, low=whole.low - more, high=whole.high + more)


def _gold(rows: Sequence[PromptDraws], beta: float) -> tuple[Estimate | None, Estimate | None]:
    """Gold of the optimum and what a nat gains of it, over the samples that have a gold score too."""
    known = [_scored(one, ~np.isnan(one.gold)) for one in rows if one.gold is not None]
    known = [one for one in known if len(one.optimised) >= LEAST_SCORED]
    gold = [one.gold for one in known if one.gold is not None]
    if len(known) < 2:
        return None, None
    found = _estimates(known, [values[None] for values in gold], beta)
    return _estimate(found[..., 1]), _per_nat(known, gold, beta)


def _per_nat(rows: Sequence[PromptDraws], values: Sequence[Floats], beta: float) -> Estimate:
    """dE*[v] / dKL as beta falls: beta Cov*(v, r) / Var*(r), both summed over prompts."""
    covariances, variances = [], []
    for one, scores in zip(rows, values, strict=True):
        weights = tilt(_uniform(one), one.optimised, beta).weights
        away = one.optimised - weights @ one.optimised
        covariances.append(weights @ (away * (scores - weights @ scores)))
        variances.append(weights @ away**2)
    return statistics.estimate(beta * np.array(covariances), np.array(variances), np.arange(len(rows)))


def _reason(effective: Float[np.ndarray, " P"], kl: Estimate, limit: float) -> str:
    """Why nothing is claimed, or nothing."""
    whole, sparse = float(effective.sum()), float(np.quantile(effective, SPARSE))
    if whole < LEAST_EFFECTIVE:
        return f"the effective sample size is {number(whole)} over all prompts, less than {LEAST_EFFECTIVE:g}"
    if sparse < LEAST_EFFECTIVE_OF_A_PROMPT:
        return (
            f"a tenth of the prompts have an effective sample size of {number(sparse)} or less, under "
            f"{LEAST_EFFECTIVE_OF_A_PROMPT:g}"
        )
    if kl.high > limit:
        return f"the KL may be {number(kl.high)} nats, and samples show no more than log G = {number(limit)}"
    return ""
