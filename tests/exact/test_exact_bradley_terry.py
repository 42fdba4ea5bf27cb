"""What a reward model learns from endless comparisons: minimisers of the expected loss, in closed form."""

import enumeration as truth
import numpy as np
import pytest
import torch
from population import TOY

from kleash.algorithms import reward_model

FIRST, SECOND = torch.cartesian_prod(torch.arange(15), torch.arange(15)).T
WINS = 1 / (1 + np.exp(truth.REWARDS[None, :] - truth.REWARDS[:, None]))
DRAWN_FROM = truth.distribution(truth.REFERENCE)


def logit(p):
    return np.log(p / (1 - p))


def expected_loss(scores, wins, *, margin_per_strength=0.0, label_smoothing=0.0):
    """Over all ordered pairs of answers drawn alike, i chosen with the chance that it wins."""
    weights = torch.tensor(2 * np.outer(DRAWN_FROM, DRAWN_FROM) * wins).flatten()
    losses = reward_model.loss(
        scores[FIRST],
        scores[SECOND],
        torch.ones(225, dtype=torch.float64),
        torch.zeros(225, dtype=torch.bool),
        margin_per_strength=margin_per_strength,
        label_smoothing=label_smoothing,
    )
    return weights @ losses


def minimiser(wins, **options):
    """Newton's method from 0; the constant that the loss leaves open stays that of the start."""
    scores = torch.zeros(15, dtype=torch.float64)
    for _ in range(20):
        slope, curvature = (
            function(lambda s: expected_loss(s, wins, **options), scores)
            for function in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian)
        )
        scores = scores - torch.linalg.pinv(curvature, hermitian=True) @ slope
    assert slope.abs().max() < 1e-12
    return scores.numpy()


def slope_of_a_pair(lead, first_wins, *, ties=0.0, margin=0.0, label_smoothing=0.0):
    """Derivative of the expected loss to the lead of one answer over another; margin at strength 2, none on ties."""
    scores = torch.tensor([lead, 0.0], dtype=torch.float64).requires_grad_()
    losses = reward_model.loss(
        scores[[0, 1, 0]],
        scores[[1, 0, 1]],
        torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64),
        torch.tensor([False, False, True]),
        margin_per_strength=margin / 2,
        label_smoothing=label_smoothing,
    )
    shares = torch.tensor([first_wins, 1 - ties - first_wins, ties], dtype=torch.float64)
    return float(torch.autograd.grad(shares @ losses, scores)[0][0])


def assert_least_at(lead, first_wins, **options):
    assert abs(slope_of_a_pair(lead, first_wins, **options)) < 1e-12
    assert slope_of_a_pair(lead - 0.01, first_wins, **options) < -1e-4
    assert slope_of_a_pair(lead + 0.01, first_wins, **options) > 1e-4


def test_the_known_rewards_come_back_up_to_a_constant():
    found = minimiser(WINS)
    expected = truth.REWARDS - truth.REWARDS.mean()
    np.testing.assert_allclose(found - found.mean(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("first_wins", [0.2, 0.5, 0.73])
def test_a_pair_is_least_at_its_log_odds(first_wins):
    assert_least_at(logit(first_wins), first_wins)


@pytest.mark.parametrize("first_wins", [0.2, 0.73, 1.0])
def test_smoothing_is_least_at_the_log_odds_of_smoothed_labels(first_wins):
    assert_least_at(logit(0.85 * first_wins + 0.15 * (1 - first_wins)), first_wins, label_smoothing=0.15)


@pytest.mark.parametrize(("first_wins", "ties"), [(0.2, 0.3), (0.6, 0.3), (0.0, 0.5), (0.0, 1.0)])
def test_a_tie_counts_as_half_a_win_for_each(first_wins, ties):
    """Smoothing changes nothing on ties."""
    assert_least_at(logit(first_wins + ties / 2), first_wins, ties=ties)
    if ties == 1.0:
        assert_least_at(0.0, first_wins, ties=ties, label_smoothing=0.2, margin=3.0)


@pytest.mark.parametrize("first_wins", [0.2, 0.5, 0.73])
@pytest.mark.parametrize("margin", [0.5, 2.0])
def test_a_margin_is_least_farther_out(first_wins, margin):
    """P / (1 + x / a) = (1 - P) / (1 + 1 / (a x)) with x = exp(lead), a = exp(margin): a quadratic in x."""
    p, a = first_wins, np.exp(margin)
    x = (2 * p - 1 + np.sqrt((1 - 2 * p) ** 2 + 4 * p * (1 - p) / a**2)) / (2 * (1 - p) / a)
    assert_least_at(float(np.log(x)), first_wins, margin=margin)
    assert abs(np.log(x)) >= abs(logit(p)) - 1e-12


def test_a_margin_keeps_the_order_but_not_the_distances():
    found = minimiser(WINS, margin_per_strength=1.0)
    assert (np.argsort(found) == np.argsort(truth.REWARDS)).all()
    assert found.max() - found.min() > truth.REWARDS.max() - truth.REWARDS.min() + 0.5


def test_equal_scores_cost_log_2_and_moving_all_scores_changes_nothing():
    zeros = torch.zeros(15, dtype=torch.float64)
    assert float(expected_loss(zeros, WINS)) == pytest.approx(np.log(2), abs=1e-12)
    moved = expected_loss(TOY.rewards + 7, WINS)
    torch.testing.assert_close(moved, expected_loss(TOY.rewards, WINS), rtol=0, atol=1e-12)


def test_centring_moves_both_scores_alike_towards_opposite_ones():
    chosen, rejected = torch.tensor([2.0, 1.0]).requires_grad_(), torch.tensor([1.0, -1.0]).requires_grad_()
    values = reward_model.centering(chosen, rejected)
    assert values.tolist() == [9.0, 0.0]
    values.sum().backward()
    assert chosen.grad.tolist() == rejected.grad.tolist() == [6.0, 0.0]
