"""How good is the best of n samples, and what does choosing it cost? Unbiased estimates for every n up to N.

N samples of a prompt hold C(N, n) sets of n, and each set's best is one draw of best-of-n. The mean over all of them
costs no more than sorting: the i-th sample in ascending order of reward is the best of C(i - 1, n - 1) sets. It is
unbiased, and far less noisy than cutting the samples into N / n sets. Standard errors are over prompts: samples of one
prompt are no more independent prompts.

Axes: P prompts, N samples a prompt. NaN marks a sample without a score: it is left out, and so is a prompt with too
few others. Exact values on enumerable models are in `kleash.kl.best_of_n`. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import xlogy

from kleash.errors import DataError

SCHEMA_VERSION = 1
EXAMPLES = 8
"""Prompts whose chosen samples are kept."""
ROUNDING = 1e-12
"""Relative spread over prompts that is rounding and no spread."""

Floats = NDArray[np.float64]


class Mean(NamedTuple):
    """A mean over prompts with its standard error; one prompt has none."""

    value: float
    stderr: float | None
    prompts: int


@dataclass(frozen=True)
class PromptSamples:
    """N samples of one prompt in the order they were drawn, with their scores."""

    prompt: str
    completions: Sequence[str]
    proxy: Floats
    """What the best is chosen by; NaN where there is no score."""
    gold: Floats | None
    """What is only measured."""


@dataclass(frozen=True)
class Size:
    """Best-of-n at one n. Rewards are of the chosen sample; win rates are against one fresh sample, a tie half."""

    n: int
    proxy: Mean
    gold: Mean | None
    proxy_win_rate: Mean
    gold_win_rate: Mean | None
    kl_bound: float
    """log n - (n - 1) / n: nats per sequence that KL(best-of-n ‖ base) is at most."""
    kl: Mean
    """KL(best-of-n ‖ base) as the sampled rewards have it, nats per sequence: see `sampled_kl`."""


@dataclass(frozen=True)
class Choice:
    """The best among the first n samples of a prompt; of equal ones, the first drawn."""

    n: int
    completion: str
    proxy: float
    gold: float | None


@dataclass(frozen=True)
class Example:
    """One prompt with what would have been chosen at each n."""

    prompt: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class BestOfN:
    """Best-of-n of one model under one reward."""

    model: str
    prompts: int
    samples: int
    """N: drawn for each prompt."""
    unscored: int
    """Samples, of all prompts together, to which the reward gave no score."""
    tied_share: float
    """Share of the scored samples whose reward another sample of their prompt has too."""
    sizes: tuple[Size, ...]
    examples: tuple[Example, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the result in JSON's types, `schema_version` first."""
        plain = asdict(self)
        for size in plain["sizes"]:
            size.update({name: value._asdict() for name, value in size.items() if isinstance(value, Mean)})
        return {"schema_version": SCHEMA_VERSION, **plain}


def measure(samples: Sequence[PromptSamples], sizes: Sequence[int], *, model: str, settings: dict[str, Any]) -> BestOfN:
    """Measure best-of-n at each of `sizes` from the same samples.

    Args:
        samples: P prompts with N samples each; N is more than the largest of `sizes`.
        sizes: the n to measure, ascending.
        model: the base model's name, for the record.
        settings: what the samples were drawn and scored with, for the record.

    Raises:
        DataError: no prompt has enough scored samples.
    """
    proxy = np.stack([one.proxy for one in samples])
    known = [one.gold for one in samples if one.gold is not None]
    gold = np.stack(known) if known else None
    scored = ~np.isnan(proxy)
    tied = sum(_tied(row[mask]) for row, mask in zip(proxy, scored, strict=True))
    return BestOfN(
        model=model,
        prompts=len(samples),
        samples=proxy.shape[1],
        unscored=int((~scored).sum()),
        tied_share=tied / max(1, int(scored.sum())),
        sizes=tuple(_at_size(proxy, gold, n) for n in sizes),
        examples=tuple(_example(one, sizes) for one in samples[:EXAMPLES]),
        settings=settings,
    )


def best_of_n_weights(total: int, n: int) -> Float[np.ndarray, " N"]:
    """Weight of each of N = `total` samples in ascending order: its chance to be the best of n of them.

    w_i = C(i - 1, n - 1) / C(N, n), i = 1 ... N: n drawn without replacement, none tied. The weights sum to 1.

    Raises:
        ValueError: n is not between 1 and `total`.

    Reference: the U-statistic of the maximum, as Chen et al. 2021 (arXiv 2107.03374) use it for pass@k.

    Example:
        >>> best_of_n_weights(4, 2) * 6
        array([0., 1., 2., 3.])
    """
    return _all_among_lowest(total, n)[1:] * n / np.arange(1, total + 1)


def choice_probabilities(rewards: Float[np.ndarray, " N"], n: int) -> Float[np.ndarray, " N"]:
    """`best_of_n_weights` in the samples' own order, shared equally among those with one reward."""
    below, up_to = _ranks(rewards)
    among = _all_among_lowest(len(rewards), n)
    return (among[up_to] - among[below]) / (up_to - below)


def estimate(rewards: Float[np.ndarray, "P N"], values: Float[np.ndarray, "P N"], n: int) -> Mean:
    """Unbiased mean of `values` at the sample that best-of-n chooses by `rewards`.

    Give the rewards again as values for the proxy, and the gold reward for the gold of the proxy's best.

    Raises:
        DataError: no prompt has n samples with both scores.
    """
    return _over_prompts(
        lambda chosen_by, scores: float(choice_probabilities(chosen_by, n) @ scores), rewards, values, n
    )


def win_rate(rewards: Float[np.ndarray, "P N"], values: Float[np.ndarray, "P N"], n: int) -> Mean:
    """Unbiased probability that the value of the best of n is above that of one fresh sample, ties half.

    Each sample in turn is the fresh one, and the best is chosen among the others. By `rewards` itself it is at most
    n / (n + 1).

    Raises:
        DataError: no prompt has n + 1 samples with both scores.
    """
    return _over_prompts(lambda chosen_by, scores: _wins(chosen_by, scores, n), rewards, values, n + 1)


def kl_estimate(rewards: Float[np.ndarray, "P N"], n: int) -> Mean:
    """Mean of `sampled_kl` over prompts, nats per sequence."""
    return _over_prompts(lambda chosen_by, _: sampled_kl(chosen_by, n), rewards, rewards, n)


def sampled_kl(rewards: Float[np.ndarray, " N"], n: int) -> float:
    """KL(best-of-n ‖ base) with the rewards of N samples in place of the base's own distribution, nats per sequence.

    With a and b the shares of samples below and up to a reward, rewards that several samples share are taken as levels
    of probability b - a, and a reward of one sample alone as continuous between its neighbours:

        level:       (b^n - a^n) log((b^n - a^n) / (b - a))
        continuous:  the integral of n u^(n-1) log(n u^(n-1)) over u from a to b.

    So it is `log n - (n - 1) / n` without ties and less with them. It is a plug-in and not unbiased: it leans up where
    a level was seen once, and is noisy where n is near N.
    """
    _, counts = np.unique(rewards, return_counts=True)
    ends = np.cumsum(counts) / len(rewards)
    starts = np.concatenate([[0.0], ends[:-1]])
    inside = ends**n - starts**n
    level = xlogy(inside, inside / (ends - starts))
    return float(np.where(counts > 1, level, _continuous_kl(starts, ends, n)).sum())


def _at_size(proxy: Floats, gold: Floats | None, n: int) -> Size:
    return Size(
        n=n,
        proxy=estimate(proxy, proxy, n),
        gold=None if gold is None else estimate(proxy, gold, n),
        proxy_win_rate=win_rate(proxy, proxy, n),
        gold_win_rate=None if gold is None else win_rate(proxy, gold, n),
        kl_bound=float(_continuous_kl(np.zeros(1), np.ones(1), n)[0]),
        kl=kl_estimate(proxy, n),
    )


def _example(samples: PromptSamples, sizes: Sequence[int]) -> Example:
    """What each n would have chosen; none where the first n have no score."""
    choices = []
    for n in sizes:
        first = np.where(np.isnan(samples.proxy[:n]), -np.inf, samples.proxy[:n])
        best = int(np.argmax(first))
        if math.isfinite(first[best]):
            gold = None if samples.gold is None or np.isnan(samples.gold[best]) else float(samples.gold[best])
            choices.append(Choice(n, samples.completions[best], float(first[best]), gold))
    return Example(samples.prompt, tuple(choices))


def _all_among_lowest(total: int, n: int) -> Floats:
    """Probability that n of `total`, drawn without replacement, are all among the k lowest: C(k, n) / C(total, n).

    k = 0 ... total; as a product of ratios, so that no binomial overflows.
    """
    if not 1 <= n <= total:
        raise ValueError(f"n = {n}: the best of n can be estimated from {total} samples for n from 1 to {total}")
    k = np.arange(total, 0, -1)
    return np.cumprod(np.concatenate([[1.0], np.maximum(k - n, 0) / k]))[::-1]


def _ranks(rewards: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many samples have less than each one's reward, and how many no more."""
    ordered = np.sort(rewards)
    return np.searchsorted(ordered, rewards, "left"), np.searchsorted(ordered, rewards, "right")


def _wins(rewards: Floats, values: Floats, n: int) -> float:
    """Win rate of one prompt: row i is chosen among all samples but column j, which is the fresh one."""
    total = len(rewards)
    below, up_to = _ranks(rewards)
    less = below[:, None] - (rewards[None, :] < rewards[:, None])
    no_more = up_to[:, None] - (rewards[None, :] <= rewards[:, None])
    among = _all_among_lowest(total - 1, n)
    chosen = (among[no_more] - among[less]) / np.maximum(no_more - less, 1)
    np.fill_diagonal(chosen, 0.0)
    beats = (values[:, None] > values[None, :]) + 0.5 * (values[:, None] == values[None, :])
    return float((chosen * beats).sum() / total)


def _continuous_kl(starts: Floats, ends: Floats, n: int) -> Floats:
    """The integral of n u^(n-1) log(n u^(n-1)) from each start to its end; log n - (n - 1) / n from 0 to 1."""

    def antiderivative(u: Floats) -> Floats:
        power = u**n
        whole: Floats = power * math.log(n) + (n - 1) * (xlogy(power, u) - power / n)
        return whole

    return antiderivative(ends) - antiderivative(starts)


def _tied(rewards: Floats) -> int:
    _, counts = np.unique(rewards, return_counts=True)
    return int(counts[counts > 1].sum())


def _over_prompts(statistic: Callable[[Floats, Floats], float], rewards: Floats, values: Floats, least: int) -> Mean:
    """Mean of a prompt's statistic over the prompts with at least `least` samples that have both scores."""
    known = ~(np.isnan(rewards) | np.isnan(values))
    rows = [(rewards[p, kept], values[p, kept]) for p, kept in enumerate(known) if kept.sum() >= least]
    if not rows:
        raise DataError(
            f"No prompt has {least} scored samples; the most is {known.sum(axis=1).max()} of {rewards.shape[1]}. Draw "
            "more samples a prompt, measure a smaller n, or see why the reward gives no score."
        )
    found = np.array([statistic(*row) for row in rows])
    return Mean(float(found.mean()), _stderr(found), len(found))


def _stderr(found: Floats) -> float | None:
    """Standard error of a mean over prompts; none of one prompt, 0 where they differ by rounding alone."""
    if len(found) == 1:
        return None
    spread = float(found.std(ddof=1))
    return 0.0 if spread <= ROUNDING * float(np.abs(found).max()) else spread / math.sqrt(len(found))
