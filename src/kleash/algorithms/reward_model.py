"""Reward model: scores whose differences explain comparisons (Bradley-Terry).

Objective: maximise E[log sigmoid(s(chosen) - s(rejected))] over the scores s. Where people compare by Bradley-Terry
on some reward, s is that reward up to a constant of the prompt. There is no KL: the reference model does not appear.

Source: Christiano et al. 2017, arXiv 1706.03741; Ouyang et al. 2022, arXiv 2203.02155, equation 1; the margin from
Llama 2, arXiv 2307.09288, equation 2; centring from Eisenstein et al. 2023, arXiv 2312.09244.

Differences from the papers and their codes:

1. The margin is a number times the strength that the comparison states, where Llama 2 has four levels. With it, scores
   are no longer log-odds of winning.
2. A tie is half a win for each side, without margin; the papers leave ties out.
3. Pairs count alike. InstructGPT weighs all pairs of a prompt as one.

On the enumerable toy: minimising the expected loss gives the known rewards back, up to a constant.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.ops.preference_losses import bradley_terry, half_each


def loss(
    chosen_scores: Float[Tensor, " B"],
    rejected_scores: Float[Tensor, " B"],
    strength: Float[Tensor, " B"],
    tied: Bool[Tensor, " B"],
    *,
    margin_per_strength: float,
    label_smoothing: float,
) -> Float[Tensor, " B"]:
    """One value a comparison; divide the sum by their number.

    Unit: none. Sign: > 0; log 2 for equal scores and no margin. Gradient: to both scores.

    Args:
        chosen_scores: of the chosen answers, in units of the reward.
        rejected_scores: of the rejected answers.
        strength: how much better chosen is; 0 where nobody said.
        tied: True where neither side won; no margin is asked for there.
        margin_per_strength: lead in score that a chosen answer must have per unit of strength; 0 is Bradley-Terry.
        label_smoothing: share of labels reckoned to be wrong, in [0, 1/2). It changes nothing on ties.
    """
    lead = chosen_scores - rejected_scores
    decided = bradley_terry(lead, margin_per_strength * strength, label_smoothing)
    even = half_each(partial(bradley_terry, strength_margins=torch.zeros_like(lead)), lead)
    return torch.where(tied, even, decided)


def centering(chosen_scores: Float[Tensor, " B"], rejected_scores: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """(s(chosen) + s(rejected))^2, to be added with a small weight (TRL recommends 0.01).

    The comparisons leave a constant of each prompt open; this takes the one whose scores are around 0, so that rewards
    of different prompts and of different members of an ensemble have one origin.

    Unit: that of the reward, squared. Gradient: to both scores, 2 (s(chosen) + s(rejected)): the difference between
    them is left as it is. Minimiser: s(chosen) = -s(rejected).

    Source: Eisenstein et al. 2023, arXiv 2312.09244.
    """
    return (chosen_scores + rejected_scores) ** 2
