"""Ascent on the exact expectation: where each penalty ends, and what moves that end and what does not."""

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
import torch
from population import POLICY, REFERENCE, TOY
from printed import assert_prints

from kleash.algorithms import rloo
from kleash.kl import posterior

BETA = 0.5
REFERENCE_LOGPROBS = TOY.sequence_logprobs(REFERENCE)
BEST = posterior.posterior(REFERENCE_LOGPROBS, TOY.rewards, BETA).logprobs


def train(loss, steps=1500, learning_rate=5.0):
    """Plain gradient descent from the toy's policy; returns the final log-probabilities of the sequences."""
    logits = POLICY.clone()
    for _ in range(steps):
        logits -= learning_rate * torch.from_numpy(kleash_on.gradient_at(loss, logits))
    return TOY.sequence_logprobs(logits)


def distance(logprobs, target=BEST):
    return float(logprobs.exp() @ (logprobs - target))


def reward_loss(scored, rewards):
    """REINFORCE on the exact expectation: no baseline, no clip."""
    return -(scored.policy - scored.policy.detach()).sum(1) * rewards


def penalized(surrogate, beta=BETA):
    def loss(logits):
        batch = kleash_on.everyone(logits)
        scored = kleash_on.score(logits, batch)
        return batch.mean(reward_loss(scored, TOY.rewards) + beta * surrogate(scored, 1))

    return loss


def test_rloo_with_the_default_penalty_reaches_the_posterior():
    def loss(logits):
        batch = kleash_on.pairs(logits)
        scored = kleash_on.score(logits, batch)
        rewards = TOY.rewards[batch.rows].view(-1, 2)
        advantages = rloo.advantages(rewards, torch.ones_like(rewards, dtype=torch.bool)).flatten()
        policy_loss = rloo.loss(scored.policy, scored.policy.detach(), advantages, scored.mask, epsilon=0.2)
        return batch.mean(policy_loss.values + BETA * kleash_on.exact_sequence(scored, 2))

    logprobs = train(loss)
    assert distance(logprobs) < 1e-6
    assert float(posterior.gap(logprobs, REFERENCE_LOGPROBS, TOY.rewards, BETA)) < 1e-6


@pytest.mark.parametrize(
    ("surrogate", "reward", "kl", "value", "to_posterior"),
    [
        (kleash_on.exact_sequence, 0.44247428, 0.41697720, 0.23398568, "0.0000000"),
        (kleash_on.k1_reward_to_go, 0.44247428, 0.41697720, 0.23398568, "0.0000000"),
        (
            lambda s, _: kleash_on.k3_reward(s) + kleash_on.k3_loss(s),
            0.442474,
            0.416977,
            0.233986,
            "0.0000000",
        ),
        (kleash_on.exact_token, 0.450405, 0.448287, 0.226262, "1.5e-2"),
        (kleash_on.k2_loss, 0.450405, 0.448287, 0.226262, "1.5e-2"),
        (kleash_on.k3_loss, 0.315903, 0.233018, 0.199394, "6.9e-2"),
    ],
    ids=["exact", "k1 in reward", "k3 in both", "exact token", "k2", "k3"],
)
def test_where_a_penalty_ends(surrogate, reward, kl, value, to_posterior):
    logprobs = train(penalized(surrogate))
    assert float(logprobs.exp() @ TOY.rewards) == pytest.approx(reward, abs=1e-5)
    assert distance(logprobs, REFERENCE_LOGPROBS) == pytest.approx(kl, abs=1e-5)
    objective = posterior.objective(logprobs, REFERENCE_LOGPROBS, TOY.rewards, BETA)
    assert float(objective) == pytest.approx(value, abs=1e-6)
    assert_prints(distance(logprobs), to_posterior)


def test_k1_as_loss_holds_nothing():
    with_penalty = train(penalized(kleash_on.k1_loss), steps=200)
    without = train(penalized(kleash_on.k1_loss, beta=0.0), steps=200)
    torch.testing.assert_close(with_penalty, without, rtol=0, atol=1e-9)
    assert distance(with_penalty, REFERENCE_LOGPROBS) > 2


POTENTIAL = np.array([0.0, 1.3, -0.7, 2.1, -1.9, 0.4, 0.8])


def shaping(end):
    """Phi(next prefix) - Phi(prefix) at each token; `end` is Phi of each finished sequence. [15, 3]"""
    table = np.zeros((15, 3))
    for row, y, final in zip(table, truth.SEQUENCES, end, strict=True):
        phi = [POTENTIAL[truth.PREFIXES.index(y[:t])] for t in range(len(y))]
        row[: len(y)] = np.diff([*phi, final])
    return torch.from_numpy(table)


def shaped(end, beta=BETA):
    """The reward at the last token plus shaping at each, paid as reward-to-go, and the default penalty."""
    paid = shaping(end)
    to_go = TOY.rewards[:, None] + paid.flip(1).cumsum(1).flip(1)

    def loss(logits):
        batch = kleash_on.everyone(logits)
        scored = kleash_on.score(logits, batch)
        policy_loss = -((scored.policy - scored.policy.detach()) * to_go).sum(1)
        return batch.mean(policy_loss + beta * kleash_on.exact_sequence(scored))

    return loss


def test_a_potential_that_ends_at_zero_leaves_the_gradient_as_it_is():
    expected = kleash_on.gradient_at(penalized(kleash_on.exact_sequence))
    np.testing.assert_allclose(kleash_on.gradient_at(shaped(np.zeros(15))), expected, rtol=0, atol=1e-9)


def test_a_potential_that_ends_at_zero_leaves_the_posterior_where_it_is():
    assert distance(train(shaped(np.zeros(15)))) < 1e-6


def test_a_potential_that_does_not_end_at_zero_moves_the_posterior():
    end = truth.LENGTHS / 3
    logprobs = train(shaped(end))
    moved, _ = truth.posterior(truth.distribution(truth.REFERENCE), BETA, truth.REWARDS + end)
    assert distance(logprobs, torch.from_numpy(np.log(moved))) < 1e-6
    assert distance(logprobs) > 1e-3


@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_the_penalty_moves_the_optimum(beta):
    logprobs = train(penalized(kleash_on.exact_sequence, beta), learning_rate=2.5 / beta)
    moved, _ = truth.posterior(truth.distribution(truth.REFERENCE), beta)
    assert distance(logprobs, torch.from_numpy(np.log(moved))) < 1e-6
    assert distance(logprobs) > 1e-3
