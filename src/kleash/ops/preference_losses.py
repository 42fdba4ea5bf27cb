"""Losses of comparisons: what is minimised so that the chosen answer of a pair leads the rejected one.

Each takes one number a pair and returns one value a pair, `[B]`; the caller divides sums by its own global count.
For a policy that number is the margin h = log-ratio of chosen - log-ratio of rejected, where an answer's log-ratio is
log policy - log reference, in nats per sequence: positive where the policy has moved towards the chosen answer. For a
reward model it is the score of chosen - the score of rejected. Losses have no unit.

"Minimiser" is where the expected loss of one pair of answers is least, if the first is labelled the winner with
probability P, noise included; logit P = log P - log (1 - P). Values and gradients are right for margins of any size,
where `log(sigmoid(h))` written out is infinite.

A tie is a way to call a loss (`half_each`), not a loss.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

PairLoss = Callable[[Float[Tensor, " B"]], Float[Tensor, " B"]]
"""A loss of margins alone, its settings bound."""


def sigmoid(margins: Float[Tensor, " B"], beta: float) -> Float[Tensor, " B"]:
    """DPO's loss, minus the log of the logistic function of beta h.

    Sign: > 0; log 2 at h = 0. Gradient to h: -beta sigmoid(-beta h). Minimiser: h = logit(P) / beta; for a pair that
    always has the same winner there is none, and h grows without end. Over all pairs, with answers preferred by
    Bradley-Terry on a reward r, it is the policy reference * exp(r / beta) / Z: what RL with that beta climbs to.

    Source: Rafailov et al. 2023, arXiv 2305.18290, equation 7.

    Example:
        >>> import torch
        >>> sigmoid(torch.tensor([0.0, 10.0]), beta=0.1)
        tensor([0.6931, 0.3133])
    """
    return -logsigmoid(_positive(beta) * margins)


def ipo(margins: Float[Tensor, " B"], beta: float) -> Float[Tensor, " B"]:
    """IPO's loss, (h - 1 / (2 beta))^2.

    Sign: >= 0; 1 / (4 beta^2) at h = 0. Gradient to h: 2 h - 1 / beta. Minimiser: h = (2 P - 1) / (2 beta), finite
    also where P is 1. Over all pairs of answers from a distribution mu it is the policy reference * exp(w / beta) / Z,
    with w an answer's rate of wins against mu: no reward needs to exist.

    Source: Azar et al. 2023, arXiv 2310.12036, equation 17, whose tau is beta. Differs from TRL: log-ratios are summed
        over the tokens of an answer, not averaged.
    """
    return (margins - 0.5 / _positive(beta)) ** 2


def hinge(margins: Float[Tensor, " B"], beta: float) -> Float[Tensor, " B"]:
    """SLiC's hinge, max(0, 1 - beta h).

    Sign: >= 0; 1 at h = 0. Gradient to h: -beta, and 0 from h = 1 / beta on. Minimiser: h = 1 / beta for the more
    frequent winner, however slight its lead.

    Source: Zhao et al. 2023, arXiv 2305.10425; margins relative to the reference as in Liu et al. 2023,
        arXiv 2309.06657.
    """
    return (1 - _positive(beta) * margins).relu()


def conservative(margins: Float[Tensor, " B"], beta: float, label_smoothing: float) -> Float[Tensor, " B"]:
    """The loss of cDPO, (1 - eps) sigmoid(h) + eps sigmoid(-h), with eps = `label_smoothing`, in [0, 1/2).

    Takes each label for right with probability 1 - eps. Sign: > 0; log 2 at h = 0. Gradient to h:
    beta (eps - sigmoid(-beta h)). Minimiser: h = logit(P (1 - eps) + (1 - P) eps) / beta: finite also where P is 1,
    and nearer to 0 than the truth, more so where labels *are* wrong.

    Source: Mitchell 2023, ericmitchell.ai/cdpo.pdf.
    """
    eps = _share_of_wrong_labels(label_smoothing)
    return (1 - eps) * sigmoid(margins, beta) + eps * sigmoid(-margins, beta)


def robust(margins: Float[Tensor, " B"], beta: float, label_smoothing: float) -> Float[Tensor, " B"]:
    """The loss of rDPO, ((1 - eps) sigmoid(h) - eps sigmoid(-h)) / (1 - 2 eps), with eps = `label_smoothing`.

    Unbiased for eps in [0, 1/2): its mean over labels of which a share eps is flipped is `sigmoid` of the right labels.
    Sign: either; log 2 at h = 0, and without a lower bound on a pair that always has the same winner. Gradient to h:
    -beta (sigmoid(-beta h) + eps / (1 - 2 eps)). Minimiser: h = logit((P - eps) / (1 - 2 eps)) / beta: that of the
    right labels.

    Source: Chowdhury et al. 2024, arXiv 2403.00409.
    """
    eps = _share_of_wrong_labels(label_smoothing)
    return ((1 - eps) * sigmoid(margins, beta) - eps * sigmoid(-margins, beta)) / (1 - 2 * eps)


def bradley_terry(
    score_margins: Float[Tensor, " B"], strength_margins: Float[Tensor, " B"], label_smoothing: float = 0.0
) -> Float[Tensor, " B"]:
    """A reward model's loss, (1 - eps) L(d) + eps L(-d) with L(d) = -log sigmoid(d - m), for a score margin d.

    m is the lead that the comparison asks for: 0 is Bradley-Terry itself, larger where a person was surer.

    Unit of d and m: the reward's. Sign: > 0; log 2 at d = m = 0. Gradient: to score_margins. Minimiser at m = 0:
    d = logit(P (1 - eps) + (1 - P) eps), so scores are the log-odds of winning; with m > 0 it is farther from 0, and
    scores are no longer log-odds.

    Args:
        score_margins: score of chosen minus score of rejected.
        strength_margins: m of each pair, >= 0.
        label_smoothing: eps, the share of labels taken to be wrong, in [0, 1/2).

    Source: Bradley and Terry 1952; the margin from Llama 2, arXiv 2307.09288, equation 2; the smoothing as in
        Wang et al. 2024, arXiv 2401.06080.
    """
    eps = _share_of_wrong_labels(label_smoothing)
    right, wrong = -logsigmoid(score_margins - strength_margins), -logsigmoid(-score_margins - strength_margins)
    return (1 - eps) * right + eps * wrong


def half_each(loss: PairLoss, margins: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """A tie: half a win for each side, (loss(h) + loss(-h)) / 2.

    For losses that are convex in h, as all here are, it is least at h = 0: a tie draws the margin back (`hinge` only
    from 1 / beta on). In a mean with
    other labels of the same pair it adds half its weight to P.

    Example:
        >>> import torch
        >>> half_each(lambda margins: hinge(margins, 1.0), torch.tensor([0.0, 3.0]))
        tensor([1., 2.])
    """
    return 0.5 * (loss(margins) + loss(-margins))


def _positive(beta: float) -> float:
    if not beta > 0:
        raise ValueError(f"beta = {beta}: a preference loss needs a price per nat above 0, or its margin has no scale")
    return beta


def _share_of_wrong_labels(label_smoothing: float) -> float:
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(
            f"label_smoothing = {label_smoothing}: a share of wrong labels is at least 0 and below 0.5, "
            "where a label says nothing. Above it, swap chosen and rejected"
        )
    return label_smoothing
