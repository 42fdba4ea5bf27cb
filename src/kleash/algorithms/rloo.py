"""RLOO: REINFORCE with a leave-one-out baseline.

Objective: E[r(y)] - beta KL(policy ‖ reference), per sequence. The gradient of the first term is the mean over
sequences of A_i sum_t grad log policy(y_t), A_i = r_i - mean of the prompt's other rewards. The KL enters as its own
term of the loss (`kleash.kl.penalty`), exact by default.

Source: Ahmadian et al. 2024, "Back to Basics", arXiv 2402.14740, section 2.2.

Differences from the paper and its codes:

1. The KL is not sampled (k1) and subtracted from the reward, but exact and in the loss; `estimator = "k1"`,
   `placement = "reward"` gives the paper's penalty.
2. The penalty never passes through the ratio's clip.
3. Samples without a score are left out of the baseline.

On the demo: reward from about 0.1 to 0.7 in 45 steps with the KL held at 6 nats per sequence.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from kleash.ops.advantages import leave_one_out
from kleash.ops.policy_losses import PolicyLoss, clipped_sequence_ratio


def advantages(rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Reward minus the mean of the other samples of the prompt, in reward units."""
    return leave_one_out(rewards, scored)


def loss(
    policy_logprobs: Float[Tensor, "B T"],
    behavior_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"],
    response_mask: Bool[Tensor, "B T"],
    *,
    epsilon: float,
) -> PolicyLoss:
    """One value a sequence; divide the sum by the number of sequences."""
    return clipped_sequence_ratio(policy_logprobs, behavior_logprobs, advantages, response_mask, epsilon)
