"""Known digits of the toy: drift, estimators with their traps, and the Bayesian view, by Kleash."""

import math

import enumeration as truth
import pytest
import torch
from population import POLICY, REFERENCE, TOY
from printed import assert_prints
from scipy.optimize import brentq

from kleash.kl import estimators, exact, posterior

REFERENCE_LOGPROBS = TOY.sequence_logprobs(REFERENCE)
POLICY_LOGPROBS = TOY.sequence_logprobs(POLICY)
P, Q = POLICY_LOGPROBS.exp(), REFERENCE_LOGPROBS.exp()


def position_kl(left, right):
    """Exact KL(left || right) at each position of each sequence, 0 on padding. [15, 3]"""
    return exact.kl(TOY.token_logits(left), TOY.token_logits(right)).where(TOY.response_mask, 0.0)


def estimate(estimator, policy=POLICY, reference=REFERENCE):
    """One estimate a token, 0 on padding. [15, 3]"""
    return estimator(TOY.token_logprobs(policy), TOY.token_logprobs(reference))


def sequence_estimate(estimator):
    return estimator(POLICY_LOGPROBS, REFERENCE_LOGPROBS)


def test_the_toy():
    assert_prints(P @ TOY.response_mask.sum(1).double(), "2.370192")
    assert_prints(Q @ TOY.rewards, "-0.14271363")
    assert_prints(Q @ (TOY.rewards - Q @ TOY.rewards) ** 2, "0.54064642")
    assert_prints(TOY.rewards.max(), "0.598472")
    assert_prints(((P - Q) ** 2 / Q).sum(), "0.2492584677")


@pytest.mark.parametrize(
    ("sampled_by", "left", "right", "printed"),
    [
        (P, POLICY, REFERENCE, "0.1215104888"),
        (Q, REFERENCE, POLICY, "0.1280400021"),
        (P, REFERENCE, POLICY, "0.12414270"),
        (Q, POLICY, REFERENCE, "0.12547483"),
    ],
    ids=["KL(policy || reference)", "KL(reference || policy)", "neither", "nor"],
)
def test_exact_kl_is_a_sequence_kl_only_on_samples_of_its_left_side(sampled_by, left, right, printed):
    assert_prints(sampled_by @ position_kl(left, right).sum(1), printed)


@pytest.mark.parametrize(
    ("per_sequence", "mean", "std", "least"),
    [
        (estimate(estimators.k1).sum(1), "0.12151049", "0.474407", "-0.9289"),
        (estimate(estimators.k2).sum(1), "0.12153481", "0.072246", ".0415"),
        (estimate(estimators.k3).sum(1), "0.12151049", "0.075647", ".0388"),
        (position_kl(POLICY, REFERENCE).sum(1), "0.12151049", "0.073471", ".0470"),
        (sequence_estimate(estimators.k2), "0.11991342", "0.115515", "0.0000"),
        (sequence_estimate(estimators.k3), "0.12151049", "0.135304", "0.0000"),
    ],
    ids=["k1", "k2", "k3", "exact", "k2 of the sequence", "k3 of the sequence"],
)
def test_estimators(per_sequence, mean, std, least):
    expected = P @ per_sequence
    assert_prints(expected, mean)
    assert_prints((P @ (per_sequence - expected) ** 2).sqrt(), std)
    assert_prints(per_sequence.min(), least)


def test_averages_over_tokens_are_not_the_kl():
    k1 = estimate(estimators.k1).sum(1)
    lengths = TOY.response_mask.sum(1)
    assert_prints(P @ (k1 / lengths), "0.015083")
    assert_prints((P @ k1) / (P @ lengths.double()), "0.051266")


def test_discounting_is_not_the_kl():
    discount = 0.95 ** torch.arange(3.0, dtype=torch.float64)
    assert_prints(P @ (estimate(estimators.k1) @ discount), ".116336")


@pytest.mark.parametrize(
    ("temperature", "k1", "k3", "tempered"),
    [
        (0.5, ".163488", ".103815", ".393986"),
        (0.7, ".149379", ".112446", ".227991"),
        (1.5, ".085348", ".130335", ".056861"),
    ],
)
def test_sampling_and_scoring_at_two_temperatures_is_not_the_kl(temperature, k1, k3, tempered):
    sampler = POLICY / temperature
    sampled = TOY.sequence_logprobs(sampler).exp()
    assert_prints(sampled @ estimate(estimators.k1).sum(1), k1)
    assert_prints(sampled @ estimate(estimators.k3).sum(1), k3)
    assert_prints(sampled @ position_kl(sampler, REFERENCE / temperature).sum(1), tempered)


def test_greedy_decoding_shows_a_negative_kl():
    rows = [tuple(row[: len(y)]) for row, y in zip(TOY.tokens.tolist(), truth.SEQUENCES, strict=True)]
    table, greedy = POLICY.argmax(-1).tolist(), ()
    while greedy not in rows:
        greedy = (*greedy, table[truth.PREFIXES.index(greedy)])
    assert_prints(estimate(estimators.k1).sum(1)[rows.index(greedy)], "-0.312611")


@pytest.mark.parametrize(
    ("beta", "reward", "kl", "value", "gap"),
    [
        (0.1, "0.53433830", "0.78255807", "0.45608249", "0.45319176"),
        (0.25, "0.50386966", "0.57931284", "0.35904145", "0.37437730"),
        (0.5, "0.44247428", "0.41697720", "0.23398568", "0.27969914"),
        (1.0, "0.27888148", "0.18759239", "0.09128909", "0.19775780"),
        (2.0, "0.10331985", "0.05912689", "-0.01493393", "0.21304526"),
    ],
)
def test_posterior(beta, reward, kl, value, gap):
    best = posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, beta)
    p = best.logprobs.exp()
    assert_prints(p.sum(), "1.000000000000")
    assert_prints(p @ TOY.rewards, reward)
    assert_prints(p @ (best.logprobs - REFERENCE_LOGPROBS), kl)
    assert_prints(beta * best.log_z, value)
    assert_prints(posterior.objective(best.logprobs, REFERENCE_LOGPROBS, TOY.rewards, beta), value)
    assert_prints(posterior.gap(POLICY_LOGPROBS, REFERENCE_LOGPROBS, TOY.rewards, beta), gap)
    assert_prints(posterior.gap(best.logprobs, REFERENCE_LOGPROBS, TOY.rewards, beta), "0.000000000000")
    assert_prints(beta * (P @ (POLICY_LOGPROBS - best.logprobs)), gap)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_posterior_agrees_with_enumeration(beta):
    best = posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, beta)
    p, log_z = truth.posterior(truth.distribution(truth.REFERENCE), beta)
    torch.testing.assert_close(best.logprobs.exp(), torch.from_numpy(p), rtol=0, atol=1e-14)
    assert float(best.log_z) == pytest.approx(log_z, abs=1e-13)


def drift_at(beta):
    """KL of the posterior to the reference, and its mean reward."""
    best = posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, beta).logprobs
    return float(best.exp() @ (best - REFERENCE_LOGPROBS)), float(best.exp() @ TOY.rewards)


@pytest.mark.parametrize(("beta", "ratio"), [(50.0, ".99927"), (2.0, ".973")])
def test_reward_grows_as_the_root_of_twice_a_small_kl(beta, ratio):
    kl, reward = drift_at(beta)
    mean = Q @ TOY.rewards
    sd = (Q @ (TOY.rewards - mean) ** 2).sqrt()
    assert_prints((reward - mean) / (sd * math.sqrt(2 * kl)), ratio)


def test_reward_of_the_posterior_rises_with_its_variance():
    step = 1e-5
    slope = (drift_at(1 / (2 + step))[1] - drift_at(1 / (2 - step))[1]) / (2 * step)
    p, _ = truth.posterior(truth.distribution(truth.REFERENCE), 0.5)
    assert slope == pytest.approx(p @ (truth.REWARDS - p @ truth.REWARDS) ** 2, abs=1e-9)


def test_beta_that_holds_a_target_of_0_4_nats():
    beta = brentq(lambda b: drift_at(b)[0] - 0.4, 0.1, 2, xtol=1e-12)
    assert_prints(beta, ".525991")
    step = 1e-5
    rise = math.log(drift_at(beta * (1 + step))[0] / drift_at(beta * (1 - step))[0])
    assert_prints(rise / math.log((1 + step) / (1 - step)), "-.848")


def test_no_target_above_the_cost_of_the_best_sequence_is_feasible():
    assert_prints(drift_at(1e-4)[0], "3.7239")
    assert_prints(-REFERENCE_LOGPROBS[TOY.rewards.argmax()], "3.7239")


@pytest.mark.parametrize("rounds", [2, 5])
def test_converged_resets_of_the_reference_divide_beta(rounds):
    reference = REFERENCE_LOGPROBS
    for _ in range(rounds):
        reference = posterior.posterior(reference, TOY.rewards, 1.0).logprobs
    direct = posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, 1.0 / rounds).logprobs
    torch.testing.assert_close(reference, direct, rtol=0, atol=1e-12)


def test_equal_rewards_keep_their_reference_odds():
    rewards = TOY.rewards.clone()
    rewards[3] = rewards[7]
    for beta in (0.05, 0.5, 5.0):
        best = posterior.posterior(REFERENCE_LOGPROBS, rewards, beta).logprobs
        assert float(best[3] - best[7]) == pytest.approx(
            float(REFERENCE_LOGPROBS[3] - REFERENCE_LOGPROBS[7]), abs=1e-13
        )


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_posterior_needs_a_positive_finite_beta(beta):
    with pytest.raises(ValueError, match=f"beta = {beta}: the posterior exists for a positive, finite beta only"):
        posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, beta)
