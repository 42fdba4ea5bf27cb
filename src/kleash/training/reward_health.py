"""Is a reward model fit to be optimised against? What it says of held-out comparisons, and of answers that are none.

Every number is of the members' mean score unless it says otherwise. The result is plain data for the run directory;
`kleash.report.reward_health` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kleash.data.completions import completion_ids

if TYPE_CHECKING:
    from kleash.training.reward_modelling import RewardModelJob

Scores = NDArray[np.float64]

CALIBRATION_BINS = 10
ODD_ROWS = 64
TAIL_SHARE = 0.1
"""Share of the scores that the tail index is estimated from."""
ENDLESS = 8
"""How often a repeated answer says the same."""


def report(job: RewardModelJob, scores: Scores) -> dict[str, Any]:
    """The whole report of a trained model on its held-out comparisons, given their scores `[members, n, 2]`."""
    rows = job.data.held_out
    mean = scores.mean(axis=0)
    decided = np.array([row.comparison.strength != 0 for row in rows])
    margin = (mean[:, 0] - mean[:, 1])[decided]
    lengths = np.array([[len(row.chosen_ids), len(row.rejected_ids)] for row in rows], dtype=np.float64)
    return {
        "comparisons": len(rows),
        "ties": int((~decided).sum()),
        "accuracy": accuracy(margin),
        "accuracy_by_member": [accuracy((own[:, 0] - own[:, 1])[decided]) for own in scores],
        "agreement": agreement(scores) if len(scores) > 1 else None,
        "member_sd": spread_of_members(scores) if len(scores) > 1 else None,
        "calibration": calibration(margin),
        "margins": margin.tolist(),
        "scores": mean.flatten().tolist(),
        "length_correlation": correlation(mean.flatten(), lengths.flatten()),
        "longer_wins": longer_wins(margin, (lengths[:, 0] - lengths[:, 1])[decided]),
        "odd_answers": odd_answers(job),
        "tail_index": tail_index(mean.flatten()),
    }


def accuracy(margin: Scores) -> dict[str, float] | None:
    """Share of comparisons whose chosen side scores higher (equal counts half), with its 95 % Wilson interval."""
    if not len(margin):
        return None
    won = float((margin > 0).sum() + 0.5 * (margin == 0).sum())
    low, high = wilson(won, len(margin))
    return {"value": won / len(margin), "low": low, "high": high}


def wilson(successes: float, count: int) -> tuple[float, float]:
    """95 % Wilson score interval of a proportion."""
    z = 1.959964
    middle = (successes + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(successes * (count - successes) / count + z * z / 4)
    return middle - half, middle + half


def agreement(scores: Scores) -> float:
    """Share of pairs of members that prefer the same side, mean over comparisons; `scores` [members, n, 2]."""
    prefers = np.sign(scores[:, :, 0] - scores[:, :, 1])
    members = len(scores)
    same = [float((prefers[i] == prefers[j]).mean()) for i in range(members) for j in range(i)]
    return float(np.mean(same))


def spread_of_members(scores: Scores) -> float:
    """Standard deviation among members, each from its own mean, mean over answers; `scores` [members, n, 2]."""
    own = scores - scores.mean(axis=(1, 2), keepdims=True)
    return float(own.std(axis=0, ddof=1).mean())


def calibration(margin: Scores) -> list[dict[str, float]]:
    """Where the model says that a side wins with probability p, how often it does, in bins of equal count.

    The stated probability is sigmoid(|margin|), that of the side it prefers.
    """
    if not len(margin):
        return []
    stated = 1 / (1 + np.exp(-np.abs(margin)))
    right = np.where(margin == 0, 0.5, margin > 0)
    order = np.argsort(stated)
    bins = np.array_split(order, min(CALIBRATION_BINS, max(1, len(order) // 10)))
    found = []
    for chosen in bins:
        won, count = float(right[chosen].sum()), len(chosen)
        low, high = wilson(won, count)
        found.append(
            {"stated": float(stated[chosen].mean()), "observed": won / count, "low": low, "high": high, "count": count}
        )
    return found


def correlation(first: Scores, second: Scores) -> float | None:
    """Pearson's, or None where one of them is constant."""
    if len(first) < 2 or first.std() == 0 or second.std() == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def longer_wins(margin: Scores, longer: Scores) -> float | None:
    """Share of comparisons of unequal length whose longer side scores higher (equal scores count half), if any are."""
    unequal = longer != 0
    if not unequal.any():
        return None
    return float(np.where(margin == 0, 0.5, (margin > 0) == (longer > 0))[unequal].mean())


def odd_answers(job: RewardModelJob) -> dict[str, dict[str, float]]:
    """Mean score of answers that are none, beside that of real ones, on the same prompts.

    empty: nothing; repeated: the chosen answer several times over; truncated: its first half.
    """
    tokenizer = job.model.tokenizer
    rows = job.data.held_out[:ODD_ROWS]
    room = tokenizer.max_context - max(len(row.prompt.token_ids) for row in rows)
    stop_id = tokenizer.stop_ids[0] if job.rendering.append_stop else None
    kinds: dict[str, list[Sequence[int]]] = {
        "chosen": [row.chosen_ids for row in rows],
        "rejected": [row.rejected_ids for row in rows],
        "empty": [completion_ids("", tokenizer, stop_id) for _ in rows],
        "repeated": [completion_ids(row.comparison.chosen * ENDLESS, tokenizer, stop_id)[:room] for row in rows],
        "truncated": [row.chosen_ids[: max(1, len(row.chosen_ids) // 2)] for row in rows],
    }
    prompts = [row.prompt.token_ids for row in rows]
    return {kind: mean_of(job.scores_of(prompts, answers).mean(axis=0)) for kind, answers in kinds.items()}


def mean_of(values: Scores) -> dict[str, float]:
    """Mean and its standard error."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return {"mean": float(values.mean()), "stderr": error}


def tail_index(scores: Scores) -> float | None:
    """Hill's estimate of the upper tail's index over the median: below 2.35, that of an exponential, the tail is heavy.

    A reward whose upper tail is heavy can be raised without end at little KL (Kwa et al. 2024, arXiv 2407.14503): the
    leash alone does not keep such a reward honest. None with fewer than 20 scores in the tail or no spread.
    """
    above = np.sort(scores - np.median(scores))[::-1]
    count = int(TAIL_SHARE * len(above))
    if count < 20 or above[count] <= 0:
        return None
    logs = np.log(above[:count] / above[count])
    return float(1 / logs.mean()) if logs.mean() > 0 else None
