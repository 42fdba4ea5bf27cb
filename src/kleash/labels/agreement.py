"""How far annotators agree beyond chance: Cohen's kappa for two, Krippendorff's nominal alpha for more.

Both are 1 - observed disagreement / disagreement expected by chance: 1 is perfect agreement, 0 what chance gives. They
differ in chance: kappa lets each annotator have habits of their own, alpha pools the answers, and can do with answers
missing. Where all answers are the same, there is nothing that chance could have got wrong, and both are None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Int

from kleash.labels.records import ANSWERS, Agreement, Choice

RESAMPLES = 2000
LEVEL = 0.95


def cohen_kappa(table: Int[np.ndarray, "C C"]) -> float | None:
    """Cohen's kappa of two annotators.

    kappa = (p_o - p_e) / (1 - p_e),   p_o = sum_c p_cc,   p_e = sum_c p_c. p_.c.

    Args:
        table: how many items the first annotator put into the row's category and the second into the column's.

    Returns:
        At most 1; None without items, or where both put everything into one and the same category.

    Reference: Cohen 1960, A coefficient of agreement for nominal scales.

    Example:
        >>> round(cohen_kappa(np.array([[20, 5], [10, 15]])), 3)
        0.4
    """
    total = int(table.sum())
    agreeing = int(np.trace(table))
    by_chance = int(table.sum(axis=1) @ table.sum(axis=0))
    if total == 0 or by_chance == total**2:
        return None
    return (agreeing * total - by_chance) / (total**2 - by_chance)


def krippendorff_alpha(counts: Int[np.ndarray, "N C"], times: Int[np.ndarray, " N"]) -> float | None:
    """Krippendorff's alpha of any number of annotators, nominal categories.

    alpha = 1 - (n - 1) (n - sum_i sum_c n_ic (n_ic - 1) / (n_i - 1)) / (n^2 - sum_c n_c^2),   over items with n_i >= 2.

    Args:
        counts: how many annotators put an item into a category. Items with fewer than two answers are left out.
        times: how often each item counts; 1 for each, except in a resample.

    Returns:
        At most 1; None without items, or where all answers are the same.

    Reference: Krippendorff 2011, Computing Krippendorff's alpha-reliability, section C.

    Example:
        >>> round(krippendorff_alpha(np.array([[2, 0], [1, 1], [0, 2]]), np.ones(3, int)), 3)
        0.444
    """
    by_category, agreeing = _totals(counts, times)
    total = int(by_category.sum())
    by_chance = total**2 - int((by_category**2).sum())
    if by_chance == 0:
        return None
    return 1 - (total - 1) * (total - agreeing) / by_chance


def agreement_of(answers: Iterable[tuple[int, str, Choice]]) -> Agreement:
    """Say how far annotators agree on the pairs that at least two of them answered.

    The interval is the percentile bootstrap over pairs, 95 %, 2,000 resamples, the same ones each time; resamples in
    which the statistic is undefined are left out.

    Args:
        answers: pair, annotator and choice (first, second or tie) of each answer.
    """
    by_pair: defaultdict[int, dict[str, Choice]] = defaultdict(dict)
    for pair_id, annotator, choice in answers:
        by_pair[pair_id][annotator] = choice
    shared = [given for given in by_pair.values() if len(given) > 1]
    names = sorted({name for given in shared for name in given})
    if len(names) > 2:
        return _many(shared)
    return _two(shared, names)


def _two(shared: list[dict[str, Choice]], names: list[str]) -> Agreement:
    """Cohen's kappa. An item is a cell of the two annotators' table: a row of zeros with a one."""
    size = len(ANSWERS)
    cells = np.zeros((len(shared), size * size), dtype=np.int64)
    for row, given in enumerate(shared):
        one, other = (ANSWERS.index(given[name]) for name in names)
        cells[row, one * size + other] = 1

    def kappa(items: Int[np.ndarray, "N K"], times: Int[np.ndarray, " N"]) -> float | None:
        return cohen_kappa((times @ items).reshape(size, size))

    agreeing = sum(len(set(given.values())) == 1 for given in shared)
    raw = agreeing / len(shared) if shared else None
    low, high = _interval(cells, kappa)
    return Agreement(kappa(cells, _once(cells)), len(shared), low, high, raw, "Cohen's kappa")


def _many(shared: list[dict[str, Choice]]) -> Agreement:
    counts = np.array([[list(given.values()).count(answer) for answer in ANSWERS] for given in shared])
    by_category, agreeing = _totals(counts, _once(counts))
    low, high = _interval(counts, krippendorff_alpha)
    alpha = krippendorff_alpha(counts, _once(counts))
    return Agreement(alpha, len(shared), low, high, float(agreeing / by_category.sum()), "Krippendorff's alpha")


def _totals(counts: Int[np.ndarray, "N C"], times: Int[np.ndarray, " N"]) -> tuple[Int[np.ndarray, " C"], float]:
    """Return the answers in each category, and how many of all answers agree with another to the same item."""
    answers = counts.sum(axis=1)
    counts, times, answers = counts[answers > 1], times[answers > 1], answers[answers > 1]
    agreeing = (counts * (counts - 1)).sum(axis=1) / (answers - 1)
    return times @ counts, float(times @ agreeing)


def _once(items: Int[np.ndarray, "N K"]) -> Int[np.ndarray, " N"]:
    return np.ones(len(items), dtype=np.int64)


def _interval(
    items: Int[np.ndarray, "N K"],
    statistic: Callable[[Int[np.ndarray, "N K"], Int[np.ndarray, " N"]], float | None],
) -> tuple[float | None, float | None]:
    """Draw as many items as there are, with replacement. Equal items are drawn together, by their number."""
    if len(items) < 2:
        return None, None
    kinds, frequency = np.unique(items, axis=0, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(items), frequency / len(items), size=RESAMPLES)
    values = [value for draw in draws if (value := statistic(kinds, draw)) is not None]
    if not values:
        return None, None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
