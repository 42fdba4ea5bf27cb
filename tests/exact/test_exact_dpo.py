"""What DPO and its kin climb to: expected losses and gradients over all pairs of the toy's sequences.

Two answers are drawn alike from one distribution and compared; `wins[i, j]` is the chance that i is preferred to j.
"""

from functools import partial

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
import torch
from population import BEHAVIOR, POLICY, REFERENCE, TOY, gradient_at
from printed import assert_prints

from kleash.algorithms import dpo

BETA = 0.5
PLAIN = {name: partial(loss, beta=BETA) for name, loss in dpo.LOSSES.items()}
SMOOTHED = {name: partial(loss, beta=BETA, label_smoothing=0.2) for name, loss in dpo.SMOOTHED_LOSSES.items()}
SIGMOID = PLAIN["sigmoid"]

FIRST, SECOND = torch.cartesian_prod(torch.arange(15), torch.arange(15)).T
BRADLEY_TERRY = 1 / (1 + np.exp(truth.REWARDS[None, :] - truth.REWARDS[:, None]))
_ij = np.arange(225.0).reshape(15, 15)
INTRANSITIVE = 0.5 + 0.4 * (np.sin(1.7 * _ij) - np.sin(1.7 * _ij.T)) / 2
"""Wins that no reward explains."""

DRAWN_FROM = truth.distribution(truth.REFERENCE)


def flipped(wins, share):
    return (1 - share) * wins + share * wins.T


def margins(logits):
    policy, reference = TOY.sequence_logprobs(logits), TOY.sequence_logprobs(REFERENCE)
    return dpo.margins(policy[FIRST], policy[SECOND], reference[FIRST], reference[SECOND])


def expected_loss(logits, loss, wins=BRADLEY_TERRY, drawn_from=DRAWN_FROM, tied=False):
    """Both orders of a pair are drawn, and i is chosen in either: hence the 2."""
    weights = torch.tensor(2 * np.outer(drawn_from, drawn_from) * wins).flatten()
    return weights @ dpo.loss(margins(logits), torch.full((225,), tied), loss)


def gradient(logits, *args, **kwargs):
    return gradient_at(lambda x: expected_loss(x, *args, **kwargs), logits)


def logits_of(distribution):
    """Next-token log-probabilities of a distribution over the sequences."""
    table = np.zeros((7, 3))
    for probability, y in zip(distribution, truth.SEQUENCES, strict=True):
        for t, token in enumerate(y):
            table[truth.PREFIXES.index(y[:t]), token] += probability
    return torch.tensor(np.log(table / table.sum(-1, keepdims=True)))


def tilted(scores, beta=BETA):
    return logits_of(truth.posterior(DRAWN_FROM, beta, scores)[0])


@pytest.mark.parametrize("beta", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("drawn_from", [REFERENCE, BEHAVIOR], ids=["reference", "behavior"])
def test_sigmoid_is_level_at_the_optimum_of_rl_wherever_the_pairs_come_from(beta, drawn_from):
    sampler = truth.distribution(drawn_from.numpy())
    found = gradient(tilted(truth.REWARDS, beta), partial(dpo.LOSSES["sigmoid"], beta=beta), drawn_from=sampler)
    np.testing.assert_allclose(found, 0, rtol=0, atol=1e-9)


def test_sigmoid_at_the_start_and_at_the_optimum():
    assert float(expected_loss(REFERENCE, SIGMOID)) == pytest.approx(np.log(2), abs=1e-12)
    entropy = -2 * DRAWN_FROM @ (BRADLEY_TERRY * np.log(BRADLEY_TERRY)) @ DRAWN_FROM
    at_optimum = float(expected_loss(tilted(truth.REWARDS), SIGMOID))
    assert at_optimum == pytest.approx(entropy, abs=1e-12)
    assert at_optimum == pytest.approx(0.58795796, abs=1e-8)
    assert_prints(np.linalg.norm(gradient(REFERENCE, SIGMOID)), ".0612")


@pytest.mark.parametrize(
    ("loss", "start"),
    [(PLAIN["ipo"], 1 / (4 * BETA**2)), (PLAIN["hinge"], 1.0), *((loss, np.log(2)) for loss in SMOOTHED.values())],
    ids=["ipo", "hinge", *SMOOTHED],
)
def test_the_others_start_from_known_values(loss, start):
    assert float(expected_loss(REFERENCE, loss)) == pytest.approx(start, abs=1e-12)


@pytest.mark.parametrize(
    ("loss", "slope"),
    [
        (PLAIN["sigmoid"], lambda h: -BETA / (1 + np.exp(BETA * h))),
        (PLAIN["ipo"], lambda h: 2 * h - 1 / BETA),
        (PLAIN["hinge"], lambda h: np.where(BETA * h < 1, -BETA, 0.0)),
        (SMOOTHED["conservative"], lambda h: BETA * (0.2 - 1 / (1 + np.exp(BETA * h)))),
        (SMOOTHED["robust"], lambda h: -BETA * (1 / (1 + np.exp(BETA * h)) + 0.2 / 0.6)),
    ],
    ids=[*PLAIN, *SMOOTHED],
)
def test_the_gradient_is_the_slope_times_the_difference_of_scores(loss, slope):
    logits = 3 * truth.POLICY
    log_ratio = np.log(truth.distribution(logits) / truth.distribution(truth.REFERENCE))
    weights = 2 * np.outer(DRAWN_FROM, DRAWN_FROM) * BRADLEY_TERRY * slope(log_ratio[:, None] - log_ratio[None, :])
    scores = truth.score(logits)
    expected = np.einsum("ij,icv->cv", weights, scores) - np.einsum("ij,jcv->cv", weights, scores)
    np.testing.assert_allclose(gradient(torch.tensor(logits), loss), expected, rtol=0, atol=1e-12)


def test_ipo_is_level_where_answers_gain_by_their_rate_of_wins_and_needs_no_reward():
    rate = INTRANSITIVE @ DRAWN_FROM
    np.testing.assert_allclose(gradient(tilted(rate), PLAIN["ipo"], INTRANSITIVE), 0, rtol=0, atol=1e-9)
    assert np.abs(gradient(tilted(rate), SIGMOID, INTRANSITIVE)).max() > 1e-3


def test_robust_on_flipped_labels_is_sigmoid_on_the_right_ones():
    noisy = flipped(BRADLEY_TERRY, 0.2)
    expected = float(expected_loss(POLICY, SIGMOID))
    assert float(expected_loss(POLICY, SMOOTHED["robust"], noisy)) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(gradient(POLICY, SMOOTHED["robust"], noisy), gradient(POLICY, SIGMOID), atol=1e-12)
    np.testing.assert_allclose(gradient(tilted(truth.REWARDS), SMOOTHED["robust"], noisy), 0, rtol=0, atol=1e-9)


def test_conservative_on_the_right_labels_is_sigmoid_on_flipped_ones():
    noisy = flipped(BRADLEY_TERRY, 0.2)
    np.testing.assert_allclose(gradient(POLICY, SMOOTHED["conservative"]), gradient(POLICY, SIGMOID, noisy), atol=1e-12)
    assert np.abs(gradient(tilted(truth.REWARDS), SMOOTHED["conservative"])).max() > 1e-3


@pytest.mark.parametrize("loss", [*PLAIN.values(), *SMOOTHED.values()], ids=[*PLAIN, *SMOOTHED])
def test_a_tie_is_half_a_win_for_each(loss):
    """Three comparisons in ten are tied: as if each of them had been tossed for."""
    tossed = 0.7 * BRADLEY_TERRY + 0.3 * 0.5
    even = np.full((15, 15), 0.5)
    decided, ties = gradient(POLICY, loss), gradient(POLICY, loss, even, tied=True)
    np.testing.assert_allclose(0.7 * decided + 0.3 * ties, gradient(POLICY, loss, tossed), rtol=0, atol=1e-12)


def test_the_reference_gets_no_gradient():
    policy, reference = torch.zeros(4, 2).requires_grad_(), torch.zeros(2, 2).requires_grad_()
    dpo.margins(policy[0], policy[1], reference[0], reference[1]).sum().backward()
    assert policy.grad.tolist() == [[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]
    assert reference.grad is None


def online(logits, rewards, scored, loss=SIGMOID):
    pairs = kleash_on.pairs(POLICY)
    log_ratios = (TOY.sequence_logprobs(logits) - TOY.sequence_logprobs(REFERENCE))[pairs.rows].view(225, 2)
    grouped = torch.tensor(rewards)[pairs.rows].view(225, 2)
    return dpo.online_loss(grouped, torch.tensor(scored)[pairs.rows].view(225, 2), log_ratios, loss)


def test_online_every_pair_of_unlike_answers_counts_and_the_better_is_chosen():
    p = truth.distribution(truth.POLICY)
    log_ratio = np.log(p / DRAWN_FROM)
    better = (truth.REWARDS[:, None] > truth.REWARDS[None, :]).astype(float)
    slope = -BETA / (1 + np.exp(BETA * (log_ratio[:, None] - log_ratio[None, :])))
    weights, scores = 2 * np.outer(p, p) * better * slope, truth.score(truth.POLICY)
    expected = np.einsum("ij,icv->cv", weights, scores) - np.einsum("ij,jcv->cv", weights, scores)

    probability = torch.tensor(np.outer(p, p)).flatten()
    found = gradient_at(lambda x: probability @ online(x, truth.REWARDS, [True] * 15).values)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_online_ties_and_pairs_without_a_reward_are_left_out():
    out = online(POLICY, np.round(truth.REWARDS), [True] * 14 + [False])
    same = np.round(truth.REWARDS)[:, None] == np.round(truth.REWARDS)[None, :]
    both = np.arange(15) < 14
    both = both[:, None] & both[None, :]
    np.testing.assert_array_equal(out.tied.view(15, 15).numpy(), same & both)
    np.testing.assert_array_equal(out.counted.view(15, 15).numpy(), ~same & both)
    assert (out.values[~out.counted] == 0).all()
    assert (out.values[out.counted] > 0).all()
