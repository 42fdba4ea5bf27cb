"""One reward from the scores of several members: where they disagree, the reward is not to be trusted.

k members, B completions. Scores `[k, B]` are float64 in one unit, for the members were trained on the same comparisons,
and from one origin: comparisons leave a constant of each member open, and `RewardModel.member_scores` takes it off.
With one member each function returns that member's scores.

Reference: Coste et al. 2023, arXiv 2310.02743. Differs from it: `mean_minus_sd` takes off standard deviations where
the paper takes off variances, so that its weight has no unit.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64


def mean(scores: Float64[np.ndarray, "k B"]) -> Float64[np.ndarray, " B"]:
    """Return the average member: mean_k s_kb.

    Example:
        >>> mean(np.array([[1.0, 2.0], [3.0, 2.0]]))
        array([2., 2.])
    """
    return np.asarray(scores.mean(axis=0))


def worst_case(scores: Float64[np.ndarray, "k B"]) -> Float64[np.ndarray, " B"]:
    """Return the most critical member, completion by completion: min_k s_kb. Never above `mean`.

    Example:
        >>> worst_case(np.array([[1.0, 2.0], [3.0, 2.0]]))
        array([1., 2.])
    """
    return np.asarray(scores.min(axis=0))


def mean_minus_sd(scores: Float64[np.ndarray, "k B"], sd_weight: float) -> Float64[np.ndarray, " B"]:
    """Return mean_k s_kb - sd_weight * sd_b, with sd_b² = (1/k) sum_k (s_kb - mean_b)².

    Never above `mean`. The deviation is that of the members at hand, divided by k and not by k - 1.

    Args:
        scores: one row a member.
        sd_weight: reward taken off per standard deviation among the members; 0 gives `mean`.

    Example:
        >>> mean_minus_sd(np.array([[1.0, 2.0], [3.0, 2.0]]), 0.5)
        array([1.5, 2. ])
    """
    return np.asarray(scores.mean(axis=0) - sd_weight * scores.std(axis=0))
