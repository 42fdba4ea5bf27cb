"""Best-of-n against all n-tuples of the toy's 15 sequences, and its estimators over all ways to draw N samples."""

import itertools
import math

import enumeration as truth
import numpy as np
import pytest
import torch

from kleash.gauge import best_of_n as sampled
from kleash.kl import best_of_n as exact

REFERENCE = truth.distribution(truth.REFERENCE)
TIED = np.round(truth.REWARDS)  # -1, 0 or 1
CASES = {"distinct": truth.REWARDS, "tied": TIED, "equal": np.ones(15)}
GOLD = np.cos(1.7 * np.arange(15.0))


def all_tuples(rewards, n):
    """Distribution of the best of n: every tuple of draws, its probability shared by the draws that tie."""
    found = np.zeros(15)
    for draws in itertools.product(range(15), repeat=n):
        best = [y for y in draws if rewards[y] == max(rewards[list(draws)])]
        for y in best:
            found[y] += REFERENCE[list(draws)].prod() / len(best)
    return found


def kl_of(rewards, n):
    """KL(best-of-n ‖ reference) from the enumerated tuples."""
    p = all_tuples(rewards, n)
    return sum(a * math.log(a / b) for a, b in zip(p, REFERENCE, strict=True) if a > 0)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_distribution_is_that_of_all_tuples(case, n):
    rewards = CASES[case]
    given = torch.tensor(REFERENCE), torch.tensor(rewards)
    expected = all_tuples(rewards, n)
    np.testing.assert_allclose(exact.pmf(*given, n).numpy(), expected, atol=1e-14)
    assert float(exact.kl(*given, n)) == pytest.approx(kl_of(rewards, n), abs=1e-13)
    assert float(exact.expected_reward(*given, n)) == pytest.approx(float(expected @ rewards), abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 8, 64, 1000])
@pytest.mark.parametrize("case", CASES)
def test_the_kl_is_never_above_its_bound(case, n):
    kl = float(exact.kl(torch.tensor(REFERENCE), torch.tensor(CASES[case]), n))
    assert -1e-12 <= kl <= math.log(n) - (n - 1) / n + 1e-12


def test_the_kl_of_a_large_n_is_the_surprise_of_the_best_sequence():
    """The bound grows for ever; the KL stops where only the best is ever chosen."""
    rewards = torch.tensor(truth.REWARDS)
    kl = float(exact.kl(torch.tensor(REFERENCE), rewards, 20_000))
    assert kl == pytest.approx(-math.log(REFERENCE[truth.REWARDS.argmax()]), rel=1e-9)
    assert kl < math.log(20_000) - 1


@pytest.mark.parametrize("n", [2, 4, 16])
def test_the_bound_is_reached_as_draws_stop_to_tie(n):
    """On K equally likely sequences the gap falls as 1/K, and is below 0.001 nats at K = 100,000."""

    def gap(size):
        uniform = torch.full((size,), 1 / size, dtype=torch.float64)
        return math.log(n) - (n - 1) / n - float(exact.kl(uniform, torch.arange(float(size)), n))

    gaps = [gap(size) for size in (100, 1000, 100_000)]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 1e-3


def test_a_reward_of_two_values():
    """The number that docs/best-of-n.md quotes: F = 1/2, 1."""
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    high = 1 - 0.5**8
    expected = high * math.log(high / 0.5) + (1 - high) * math.log((1 - high) / 0.5)
    found = float(exact.kl(p, torch.tensor([0.0, 1.0]), 8))
    assert found == pytest.approx(expected, abs=1e-12)
    assert round(found, 3) == 0.668


def test_a_sequence_of_probability_zero_is_never_chosen():
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    found = exact.pmf(p, torch.tensor([0.0, 1.0, 2.0]), 3)
    torch.testing.assert_close(found, torch.tensor([0.125, 0.875, 0.0], dtype=torch.float64))
    assert float(exact.kl(p, torch.tensor([2.0, 1.0, 0.0]), 3)) == pytest.approx(
        0.875 * math.log(1.75) + 0.125 * math.log(0.25)
    )


def test_the_gradient_of_the_kl_to_the_probabilities():
    logits = torch.tensor(np.log(REFERENCE), requires_grad=True)

    def kl(at):
        return exact.kl(at.softmax(0), torch.tensor(TIED), 3)

    assert torch.autograd.gradcheck(kl, logits)


def test_what_cannot_be_a_best_of_n_is_refused():
    p, rewards = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match=r"n = 0: .* at least 1 draw"):
        exact.pmf(p, rewards, 0)
    with pytest.raises(ValueError, match="n = 0"):
        exact.kl_bound(0)
    with pytest.raises(ValueError, match=r"sum to -1\.38629 .* not log-probabilities"):
        exact.kl(p.log(), rewards, 2)


# The estimators of kleash.gauge: their mean over every way to draw 4 samples from three sequences is the exact value.

THREE = np.array([0.2, 0.5, 0.3])


def mean_over_draws(statistic, samples=4):
    total = 0.0
    for draws in itertools.product(range(3), repeat=samples):
        total += THREE[list(draws)].prod() * statistic(np.array(draws))
    return total


def best_of(rewards, n):
    """Distribution over the three sequences, by enumeration."""
    found = np.zeros(3)
    for draws in itertools.product(range(3), repeat=n):
        best = [y for y in draws if rewards[y] == max(rewards[list(draws)])]
        for y in best:
            found[y] += THREE[list(draws)].prod() / len(best)
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("rewards", [[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [3.0, 3.0, 3.0]])
def test_proxy_and_gold_are_unbiased(rewards, n):
    rewards, gold = np.array(rewards), np.array([0.3, -1.0, 0.7])
    for values in (rewards, gold):
        found = mean_over_draws(lambda y, v=values: sampled.estimate(rewards[y][None], v[y][None], n).value)
        assert found == pytest.approx(float(best_of(rewards, n) @ values), abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("rewards", [[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [3.0, 3.0, 3.0]])
def test_the_win_rate_is_unbiased(rewards, n):
    rewards, gold = np.array(rewards), np.array([0.3, -1.0, 0.3])
    for values in (rewards, gold):
        found = mean_over_draws(lambda y, v=values: sampled.win_rate(rewards[y][None], v[y][None], n).value)
        above = np.sign(values[:, None] - values[None, :]) / 2 + 0.5
        assert found == pytest.approx(float(best_of(rewards, n) @ above @ THREE), abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_sampled_kl_of_samples_that_all_tie_with_another_is_that_of_their_levels(n):
    rewards = np.repeat(np.arange(3.0), [2, 5, 3])  # the shares of THREE
    p = best_of(np.arange(3.0), n)
    assert sampled.sampled_kl(rewards, n) == pytest.approx(float(np.sum(p * np.log(p / THREE))), abs=1e-13)
