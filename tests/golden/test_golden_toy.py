"""Kleash's penalties and losses on one fixed off-policy batch, against numbers derived without it.

Expectations can not see a baseline that is wrong but unbiased, or a clip; a fixed batch can.
"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from kleash.algorithms import grpo, rloo
from kleash.kl import estimators, exact, penalty
from kleash.testing import toy

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "toy.json").read_text())
TOY = toy()
ROWS = torch.tensor(GOLDEN["groups"]).flatten()
GROUP_SIZE = len(GOLDEN["groups"][0])
MASK = TOY.response_mask[ROWS]
REFERENCE = TOY.token_logprobs(TOY.reference_logits)[ROWS]
BEHAVIOR = TOY.token_logprobs(TOY.behavior_logits)[ROWS]


def advantages(function):
    rewards = TOY.rewards[ROWS].view(-1, GROUP_SIZE)
    return function(rewards, torch.ones_like(rewards, dtype=torch.bool)).flatten()


def exact_kl(logits):
    return exact.kl(TOY.token_logits(logits), TOY.token_logits(TOY.reference_logits))[ROWS]


def rloo_loss(policy):
    epsilon = GOLDEN["epsilon_low"]
    return rloo.loss(policy, BEHAVIOR, advantages(rloo.advantages), MASK, epsilon=epsilon)


def grpo_loss(policy):
    bounds = {name: GOLDEN[name] for name in ("epsilon_low", "epsilon_high")}
    return grpo.loss(policy, BEHAVIOR, advantages(grpo.scaled_advantages), MASK, **bounds)


def quantities(logits):
    policy = TOY.token_logprobs(logits)[ROWS]
    kl = exact_kl(logits)
    weights = penalty.cumulative_weights(policy, BEHAVIOR, MASK)
    sampled = (policy, REFERENCE, weights, MASK, GROUP_SIZE)
    return {
        "exact_sequence": penalty.exact_sequence(kl, policy, weights, MASK, GROUP_SIZE),
        "exact_token": penalty.exact_token(kl, MASK),
        "k2_token": penalty.estimator_token(estimators.k2(policy, REFERENCE), MASK),
        "k3_token": penalty.estimator_token(estimators.k3(policy, REFERENCE), MASK),
        "k1_reward_to_go": penalty.k1_reward_to_go(*sampled),
        "k1_sequence": penalty.k1_sequence(*sampled),
        "rloo": rloo_loss(policy).values,
        "grpo": grpo_loss(policy).values.sum(1),
    }


def test_the_fixture_is_what_its_script_makes():
    made = runpy.run_path(str(HERE / "make_toy.py"))["build"]()
    assert made["mean"].keys() == GOLDEN["mean"].keys()
    for name, golden in GOLDEN["mean"].items():
        assert made["mean"][name]["value"] == pytest.approx(golden["value"], abs=1e-12)
        np.testing.assert_allclose(made["mean"][name]["gradient"], golden["gradient"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", GOLDEN["mean"])
def test_value_and_gradient(name):
    logits = TOY.policy_logits.clone().requires_grad_()
    mean = quantities(logits)[name].mean()
    (gradient,) = torch.autograd.grad(mean, logits)
    assert mean.item() == pytest.approx(GOLDEN["mean"][name]["value"], abs=1e-9)
    np.testing.assert_allclose(gradient.numpy(), GOLDEN["mean"][name]["gradient"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("loss", [rloo_loss, grpo_loss])
def test_the_batch_exercises_the_clip(loss):
    clipped = loss(TOY.token_logprobs(TOY.policy_logits)[ROWS]).clipped
    assert clipped.any()
    assert not clipped.all()
