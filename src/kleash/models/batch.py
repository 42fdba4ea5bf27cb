"""Prompts and responses as one right-padded batch, with the positions that predict the response.

Axes: B sequences, S prompt + response positions, T response positions, N response tokens of the batch, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from kleash.ops.masks import lengths_to_mask


@dataclass(frozen=True)
class TokenBatch:
    """What a model needs to score responses.

    `attention_mask` is None when no row is padded: attention is then plainly causal, and faster.
    """

    input_ids: Int[Tensor, "B S"]
    attention_mask: Bool[Tensor, "B S"] | None
    predicts_response: Bool[Tensor, "B S"]
    """True at the position before each response token: N of them."""
    targets: Int[Tensor, " N"]
    """The response tokens, row by row."""
    response_mask: Bool[Tensor, "B T"]
    """True where a token belongs to the response, stop token included."""


def collate(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    pad: int,
    device: torch.device,
) -> TokenBatch:
    """Lay prompt + response out in rows, padded on the right with `pad` (which may equal a stop token).

    An empty response is allowed: its row predicts nothing. An empty prompt is not: nothing would predict the first
    token (ValueError).
    """
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError("a prompt has no tokens: nothing predicts the first token of its response")
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    width = max(len(row) for row in rows)
    tokens = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=device)
    starts = torch.tensor([len(prompt) for prompt in prompts], device=device)
    lengths = torch.tensor([len(response) for response in responses], device=device)
    position = torch.arange(width, device=device)[None, :]
    real = position < (starts + lengths)[:, None]
    predicts = (position >= starts[:, None] - 1) & (position < (starts + lengths)[:, None] - 1)
    longest = max(len(response) for response in responses)
    return TokenBatch(
        input_ids=tokens,
        attention_mask=None if all(len(row) == width for row in rows) else real,
        predicts_response=predicts,
        targets=tokens[:, 1:][predicts[:, :-1]],
        response_mask=lengths_to_mask(lengths, longest),
    )
