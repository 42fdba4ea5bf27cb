"""PPO's first update on fresh samples, summed over the whole toy population: with which critic it climbs what."""

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
import torch
from population import POLICY, REFERENCE, TOY, gradient_at

from kleash.algorithms import ppo
from kleash.ops.gae import generalized_advantages, returns
from kleash.ops.whitening import center, whiten

MASK = TOY.response_mask
P, Q = truth.distribution(truth.POLICY), truth.distribution(truth.REFERENCE)
REWARD_GRADIENT = truth.expectation_gradient(truth.POLICY, truth.REWARDS)
KL_GRADIENT = truth.reverse_kl_gradient(truth.POLICY, truth.REFERENCE)
K1 = (TOY.token_logprobs(POLICY) - TOY.token_logprobs(REFERENCE)).detach()


def mean_from(prefix):
    """The value of a prefix: the mean reward of what the policy makes of it."""
    goes_through = np.array([y[: len(prefix)] == prefix and len(y) > len(prefix) for y in truth.SEQUENCES])
    return float((P * truth.REWARDS)[goes_through].sum() / P[goes_through].sum())


CRITICS = {
    "none": np.zeros(7),
    "wrong": 2 * np.cos(1.9 * np.arange(7.0)),
    "right": np.array([mean_from(prefix) for prefix in truth.PREFIXES]),
}


def values_of(critic):
    return torch.tensor(CRITICS[critic])[TOY.prefix_index]


def advantages(critic, trace, rewards=None):
    rewards = ppo.token_rewards(TOY.rewards, MASK) if rewards is None else rewards
    return ppo.advantages(rewards, values_of(critic), MASK, discount=1.0, trace=trace)


def climbed(advantages):
    def expected_loss(logits):
        policy = TOY.token_logprobs(logits)
        loss = ppo.loss(policy, policy.detach(), advantages, MASK, epsilon=0.2)
        assert not loss.clipped.any()
        return torch.tensor(P) @ loss.values.sum(1)

    return -gradient_at(expected_loss)


def sum_from(rewards, discount):
    """Discounted reward-to-go by direct summation; only a reply's own tokens."""
    out = np.zeros((15, 3))
    for b, length in enumerate(truth.LENGTHS):
        for t in range(length):
            out[b, t] = sum(discount ** (s - t) * rewards[b, s] for s in range(t, length))
    return out


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_with_lambda_1_advantage_plus_value_is_the_reward_to_go(critic, discount):
    rewards = ppo.token_rewards_with_k1(TOY.rewards, K1, 0.3, MASK)
    values = values_of(critic)
    advantages = generalized_advantages(rewards, values, MASK, discount=discount, trace=1.0)
    expected = sum_from(rewards.numpy(), discount)
    np.testing.assert_allclose(returns(advantages, values, MASK).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("trace", [0.0, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_generalized_advantages_are_the_double_sum(trace, discount):
    rewards, values = np.cos(np.arange(45.0)).reshape(15, 3), np.sin(2 * np.arange(45.0)).reshape(15, 3)
    expected = np.zeros((15, 3))
    for b, length in enumerate(truth.LENGTHS):
        after = np.append(values[b, :length], 0.0)
        for t in range(length):
            for s in range(t, length):
                delta = rewards[b, s] + discount * after[s + 1] - after[s]
                expected[b, t] += (discount * trace) ** (s - t) * delta
    found = generalized_advantages(torch.tensor(rewards), torch.tensor(values), MASK, discount=discount, trace=trace)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("critic", CRITICS)
def test_with_lambda_1_the_first_step_is_the_policy_gradient_for_any_critic(critic):
    np.testing.assert_allclose(climbed(advantages(critic, 1.0)), REWARD_GRADIENT, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_fresh_samples_of_a_prompt_has_that_mean(size):
    batch = kleash_on.groups(POLICY, size)
    by_token = advantages("wrong", 1.0)[batch.rows]

    def expected_loss(logits):
        policy = TOY.token_logprobs(logits)[batch.rows]
        return batch.mean(ppo.loss(policy, policy.detach(), by_token, MASK[batch.rows], epsilon=0.2).values.sum(1))

    np.testing.assert_allclose(-gradient_at(expected_loss), REWARD_GRADIENT, rtol=0, atol=1e-9)


@pytest.mark.parametrize("trace", [0.0, 0.95])
def test_with_a_smaller_lambda_only_a_right_critic_gives_the_policy_gradient(trace):
    np.testing.assert_allclose(climbed(advantages("right", trace)), REWARD_GRADIENT, rtol=0, atol=1e-9)
    assert truth.relative_error(climbed(advantages("wrong", trace)), REWARD_GRADIENT) > 0.01


@pytest.mark.parametrize("critic", CRITICS)
def test_k1_in_the_reward_is_the_gradient_of_the_kl(critic):
    drift = ppo.token_rewards_with_k1(torch.zeros_like(TOY.rewards), K1, 1.0, MASK)
    np.testing.assert_allclose(climbed(advantages(critic, 1.0, drift)), -KL_GRADIENT, rtol=0, atol=1e-9)
    both = ppo.token_rewards_with_k1(TOY.rewards, K1, 0.3, MASK)
    expected = REWARD_GRADIENT - 0.3 * KL_GRADIENT
    np.testing.assert_allclose(climbed(advantages(critic, 1.0, both)), expected, rtol=0, atol=1e-9)


def test_centring_keeps_the_gradient_and_whitening_divides_it_by_the_spread():
    plain = advantages("wrong", 1.0)
    np.testing.assert_allclose(climbed(center(plain, MASK)), REWARD_GRADIENT, rtol=0, atol=1e-9)
    sd = float(np.std(plain[MASK].numpy()))
    np.testing.assert_allclose(climbed(whiten(plain, MASK)), REWARD_GRADIENT / sd, rtol=0, atol=1e-7)


def test_the_clip_cuts_each_token_by_its_own_advantage():
    """Ratios 3/2 and 1/2, each with an advantage that would go on and one that would come back."""
    ratios = torch.tensor([[1.5, 1.5, 0.5, 0.5]], dtype=torch.float64)
    policy, mask = ratios.log().requires_grad_(), torch.ones(1, 4, dtype=torch.bool)
    signs = torch.tensor([[2.0, -2.0, -2.0, 2.0]], dtype=torch.float64)
    loss = ppo.loss(policy, torch.zeros_like(ratios), signs, mask, epsilon=0.2)
    torch.testing.assert_close(loss.values, torch.tensor([[-2.4, 3.0, 1.6, -1.0]], dtype=torch.float64))
    assert loss.clipped.tolist() == [[True, False, True, False]]
    loss.values.sum().backward()
    torch.testing.assert_close(policy.grad, torch.tensor([[0.0, 3.0, 0.0, -1.0]], dtype=torch.float64))


def test_the_reward_is_at_the_last_token_and_k1_at_each():
    rewards = ppo.token_rewards(torch.tensor([5.0, 7.0, 9.0]), torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]]).bool())
    assert rewards.tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 7.0], [0.0, 0.0, 0.0]]
    k1, mask = torch.tensor([[0.5, -1.0, 4.0]]).requires_grad_(), torch.tensor([[True, True, False]])
    charged = ppo.token_rewards_with_k1(torch.tensor([3.0]), k1, 0.1, mask)
    torch.testing.assert_close(charged, torch.tensor([[-0.05, 3.1, 0.0]]))
    assert not charged.requires_grad


def test_the_critic_that_has_learned_is_right():
    """The expected gradient of its loss, with returns of lambda 1, is 0 at the true values and nowhere else."""

    def slope(critic):
        table = torch.tensor(CRITICS[critic]).requires_grad_()
        values = table[TOY.prefix_index]
        targets = returns(advantages(critic, 1.0), values_of(critic), MASK)
        loss = ppo.value_loss(values, values.detach(), targets, MASK, epsilon=0.2)
        (found,) = torch.autograd.grad(torch.tensor(P) @ loss.values.sum(1), table)
        return found.numpy()

    np.testing.assert_allclose(slope("right"), 0, rtol=0, atol=1e-12)
    expected = truth.occupancy(truth.POLICY) * (CRITICS["wrong"] - CRITICS["right"])
    np.testing.assert_allclose(slope("wrong"), expected, rtol=0, atol=1e-12)
