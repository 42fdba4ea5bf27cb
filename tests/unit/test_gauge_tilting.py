import math
from dataclasses import replace

import numpy as np
import pytest

from kleash.gauge.tilting import PromptDraws, effective_size, jackknifed, predict, tilt

NAN = float("nan")


def draws(reward, gold=None, optimised=None, lengths=None):
    reward = np.array(reward, dtype=float)
    return PromptDraws(
        "prompt",
        [f"reply {i}" for i in range(len(reward))],
        reward if optimised is None else np.array(optimised, dtype=float),
        reward,
        None if gold is None else np.array(gold, dtype=float),
        np.full(len(reward), 5.0) if lengths is None else np.array(lengths, dtype=float),
    )


def normal_prompts(prompts=20, samples=32, seed=0, gold=None):
    """Standard normal rewards, on which the optimum at beta is normal with mean 1 / beta and KL 1 / (2 beta^2)."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(prompts, samples))
    return [draws(row, gold=None if gold is None else gold(row)) for row in rows]


def test_two_equal_samples_by_hand():
    found = tilt(np.log([0.5, 0.5]), np.array([0.0, math.log(3.0)]), 1.0)
    np.testing.assert_allclose(found.weights, [0.25, 0.75], rtol=1e-12)
    assert float(found.log_z) == pytest.approx(math.log(2.0))
    assert float(found.kl) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert float(effective_size(found.weights)) == pytest.approx(1.6)


def test_a_sample_of_probability_zero_has_no_weight():
    found = tilt(np.array([0.0, -np.inf]), np.array([1.0, 50.0]), 1.0)
    assert found.weights.tolist() == [1.0, 0.0]
    assert float(found.kl) == pytest.approx(0.0, abs=1e-12)


def test_a_large_reward_over_a_small_beta_does_not_overflow():
    found = tilt(np.log([0.5, 0.5]), np.array([-1e6, 1e6]), 1e-3)
    assert found.weights.tolist() == [0.0, 1.0]
    assert float(found.kl) == pytest.approx(math.log(2.0), abs=1e-6)


@pytest.mark.parametrize("beta", [0.0, -1.0, NAN, math.inf])
def test_a_beta_without_an_optimum_is_refused(beta):
    with pytest.raises(ValueError, match="the optimum exists for a positive, finite beta only"):
        tilt(np.zeros(2), np.zeros(2), beta)


def test_the_jackknife_leaves_each_sample_out_once():
    rewards, values = np.array([0.0, 1.0, 3.0]), np.array([[2.0, -1.0, 4.0]])

    def by_hand(kept):
        e = np.exp(rewards[kept])
        mean, log_z = (e * rewards[kept]).sum() / e.sum(), math.log(e.mean())
        return np.array([mean - log_z, (e * values[0, kept]).sum() / e.sum()])

    without = np.mean([by_hand([1, 2]), by_hand([0, 2]), by_hand([0, 1])], axis=0)
    np.testing.assert_allclose(jackknifed(rewards, values, 1.0), 3 * by_hand([0, 1, 2]) - 2 * without, rtol=1e-12)


def test_a_beta_so_large_that_nothing_is_reweighted_gives_the_means():
    rows = [draws([0.0, 1.0, 2.0, 5.0] * 8, lengths=[1, 2, 3, 4] * 8), draws([1.0, 1.0, 1.0, 3.0] * 8)]
    found = predict(rows, 1e9).predicted
    assert found.reward.value == pytest.approx((2.0 + 1.5) / 2, abs=1e-6)
    assert found.length.value == pytest.approx((2.5 + 5.0) / 2, abs=1e-6)
    assert found.kl.value == pytest.approx(0.0, abs=1e-9)
    assert found.gold is None
    assert found.gold_per_nat is None


def test_normal_rewards_end_where_theory_says():
    found = predict(normal_prompts(prompts=60, samples=64), 2.0)
    assert found.predicted.kl.low < 1 / 8 < found.predicted.kl.high
    assert found.predicted.reward.low < 1 / 2 < found.predicted.reward.high
    assert found.effective_size == pytest.approx(60 * 64 * math.exp(-1 / 4), rel=0.1)
    assert found.small_kl == pytest.approx(1 / 8, rel=0.1)
    assert found.predicted.kl_per_token.value == pytest.approx(found.predicted.kl.value / 5)


def test_weights_follow_what_is_optimised_and_the_reward_is_told_before_shaping():
    rng = np.random.default_rng(0)
    optimised = rng.normal(size=(20, 32))
    rows = [draws(10 + 2 * row, optimised=row) for row in optimised]
    found = predict(rows, 2.0).predicted
    plain = predict([draws(row) for row in optimised], 2.0).predicted
    assert found.kl == plain.kl
    assert found.reward.value == pytest.approx(10 + 2 * plain.reward.value)
    assert found.reward_per_nat.value == pytest.approx(4.0)


def test_samples_without_a_score_are_left_out():
    rows = normal_prompts()
    gaps = [
        replace(
            row,
            completions=[*row.completions, "none"],
            optimised=np.append(row.optimised, NAN),
            reward=np.append(row.reward, NAN),
            lengths=np.append(row.lengths, 99.0),
        )
        for row in rows
    ]
    assert predict([*gaps, draws([1.0, 2.0, 3.0, NAN])], 2.0) == predict(rows, 2.0)


def test_gold_is_that_of_the_samples_that_have_one():
    rows = normal_prompts(gold=lambda row: np.where(np.arange(len(row)) % 2, -row, NAN))
    found = predict(rows, 2.0).predicted
    half = predict([draws(row.reward[1::2]) for row in rows], 2.0).predicted
    assert found.gold.value == pytest.approx(-half.reward.value)
    assert found.gold_per_nat.value == pytest.approx(-2.0)
    assert found.gold_per_nat.high < 0


def test_too_few_effective_samples_over_all_prompts():
    point = predict(normal_prompts(prompts=2, samples=32), 1.0)
    assert point.predicted is None
    assert point.reason.startswith(f"the effective sample size is {point.effective_size:.1f} over all prompts, less")


def test_too_few_effective_samples_of_a_prompt():
    point = predict(normal_prompts(prompts=40, samples=16), 1.0)
    assert point.effective_size > 50
    assert point.predicted is None
    assert point.reason.endswith(f"of {point.sparse_effective_size:.2f} or less, under 8")


def test_a_kl_that_may_lie_beyond_log_g():
    """One prompt ends at log(64 / 18) nats and one at none: from two so different the next may be anywhere."""
    paid = np.random.default_rng(0).permutation(64) < 18
    point = predict([draws(np.where(paid, 100.0, 0.0)), draws(np.where(paid, 1e-3, 0.0))], 1.0)
    assert point.effective_size == pytest.approx(64 + 18, abs=0.01)
    assert point.predicted is None
    assert point.reason.endswith("nats, and samples show no more than log G = 4.16")


def test_an_interval_grows_by_twice_what_the_halves_say_differently():
    """Two prompts alike: the bootstrap over them has no width, and what is left is the halves' difference."""
    row = np.random.default_rng(1).normal(size=40)
    found = predict([draws(row)] * 2, 4.0).predicted

    def kl(rewards):
        return jackknifed(rewards, rewards[None], 4.0)[0]

    arm = 2 * abs((kl(row[:20]) + kl(row[20:])) / 2 - kl(row))
    assert arm > 0
    assert found.kl.high - found.kl.value == pytest.approx(arm)
    assert found.kl.value - found.kl.low == pytest.approx(arm)
