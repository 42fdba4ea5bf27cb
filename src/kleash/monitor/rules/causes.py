"""Causes that several rules name, in one wording.

Each says what may be wrong and what to look at to tell: in words of any trainer, with Kleash's setting in brackets.
"""

from __future__ import annotations

from kleash.runs.records import Cause

LOOSE = Cause(
    "the leash is too loose for what the reward pays",
    "beta (control/beta): at its floor, or fixed at a value that the reward outbids? Then raise it, or hold a target "
    "(in Kleash: algorithm.kl.target_nats_per_sequence)",
)
EXPLOIT = Cause(
    "the policy has found what the reward likes and people do not",
    "the samples with the highest reward of the newest step, beside the first step's for the same prompts",
)
TOO_FAST = Cause(
    "the learning rate is too high for this batch",
    "the learning rate (in Kleash: training.learning_rate), and optim/grad_norm around the step in which it began",
)
SHIFTED = Cause("the reward or the prompts changed", "reward functions and data at that step")
MISMATCH = Cause(
    "the sampler's probabilities are not the scorer's: another dtype, kernel, temperature or stale weights",
    "sampler/mismatch_mean, and one batch scored by both",
)
REFERENCE = Cause(
    "the reference is not the model that training started from", "the reference's name, revision, dtype and adapter"
)
