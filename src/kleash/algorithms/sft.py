"""SFT: supervised fine-tuning on demonstrations, the reference that later runs start from.

Objective: maximise the log-probability of the demonstrated answers' tokens, each token counting alike: the minimum is
where the model's next-token distributions are those of the demonstrations, so it is also the least
KL(demonstrations ‖ policy). There is no KL to a reference.

Source: maximum likelihood; Ouyang et al. 2022 (InstructGPT), arXiv 2203.02155, section 3.5.

Differences from common codes:

1. The loss is a sum and a count, reduced over the whole update before one is divided by the other. A mean of the means
   of micro-batches counts the tokens of short answers more, and changes with how the update is cut.
2. Only the answer's tokens count, its stop token included; the prompt is not learned.

The starting loss of a model that knows nothing is log V nats per token.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class TokenLoss(NamedTuple):
    """`total` over the tokens, in nats, and how many `tokens` there were: add both up, then divide."""

    total: Float[Tensor, ""]
    tokens: Int[Tensor, ""]


def loss(logprobs: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> TokenLoss:
    """Minus the log-probability of all answer tokens, and their number.

    total / tokens is the mean loss in nats per token, and its exponential the perplexity. Sign: >= 0. Gradient: -1 to
    each counted log-probability. Empty mask: 0 of 0 tokens, and one can still call backward on it.

    Args:
        logprobs: of each token under the policy, in rows or flat.
        mask: True where a token belongs to an answer.

    Example:
        >>> loss(torch.tensor([0.5, 0.25, 0.1]).log(), torch.tensor([True, True, False]))
        TokenLoss(total=tensor(2.0794), tokens=tensor(2))
    """
    return TokenLoss(-torch.where(mask, logprobs, 0.0).sum(), mask.sum())
