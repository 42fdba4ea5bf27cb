"""Predictions against the enumerated toy: exact with all sequences, and intervals that cover with samples."""

import math

import enumeration as truth
import numpy as np
import pytest

from kleash.gauge.tilting import PromptDraws, effective_size, jackknifed, predict, tilt

REFERENCE = truth.distribution(truth.REFERENCE)
GOLD = np.cos(1.7 * np.arange(15.0))
REWARDS = np.sin(2.1 * np.arange(15.0)[None] + 0.4 + 0.5 * np.arange(24.0)[:, None])
"""A population of 24 prompts: the toy's reward, each time further along the sine."""


@pytest.mark.parametrize("beta", [0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 100.0])
def test_all_sequences_with_their_probabilities_give_the_optimum_exactly(beta):
    found = tilt(np.log(REFERENCE), truth.REWARDS, beta)
    optimum, log_z = truth.posterior(REFERENCE, beta)
    np.testing.assert_allclose(found.weights, optimum, atol=1e-12)
    assert float(found.log_z) == pytest.approx(log_z, abs=1e-9)
    assert float(found.kl) == pytest.approx(truth.kl(optimum, REFERENCE), abs=1e-9)
    assert float(found.weights @ truth.REWARDS) == pytest.approx(float(optimum @ truth.REWARDS), abs=1e-9)
    assert float(found.weights @ GOLD) == pytest.approx(float(optimum @ GOLD), abs=1e-9)
    assert float(effective_size(found.weights)) == pytest.approx(1 / float((optimum**2).sum()), rel=1e-9)


@pytest.mark.parametrize(
    ("beta", "reward", "kl"),
    [
        (0.1, 0.53433830, 0.78255807),
        (0.25, 0.50386966, 0.57931284),
        (0.5, 0.44247428, 0.41697720),
        (1.0, 0.27888148, 0.18759239),
        (2.0, 0.10331985, 0.05912689),
    ],
)
def test_the_numbers_that_korbak_et_al_imply_for_the_toy(beta, reward, kl):
    found = tilt(np.log(REFERENCE), truth.REWARDS, beta)
    assert float(found.weights @ truth.REWARDS) == pytest.approx(reward, abs=1e-8)
    assert float(found.kl) == pytest.approx(kl, abs=1e-8)


def test_several_prompts_at_once_are_each_their_own():
    found = tilt(np.log(REFERENCE), REWARDS, 0.5)
    for row, rewards in enumerate(REWARDS):
        optimum, log_z = truth.posterior(REFERENCE, 0.5, rewards)
        assert float(found.log_z[row]) == pytest.approx(log_z, abs=1e-12)
        assert float(found.kl[row]) == pytest.approx(truth.kl(optimum, REFERENCE), abs=1e-12)


@pytest.mark.parametrize(("beta", "of_reward"), [(0.35, False), (1.0, True)], ids=["KL", "reward"])
def test_the_jackknife_takes_most_of_the_bias_off(beta, of_reward):
    """Means over 3,000 draws of 16 samples: the plain KL lies 0.02 nats off at 0.35, the plain reward 0.016 at 1."""
    optimum, _ = truth.posterior(REFERENCE, beta)
    exact = float(optimum @ truth.REWARDS) if of_reward else truth.kl(optimum, REFERENCE)
    drawn = truth.REWARDS[np.random.default_rng(0).choice(15, size=(3000, 16), p=REFERENCE)]
    weighted = tilt(np.full(16, -math.log(16)), drawn, beta)
    plain = (weighted.weights * drawn).sum(1) if of_reward else weighted.kl
    corrected = np.array([jackknifed(rewards, rewards[None], beta)[int(of_reward)] for rewards in drawn])
    noise = plain.std() / math.sqrt(len(drawn))
    assert abs(plain.mean() - exact) > 4 * noise
    assert abs(corrected.mean() - exact) < 0.3 * abs(plain.mean() - exact)


def drawn_prompts(rng, prompts, samples):
    found = []
    for k in rng.integers(0, len(REWARDS), prompts):
        y = rng.choice(15, size=samples, p=REFERENCE)
        rewards, lengths = REWARDS[k][y], truth.LENGTHS[y].astype(float)
        found.append(PromptDraws("", [""] * samples, rewards, rewards, GOLD[y], lengths))
    return found


def exact_means(beta, reference=REFERENCE):
    """KL, reward, gold, length and KL per token of the optimum, over the population of prompts."""
    optima = [truth.posterior(reference, beta, rewards)[0] for rewards in REWARDS]
    kl = np.mean([truth.kl(optimum, reference) for optimum in optima])
    length = np.mean([optimum @ truth.LENGTHS for optimum in optima])
    reward = np.mean([optimum @ rewards for optimum, rewards in zip(optima, REWARDS, strict=True)])
    return kl, reward, np.mean([optimum @ GOLD for optimum in optima]), length, kl / length


def test_intervals_cover_in_their_share_of_repeats_wherever_something_is_claimed():
    """24 prompts of 32 samples, drawn 80 times; a binomial of 0.95 is below 0.87 in one of 300 such tests."""
    rng = np.random.default_rng(1)
    repeats, betas = 80, (2.0, 0.5, 0.25)
    exact = {beta: exact_means(beta) for beta in betas}
    covered = {beta: [] for beta in betas}
    for _ in range(repeats):
        draws = drawn_prompts(rng, 24, 32)
        for beta in betas:
            found = predict(draws, beta).predicted
            if found is not None:
                numbers = (found.kl, found.reward, found.gold, found.length, found.kl_per_token)
                covered[beta].append([e.low <= t <= e.high for e, t in zip(numbers, exact[beta], strict=True)])
    claims = {beta: len(hits) for beta, hits in covered.items()}
    assert claims[2.0] == repeats
    assert claims[0.5] > 72
    assert 16 < claims[0.25] < repeats
    for hits in covered.values():
        assert (np.mean(hits, axis=0) >= 0.87).all()


def test_nothing_is_claimed_where_the_weights_leave_a_sample_or_two():
    point = predict(drawn_prompts(np.random.default_rng(2), 24, 32), 0.01)
    assert point.predicted is None
    assert point.sparse_effective_size < 8
    assert "a tenth of the prompts have an effective sample size of" in point.reason


def test_the_small_kl_law_holds_where_the_kl_is_small():
    point = predict(drawn_prompts(np.random.default_rng(3), 60, 64), 6.0)
    exact = np.mean([REFERENCE @ (row - REFERENCE @ row) ** 2 for row in REWARDS]) / (2 * 6.0**2)
    assert point.small_kl == pytest.approx(exact, rel=0.1)
    assert point.predicted.kl.value == pytest.approx(point.small_kl, rel=0.05)


def test_gold_per_nat_is_the_slope_of_gold_over_kl():
    """Against central differences of the exact curve, where the samples are the distribution itself."""
    beta, step = 1.0, 1e-4
    counts = np.round(REFERENCE * 300).astype(int)
    shares = counts / counts.sum()
    (kl_a, _, gold_a, *_), (kl_b, _, gold_b, *_) = exact_means(beta + step, shares), exact_means(beta - step, shares)
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(15), counts))
    draws = [PromptDraws("", [""] * len(y), row[y], row[y], GOLD[y], truth.LENGTHS[y] * 1.0) for row in REWARDS]
    found = predict(draws, beta).predicted
    assert found.gold_per_nat.value == pytest.approx((gold_b - gold_a) / (kl_b - kl_a), rel=1e-5)
    assert found.reward_per_nat.value == pytest.approx(beta, rel=1e-9)
