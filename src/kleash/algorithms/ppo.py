"""PPO: a critic gives each token its own advantage, and token ratios are clipped.

Objective: E[r(y)] - beta KL(policy ‖ reference), per sequence. The gradient of the first term is estimated by token
ratios clipped to [1 - epsilon, 1 + epsilon] times A_t, generalised advantages against a critic V. The KL enters in one
of two ways:

| penalty | rewards of the tokens | the critic learns |
|---|---|---|
| exact, its own term of the loss (`kleash.kl.penalty`); the default | `token_rewards` | the reward to expect |
| k1 in the reward, as InstructGPT has it | `token_rewards_with_k1` | that less beta times the drift to come |

Source: Schulman et al. 2017, arXiv 1707.06347, equations 7 and 11; Ouyang et al. 2022 (InstructGPT), arXiv 2203.02155,
equation 2, for the reward of a token. Pretraining's term of that equation is not here: it is a loss of its own.

Differences from the papers and their codes:

1. The default penalty is the exact KL in the loss, with its true gradient: it is not clipped, and no error of the
   critic reaches it.
2. Advantages are not whitened here: `kleash.ops.whitening` has each way by name, and what it does to beta.
3. The critic's clipped loss is OpenAI's, not the paper's squared error; its share of the loss is the caller's.
4. There is no entropy bonus. The KL is what keeps the policy from collapsing.
5. A reply that the length limit cut ends there: its last token has the reward, and no value after it.

On the enumerable toy: with lambda 1 the first update on fresh samples follows the gradient of the objective for any
critic; with a smaller lambda only for a critic that is right.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.ops.gae import generalized_advantages
from kleash.ops.policy_losses import PolicyLoss, clipped_token_ratio
from kleash.ops.value_losses import ValueLoss, clipped_value_loss


def token_rewards(rewards: Float[Tensor, " B"], response_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The reward of each reply at its last token, 0 elsewhere.

    Unit: that of the reward. A row without tokens has no place for its reward. Leave replies without a score out of
    the mask, here and below.
    """
    later = response_mask.flip(1).cumsum(dim=1).flip(1)
    return torch.where(response_mask & (later == 1), rewards[:, None], 0.0)


def token_rewards_with_k1(
    rewards: Float[Tensor, " B"], k1: Float[Tensor, "B T"], beta: float, response_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """`token_rewards` less beta * k1 at every token: summed over a reply, r(y) - beta log(policy(y) / reference(y)).

    Unit: that of the reward. Gradient: none; k1 is a constant.

    Args:
        rewards: one a reply.
        k1: log policy - log reference of each token, of the policy that sampled it, in nats.
        beta: reward given up per nat.
        response_mask: True where a token belongs to the response.
    """
    return token_rewards(rewards, response_mask) - torch.where(response_mask, beta * k1.detach(), 0.0)


def advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    *,
    discount: float,
    trace: float,
) -> Float[Tensor, "B T"]:
    """What each token did better than the critic expected, in reward units; `kleash.ops.gae.returns` trains the critic.

    Args:
        rewards: of each token, from `token_rewards` or `token_rewards_with_k1`.
        values: the critic's value before each token, when the samples were scored.
        response_mask: True where a token belongs to the response.
        discount: of later rewards; 1 keeps the objective.
        trace: lambda; 1 trusts the critic only as a baseline.
    """
    return generalized_advantages(rewards, values, response_mask, discount=discount, trace=trace)


def loss(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    *,
    epsilon: float,
) -> PolicyLoss:
    """One value a token, 0 outside the mask; divide the sum by the number of sequences, as the penalty is."""
    return clipped_token_ratio(policy_logprobs, behavior_logprobs, advantages, response_mask, epsilon, epsilon)


def value_loss(
    values: Float[Tensor, "B T"],
    behavior_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    response_mask: Bool[Tensor, "B T"],
    *,
    epsilon: float,
) -> ValueLoss:
    """The critic's loss: one value a token, 0 outside the mask; divide the sum by the number of tokens."""
    return clipped_value_loss(values, behavior_values, returns, response_mask, epsilon)
