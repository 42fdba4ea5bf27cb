"""Error bars and quantiles. Samples of one prompt are alike, so an interval draws whole prompts: a cluster bootstrap.

Treating tokens or samples as independent, as is common, makes intervals too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtrit

from kleash.gauge.records import Distribution, Estimate

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 250
"""Resamples that are multiplied out at once."""
LOOP_COPIES, LOOP_TOKENS = 3, 12

Floats = Float[np.ndarray, " n"]
Clusters = Int[np.ndarray, " n"]


def estimate(sums: Any, counts: Any, clusters: Any) -> Estimate:
    """Ratio of totals with its 95 % interval: sum of `sums` over sum of `counts`.

    The interval is the percentile bootstrap over clusters, 2,000 resamples, the same ones for every number of as many
    clusters, so that it repeats. With few clusters it is too narrow, so both arms are lengthened by what a mean of n
    normal numbers would need: sqrt(n / (n - 1)) t_n-1 / t_infinity, 1.02 for 100 and 1.14 for 14. One cluster has no
    interval: its bounds are NaN.

    Args:
        sums: one number an item, for example the nats of a reply.
        counts: what to divide by, for example 1 for each reply, or its tokens. Items of count 0 are left out.
        clusters: which prompt each item belongs to.
    """
    sums, counts = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    used = counts > 0
    _, where = np.unique(np.asarray(clusters)[used], return_inverse=True)
    if len(where) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    total, number = np.bincount(where, sums[used]), np.bincount(where, counts[used])
    value = float(total.sum() / number.sum())
    if len(total) == 1:
        return Estimate(value, math.nan, math.nan, int(number.sum()), 1)
    ratios = np.concatenate(
        [(block @ total) / (block @ number) for block in np.array_split(_resamples(len(total)), RESAMPLES // BLOCK)]
    )
    arms = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - value
    low, high = value + _lengthening(len(total)) * arms
    return Estimate(value, float(low), float(high), int(number.sum()), len(total))


def mean(values: Any, clusters: Any) -> Estimate:
    """Mean of the items with its interval; see `estimate`."""
    return estimate(values, np.ones(len(values)), clusters)


def distribution(values: Any, clusters: Any) -> Distribution:
    """Mean with its interval, and quantiles of the items by linear interpolation; NaN where there are none."""
    values = np.asarray(values, np.float64)
    quantiles = np.quantile(values, [0.5, 0.9, 0.95, 0.99, 0.999, 1.0]) if len(values) else np.full(6, np.nan)
    return Distribution(mean(values, clusters), *(float(quantile) for quantile in quantiles))


def exponential(log: Estimate) -> Estimate:
    """The estimate of a logarithm, such as a mean loss, taken back: a perplexity."""
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), log.count, log.prompts)


def position_edges(longest: int) -> tuple[int, ...]:
    """Bins that double: 0, 1, 2, 4, 8, ... up to the longest reply."""
    return (0, *(2**power for power in range((max(1, longest) - 1).bit_length())), max(1, longest))


def loops(token_ids: Sequence[int], stopped: bool) -> bool:
    """Whether a reply was cut while it repeated itself: at least 3 copies of its end, together 12 tokens or more."""
    if stopped:
        return False
    ids = list(token_ids)
    for period in range(1, len(ids) // LOOP_COPIES + 1):
        tail = max(LOOP_COPIES * period, LOOP_TOKENS)
        if tail <= len(ids) and ids[-tail + period :] == ids[-tail:-period]:
            return True
    return False


def _lengthening(clusters: int) -> float:
    """How much longer than the bootstrap's the arms of an interval are."""
    upper = (1 + LEVEL) / 2
    student = stdtrit(clusters - 1, upper) / ndtri(upper)
    return float(student * math.sqrt(clusters / (clusters - 1)))


@lru_cache(maxsize=16)
def _resamples(clusters: int) -> Any:
    """How often each cluster is drawn in each resample, `[2000, clusters]`."""
    counts = np.random.default_rng(0).multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    return counts.astype(np.uint8)
