"""An enumerable toy language model: check your own loss against the exact answer, without sampling noise.

The vocabulary has three tokens, token 2 ends a sequence, and no sequence is longer than three: 15 sequences
of length 1, 2 or 3, over 7 prefixes. A model is a table of logits [7, 3], one row a prefix, so an expectation
is a sum of 15 terms and a gradient has 21 numbers. Lengths vary, which exposes wrong masks and averages.

The expectation of a batch loss, and of its gradient, is the loss of a batch of all 15 sequences in which each
is weighted by its (detached) probability under the distribution that sampled it:

    >>> model = toy()
    >>> policy = model.policy_logits.clone().requires_grad_()
    >>> sampled = model.sequence_logprobs(policy).detach().exp()
    >>> log_ratio = model.token_logprobs(policy) - model.token_logprobs(model.reference_logits)
    >>> print(f"{(sampled @ log_ratio.sum(-1)).item():.10f} nats per sequence")
    0.1215104888 nats per sequence

Everything is float64. Axes: 15 sequences, 7 prefixes, T = 3 positions, V = 3 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

VOCABULARY_SIZE = 3
HORIZON = 3
EOS = 2


@dataclass(frozen=True, eq=False)
class Toy:
    """Three models of one enumerable language, a reward, and the index tables that batch-shaped code needs.

    Sequences are in depth-first order (0 0 0, 0 0 1, 0 0 2, 0 1 0, ... 1 2, 2); prefixes are in the order
    (), (0), (1), (0 0), (0 1), (1 0), (1 1).

    Attributes:
        reference_logits: the frozen model, one row of next-token logits a prefix.
        policy_logits: the model being trained; clone it and call `requires_grad_` on the clone.
        behavior_logits: another sampler, for off-policy checks.
        rewards: the reward of each sequence, between -1 and 1.
        tokens: the sequences, right-padded with EOS.
        response_mask: True where a token belongs to the sequence, EOS included.
        prefix_index: the row of the logit tables from which each token is drawn; 0 where masked.
    """

    reference_logits: Float64[Tensor, "7 3"]
    policy_logits: Float64[Tensor, "7 3"]
    behavior_logits: Float64[Tensor, "7 3"]
    rewards: Float64[Tensor, " 15"]
    tokens: Int64[Tensor, "15 3"]
    response_mask: Bool[Tensor, "15 3"]
    prefix_index: Int64[Tensor, "15 3"]

    def token_logits(self, logits: Float64[Tensor, "7 3"]) -> Float64[Tensor, "15 3 3"]:
        """Return the next-token logits at every position: what a language model's forward pass returns.

        Gradient: to `logits`. Masked positions hold the row of the empty prefix: finite, and meaningless.
        """
        return logits[self.prefix_index]

    def token_logprobs(self, logits: Float64[Tensor, "7 3"]) -> Float64[Tensor, "15 3"]:
        """Return each token's log-probability in nats, 0 where masked. Gradient: to `logits`."""
        logprobs = self.token_logits(logits).log_softmax(-1)
        chosen = logprobs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)
        return chosen.masked_fill(~self.response_mask, 0.0)

    def sequence_logprobs(self, logits: Float64[Tensor, "7 3"]) -> Float64[Tensor, " 15"]:
        """Return each sequence's log-probability in nats. Gradient: to `logits`."""
        return self.token_logprobs(logits).sum(-1)


def toy() -> Toy:
    """Build the toy: KL(policy || reference) = 0.1215104888 and the reverse 0.1280400021 nats per sequence.

    With i = 3 c + v for prefix c and token v, and j the index of the sequence:

        reference = 0.7 sin(1.3 i + 0.5)    policy = reference + 0.9 cos(0.7 i + 0.2)
        behavior = policy + 0.4 sin(1.1 i + 0.3)    rewards = sin(2.1 j + 0.4)
    """
    sequences = _sequences()
    prefixes = _prefixes()
    rows = [row + (EOS,) * (HORIZON - len(row)) for row in sequences]
    mask = [[t < len(row) for t in range(HORIZON)] for row in sequences]
    visited = [[prefixes.index(row[:t]) if t < len(row) else 0 for t in range(HORIZON)] for row in sequences]

    i = torch.arange(len(prefixes) * VOCABULARY_SIZE, dtype=torch.float64).view(-1, VOCABULARY_SIZE)
    j = torch.arange(len(sequences), dtype=torch.float64)
    reference = 0.7 * torch.sin(1.3 * i + 0.5)
    policy = reference + 0.9 * torch.cos(0.7 * i + 0.2)
    return Toy(
        reference_logits=reference,
        policy_logits=policy,
        behavior_logits=policy + 0.4 * torch.sin(1.1 * i + 0.3),
        rewards=torch.sin(2.1 * j + 0.4),
        tokens=torch.tensor(rows),
        response_mask=torch.tensor(mask),
        prefix_index=torch.tensor(visited),
    )


def _prefixes() -> list[tuple[int, ...]]:
    """Every unfinished prefix, shorter ones first."""
    prefixes: list[tuple[int, ...]] = [()]
    for prefix in prefixes:
        if len(prefix) < HORIZON - 1:
            prefixes += [(*prefix, token) for token in range(VOCABULARY_SIZE) if token != EOS]
    return prefixes


def _sequences(prefix: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Every finished sequence that begins with `prefix`, depth first."""
    if len(prefix) == HORIZON or prefix[-1:] == (EOS,):
        return [prefix]
    return [row for token in range(VOCABULARY_SIZE) for row in _sequences((*prefix, token))]
