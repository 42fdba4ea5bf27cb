"""What RLOO and GRPO climb: the expected gradient over all groups of two, against the gradient of E[r]."""

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
import torch
from population import BEHAVIOR, POLICY, TOY
from printed import assert_prints

from kleash.algorithms import grpo, rloo

P = truth.distribution(truth.POLICY)
REWARD_GRADIENT = truth.expectation_gradient(truth.POLICY, truth.REWARDS)
NO_CLIP = 1e6


def group_advantages(function, batch, rewards=TOY.rewards):
    grouped = rewards[batch.rows].view(-1, batch.group_size)
    return function(grouped, torch.ones_like(grouped, dtype=torch.bool)).flatten()


def climbed(values, population=kleash_on.pairs, sampler=POLICY):
    """Minus the gradient of the expected loss: the direction that the algorithm takes."""
    batch = population(sampler)
    behavior = TOY.token_logprobs(sampler)[batch.rows]
    return -kleash_on.gradient_at(lambda x: batch.mean(values(TOY.token_logprobs(x)[batch.rows], behavior, batch)))


def rloo_values(policy, behavior, batch):
    advantages = group_advantages(rloo.advantages, batch)
    mask = TOY.response_mask[batch.rows]
    return rloo.loss(policy, behavior, advantages, mask, epsilon=NO_CLIP).values


def grpo_values(function, normalization="constant"):
    def values(policy, behavior, batch):
        mask = TOY.response_mask[batch.rows]
        advantages = group_advantages(function, batch)
        loss = grpo.loss(policy, behavior, advantages, mask, epsilon_low=NO_CLIP, epsilon_high=NO_CLIP)
        weights = grpo.token_weights(mask.sum(1), float(P @ truth.LENGTHS), normalization)
        return (loss.values * weights[:, None]).sum(1)

    return values


@pytest.mark.parametrize("population", [kleash_on.pairs, kleash_on.triples])
@pytest.mark.parametrize("sampler", [POLICY, BEHAVIOR], ids=["on-policy", "off-policy"])
def test_rloo_climbs_the_reward(population, sampler):
    gradient = climbed(rloo_values, population, sampler)
    np.testing.assert_allclose(gradient, REWARD_GRADIENT, rtol=0, atol=1e-9)
    assert_prints(truth.cosine(gradient, REWARD_GRADIENT), "1.000000000")


def test_a_constant_added_to_the_reward_changes_no_advantage():
    batch = kleash_on.pairs(POLICY)
    plain = group_advantages(rloo.advantages, batch)
    moved = group_advantages(rloo.advantages, batch, TOY.rewards + 5)
    torch.testing.assert_close(moved, plain, rtol=0, atol=1e-12)


def test_a_mean_that_holds_the_sample_itself_halves_the_gradient():
    gradient = climbed(grpo_values(grpo.advantages))
    np.testing.assert_allclose(gradient, 0.5 * REWARD_GRADIENT, rtol=0, atol=1e-9)


def test_a_standard_deviation_turns_the_gradient_towards_the_win_rate():
    gradient = climbed(grpo_values(grpo.scaled_advantages))
    assert_prints(truth.cosine(gradient, REWARD_GRADIENT), ".7804")
    wins = np.sign(truth.REWARDS[:, None] - truth.REWARDS[None, :]) @ P
    assert truth.cosine(gradient, truth.expectation_gradient(truth.POLICY, wins)) > 0.9999


@pytest.mark.parametrize("normalization", ["token", "constant"])
def test_equal_token_weights_keep_the_direction(normalization):
    gradient = climbed(grpo_values(grpo.advantages, normalization))
    assert_prints(truth.cosine(gradient, REWARD_GRADIENT), "1.000000000")


def test_weights_by_sequence_distort_by_length():
    gradient = climbed(grpo_values(grpo.advantages, "sequence"))
    share = P @ truth.LENGTHS / truth.LENGTHS
    advantages = 0.5 * (truth.REWARDS - P @ truth.REWARDS)
    expected = truth.expectation_gradient(truth.POLICY, share * advantages)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-7)
    assert truth.cosine(gradient, REWARD_GRADIENT) < 0.99


def test_token_ratios_are_not_the_reward_gradient_off_policy():
    gradient = climbed(grpo_values(grpo.advantages), sampler=BEHAVIOR)
    assert truth.cosine(gradient, REWARD_GRADIENT) < 1 - 1e-4
