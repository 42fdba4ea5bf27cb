"""GRPO: group-relative policy optimisation, and the variants known as Dr. GRPO and DAPO.

Objective: E[r(y)] - beta KL(policy ‖ reference). The gradient of the first term is estimated by token ratios clipped
to [1 - epsilon, 1 + epsilon_high], with the advantage of a reply relative to its group. The KL is its own term of the
loss (`kleash.kl.penalty`).

| variant | scale_rewards | loss_normalization | epsilon_high |
|---|---|---|---|
| GRPO (DeepSeekMath, arXiv 2402.03300) | group | sequence | 0.2 |
| Dr. GRPO (arXiv 2503.20783) | none | constant | 0.2 |
| DAPO (arXiv 2503.14476) | group | token | 0.28 |

Differences from the papers and their codes:

1. The default penalty is the exact KL per sequence; DeepSeekMath's is k3 per token in the loss, whose gradient is that
   of the forward KL. `estimator = "k3"`, `scope = "token"` gives it back.
2. The penalty is never divided by a reply's length or by the group's spread. The normaliser of the policy term is made
   a constant of the batch that keeps beta in reward per nat (`token_weights`).
3. Samples without a score are left out of the group's mean and spread.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kleash.ops.advantages import centered, standardized
from kleash.ops.policy_losses import PolicyLoss, clipped_token_ratio

Normalization = Literal["sequence", "token", "constant"]


def advantages(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Reward minus the group's mean, in reward units (`scale_rewards = "none"`)."""
    return centered(rewards, scored)


def scaled_advantages(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Reward minus the group's mean, in units of the group's spread (`scale_rewards = "group"`)."""
    return standardized(rewards, scored)


def loss(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"],
    response_mask: Bool[Tensor, "B T"],
    *,
    epsilon_low: float,
    epsilon_high: float,
) -> PolicyLoss:
    """One value a token, 0 outside the mask; weigh with `token_weights` and divide by the number of sequences."""
    by_row = advantages[:, None]
    return clipped_token_ratio(policy_logprobs, behavior_logprobs, by_row, response_mask, epsilon_low, epsilon_high)


def token_weights(lengths: Int[Tensor, " B"], mean_length: float, normalization: Normalization) -> Float[Tensor, " B"]:
    """Weight of each token of a row, 1 on average, so that the policy term keeps the scale of the penalty.

    `constant` and `token` weigh every token alike: they differ from the papers by a constant of the batch, which the
    optimiser's normalisation takes out. `sequence` gives each reply the same say whatever its length: a token of a
    long reply counts less.

    Args:
        lengths: response tokens of each row.
        mean_length: of the whole update, over all micro-batches and processes.
        normalization: which of the three.
    """
    if normalization == "sequence":
        return mean_length / lengths.clamp(min=1)
    return torch.ones_like(lengths, dtype=torch.float32)
