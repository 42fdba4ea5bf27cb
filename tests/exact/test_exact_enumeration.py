"""The enumerator is the judge of everything else, so it is judged here by finite differences and by print."""

import doctest

import enumeration as truth
import numpy as np
import pytest
import torch

import kleash.testing
from kleash.testing import toy

P = truth.distribution(truth.POLICY)
Q = truth.distribution(truth.REFERENCE)
WEIGHTS = np.arange(1.0, 8.0)


def finite_difference(f, logits, step=1e-5):
    gradient = np.zeros_like(logits)
    for index in np.ndindex(*logits.shape):
        up, down = logits.copy(), logits.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (f(up) - f(down)) / (2 * step)
    return gradient


def test_probabilities_sum_to_one():
    for logits in (truth.REFERENCE, truth.POLICY, truth.BEHAVIOR):
        assert truth.distribution(logits).sum() == pytest.approx(1, abs=1e-14)


def test_occupancy_counts_the_tokens():
    assert truth.occupancy(truth.POLICY).sum() == pytest.approx(P @ truth.LENGTHS, abs=1e-14)


def test_chain_rule_of_kl():
    by_prefix = truth.occupancy(truth.POLICY) @ truth.prefix_kl(truth.POLICY, truth.REFERENCE)
    assert by_prefix == pytest.approx(truth.kl(P, Q), abs=1e-14)


@pytest.mark.parametrize(
    ("gradient", "value"),
    [
        (truth.reverse_kl_gradient, lambda x: truth.kl(truth.distribution(x), Q)),
        (truth.forward_kl_gradient, lambda x: truth.kl(Q, truth.distribution(x))),
    ],
)
def test_kl_gradients_agree_with_finite_differences(gradient, value):
    analytic = gradient(truth.POLICY, truth.REFERENCE)
    np.testing.assert_allclose(analytic, finite_difference(value, truth.POLICY), atol=1e-9)


@pytest.mark.parametrize(
    ("gradient", "value"),
    [
        (truth.partial_reverse_gradient, lambda x: WEIGHTS @ truth.prefix_kl(x, truth.REFERENCE)),
        (truth.partial_forward_gradient, lambda x: WEIGHTS @ truth.prefix_kl(truth.REFERENCE, x)),
    ],
)
def test_partial_gradients_agree_with_finite_differences(gradient, value):
    analytic = gradient(truth.POLICY, truth.REFERENCE, WEIGHTS)
    np.testing.assert_allclose(analytic, finite_difference(value, truth.POLICY), atol=1e-9)


def test_reward_gradient_agrees_with_finite_differences():
    analytic = truth.expectation_gradient(truth.POLICY, truth.REWARDS)
    numeric = finite_difference(lambda x: truth.distribution(x) @ truth.REWARDS, truth.POLICY)
    np.testing.assert_allclose(analytic, numeric, atol=1e-9)


def test_no_distribution_beats_the_posterior():
    best, log_z = truth.posterior(Q, beta=0.5)
    value = truth.objective(best, Q, beta=0.5)
    assert value == pytest.approx(0.5 * log_z, abs=1e-14)
    rivals = np.random.default_rng(0).dirichlet(np.ones(15), size=200)
    assert all(truth.objective(p, Q, beta=0.5) < value for p in rivals)


@pytest.mark.parametrize("name", ["reference", "policy", "behavior"])
def test_the_public_toy_is_the_same_language(name):
    logits = getattr(toy(), f"{name}_logits")
    table = getattr(truth, name.upper())
    np.testing.assert_allclose(logits.numpy(), table, atol=1e-14)
    np.testing.assert_allclose(toy().sequence_logprobs(logits).exp().numpy(), truth.distribution(table), atol=1e-14)
    assert logits.dtype == torch.float64


def test_the_public_toy_has_the_same_sequences_and_rewards():
    model = toy()
    rows = [tuple(row[mask].tolist()) for row, mask in zip(model.tokens, model.response_mask, strict=True)]
    assert rows == truth.SEQUENCES
    np.testing.assert_allclose(model.rewards.numpy(), truth.REWARDS, atol=1e-14)
    assert (model.tokens[~model.response_mask] == truth.EOS).all()
    for row, visited in zip(truth.SEQUENCES, model.prefix_index.tolist(), strict=True):
        assert [truth.PREFIXES[c] for c in visited[: len(row)]] == [row[:t] for t in range(len(row))]


def test_the_public_toy_scores_only_response_tokens():
    model = toy()
    logprobs = model.token_logprobs(model.policy_logits)
    assert (logprobs[~model.response_mask] == 0).all()
    assert (logprobs[model.response_mask] < 0).all()


def test_the_public_toy_carries_gradients():
    model = toy()
    logits = model.policy_logits.clone().requires_grad_()
    (model.sequence_logprobs(logits).exp() @ model.rewards).backward()
    np.testing.assert_allclose(logits.grad.numpy(), truth.expectation_gradient(truth.POLICY, truth.REWARDS), atol=1e-14)


def test_the_example_of_the_public_toy_runs():
    assert doctest.testmod(kleash.testing) == (0, 5)
