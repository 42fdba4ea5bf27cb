"""Training on a language that can be enumerated: the expected gradient is a sum, so where training ends is exact.

All 225 pairs of the 15 sequences stand for the groups of two samples, each weighted by its probability. Advantages,
policy loss and penalty are those of a run. The two best answers are paid the same, so that their odds show what a
reward leaves alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kleash.algorithms import rloo
from kleash.kl import exact, penalty
from kleash.kl.posterior import posterior
from kleash.testing import toy

TOY = toy()
STEPS = 4000
LONGEST_STEP = 10.0
EPSILON = 0.2


@dataclass(frozen=True)
class End:
    """Where training at a beta ended; KL in nats per sequence.

    Attributes:
        beta: price of drift, 0 for none.
        reward: E[r] under the policy.
        kl: KL(policy ‖ reference).
        from_posterior: KL(policy ‖ reference * exp(r / beta) / Z); None without a penalty, where there is none.
        entropy: of the policy over sequences.
        likeliest: probability of the likeliest sequence.
        share_of_best: probability of the two best answers together.
        odds: of one of the best answers to the other.
    """

    beta: float
    reward: float
    kl: float
    from_posterior: float | None
    entropy: float
    likeliest: float
    share_of_best: float
    odds: float


def rewards_with_two_best() -> tuple[Tensor, tuple[int, int]]:
    """Return the toy's rewards with the second best raised to the best, and which two sequences those are."""
    first, second = TOY.rewards.argsort(descending=True)[:2].tolist()
    rewards = TOY.rewards.clone()
    rewards[second] = rewards[first]
    return rewards, (first, second)


def train(beta: float, rewards: Tensor, steps: int = STEPS) -> Tensor:
    """Descend on the expected loss from the reference on; return log-probabilities of the sequences, [15].

    The step is inverse to beta, since the penalty is what bends the loss.
    """
    logits = TOY.reference_logits.clone()
    learning_rate = min(2.5 / beta, LONGEST_STEP) if beta else LONGEST_STEP
    for _ in range(steps):
        logits.requires_grad_()
        (gradient,) = torch.autograd.grad(_expected_loss(logits, rewards, beta), logits)
        logits = (logits - learning_rate * gradient).detach()
    return TOY.sequence_logprobs(logits)


def end_of_training(beta: float, steps: int = STEPS) -> End:
    """Train at a beta and measure where that ends."""
    rewards, (first, second) = rewards_with_two_best()
    reference = TOY.sequence_logprobs(TOY.reference_logits)
    logprobs = train(beta, rewards, steps)
    probabilities = logprobs.exp()
    best = posterior(reference, rewards, beta).logprobs if beta else None
    return End(
        beta=beta,
        reward=float(probabilities @ rewards),
        kl=float(probabilities @ (logprobs - reference)),
        from_posterior=None if best is None else float(probabilities @ (logprobs - best)),
        entropy=-float(probabilities @ logprobs),
        likeliest=float(probabilities.max()),
        share_of_best=float(probabilities[first] + probabilities[second]),
        odds=math.exp(float(logprobs[first] - logprobs[second])),
    )


def start() -> End:
    """Return the reference itself, as if it were where training ended."""
    return end_of_training(0.0, steps=0)


def _expected_loss(logits: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """RLOO's loss with the exact penalty, expected over all groups of two."""
    sequence = TOY.sequence_logprobs(logits).detach().exp()
    rows = torch.cartesian_prod(torch.arange(15), torch.arange(15))
    probability = sequence[rows].prod(dim=1).repeat_interleave(2) / 2
    paid = rewards[rows]
    advantages = rloo.advantages(paid, torch.ones_like(paid, dtype=torch.bool)).flatten()
    rows = rows.flatten()
    mask, policy = TOY.response_mask[rows], TOY.token_logprobs(logits)[rows]
    weights = penalty.cumulative_weights(policy, policy.detach(), mask)
    kl = exact.kl(TOY.token_logits(logits), TOY.token_logits(TOY.reference_logits))[rows]
    charged = penalty.exact_sequence(kl, policy, weights, mask, group_size=2)
    values = rloo.loss(policy, policy.detach(), advantages, mask, epsilon=EPSILON).values
    return probability @ (values + beta * charged)
