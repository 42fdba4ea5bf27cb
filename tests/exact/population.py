"""Kleash's functions over the whole toy population: every expectation is a weighted sum, with no noise.

`everyone` is one row a sequence, so a group has one member and no baseline; `pairs` is all 225 groups of two.
"""

from __future__ import annotations

from typing import NamedTuple

import enumeration as truth
import torch
from torch import Tensor

from kleash.kl import estimators, exact, penalty
from kleash.testing import toy

TOY = toy()
POLICY, REFERENCE, BEHAVIOR = TOY.policy_logits, TOY.reference_logits, TOY.behavior_logits


class Population(NamedTuple):
    """Rows of a batch with the probability of each: `rows` index the 15 sequences."""

    rows: Tensor
    probability: Tensor
    group_size: int

    def mean(self, values):
        return self.probability @ values


def everyone(sampler):
    return Population(torch.arange(15), TOY.sequence_logprobs(sampler).exp().detach(), 1)


def groups(sampler, size):
    """All 15^size groups of independent samples; a group's probability is shared by its rows."""
    p = everyone(sampler).probability
    rows = torch.cartesian_prod(*[torch.arange(15)] * size)
    probability = p[rows].prod(dim=1) / size
    return Population(rows.flatten(), probability.repeat_interleave(size), size)


def pairs(sampler):
    return groups(sampler, 2)


def triples(sampler):
    return groups(sampler, 3)


class Scored(NamedTuple):
    """What a training step has at hand for a batch: log-probabilities, exact KL, prefix weights, mask."""

    policy: Tensor
    reference: Tensor
    kl: Tensor
    weights: Tensor
    mask: Tensor


def score(logits, population, sampler=None):
    """Score a population under the policy; the behavior is the policy itself unless a sampler is given."""
    rows = population.rows
    policy = TOY.token_logprobs(logits)[rows]
    behavior = policy.detach() if sampler is None else TOY.token_logprobs(sampler)[rows]
    kl = exact.kl(TOY.token_logits(logits), TOY.token_logits(REFERENCE))[rows]
    mask = TOY.response_mask[rows]
    weights = penalty.cumulative_weights(policy, behavior, mask)
    return Scored(policy, TOY.token_logprobs(REFERENCE)[rows], kl, weights, mask)


# The penalties that Kleash offers, from a scored population to one value a row.


def exact_sequence(s, group_size=1):
    return penalty.exact_sequence(s.kl, s.policy, s.weights, s.mask, group_size)


def exact_token(s, group_size=1):
    return penalty.exact_token(s.kl, s.mask)


def k1_reward_to_go(s, group_size=1):
    return penalty.k1_reward_to_go(s.policy, s.reference, s.weights, s.mask, group_size)


def k1_sequence(s, group_size=1):
    return penalty.k1_sequence(s.policy, s.reference, s.weights, s.mask, group_size)


def k1_loss(s, group_size=1):
    return penalty.estimator_token(estimators.k1(s.policy, s.reference), s.mask)


def k2_loss(s, group_size=1):
    return penalty.estimator_token(estimators.k2(s.policy, s.reference), s.mask)


def k3_loss(s, group_size=1):
    return penalty.estimator_token(estimators.k3(s.policy, s.reference), s.mask)


def k3_reward(s, group_size=1):
    return s.weights[:, -1] * k3_loss(s).detach()


def k3_reward_to_go(s, group_size=1):
    return penalty.k3_reward_to_go(s.policy, s.reference, s.weights, s.mask, group_size)


def gradient_at(value, logits=POLICY):
    """Gradient of a scalar function of the policy's logits, as a numpy table."""
    logits = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(logits), logits)
    return gradient.numpy()


def expected_gradient(surrogate, population=everyone, sampler=None):
    """Gradient of the expected surrogate at the toy's policy, samples drawn from the sampler."""
    batch = population(POLICY if sampler is None else sampler)
    return gradient_at(lambda x: batch.mean(surrogate(score(x, batch, sampler), batch.group_size)))


def total_variance(surrogate, population=everyone, logits=POLICY):
    """Trace of the covariance of the gradient of one group's mean, on-policy."""
    batch = population(logits)
    logits = logits.clone().requires_grad_()
    values = surrogate(score(logits, batch), batch.group_size).view(-1, batch.group_size).mean(dim=1)
    probability = batch.probability.view(-1, batch.group_size).sum(dim=1)

    # One backward pass a logit instead of one a group: J^T u is linear in u, and its derivative is J.
    u = torch.ones_like(values, requires_grad=True)
    (summed,) = torch.autograd.grad(values, logits, u, create_graph=True)
    columns = [torch.autograd.grad(entry, u, retain_graph=True)[0] for entry in summed.flatten()]
    each = torch.stack(columns, dim=1)
    return float(probability @ ((each - probability @ each) ** 2).sum(dim=1))


TRUE_GRADIENT = truth.reverse_kl_gradient(truth.POLICY, truth.REFERENCE)
