"""Several documents in one row, each blind to its neighbours: no padding between them, and no attention either.

Position ids begin again at 0 with every document, by which transformers tells documents of a row apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kleash.models.scoring import logits_scale

Document = tuple[Sequence[int], Sequence[int]]
"""Tokens that are read, and tokens behind them that are predicted."""


@dataclass(frozen=True)
class PackedBatch:
    """Rows of whole documents, the rest of each row filled with padding that nothing looks at."""

    input_ids: Int[Tensor, "B S"]
    position_ids: Int[Tensor, "B S"]
    predicts_completion: Bool[Tensor, "B S"]
    """True at the position before each completion token: N of them."""
    targets: Int[Tensor, " N"]
    """The completion tokens, row by row and document by document."""


def side_by_side(
    documents: Sequence[Document], rows: Sequence[Sequence[int]], padding: tuple[int, torch.device]
) -> PackedBatch:
    """Lay documents out in rows of their indices; a document's first part must have a token.

    Args:
        documents: all of them.
        rows: the indices of each row's documents, in order.
        padding: the id that fills a row, and the device.
    """
    pad, device = padding
    width = max(sum(len(documents[i][0]) + len(documents[i][1]) for i in row) for row in rows)
    ids: list[list[int]] = []
    positions: list[list[int]] = []
    predicts: list[list[bool]] = []
    targets: list[int] = []
    for row in rows:
        tokens: list[int] = []
        place: list[int] = []
        marked: list[bool] = []
        for i in row:
            read, predicted = documents[i]
            if not read:
                raise ValueError(f"document {i} has nothing before its completion: nothing predicts the first token")
            tokens += [*read, *predicted]
            place += range(len(read) + len(predicted))
            marked += [False] * (len(read) - 1) + [True] * len(predicted) + [False]
            targets += predicted
        rest = width - len(tokens)
        ids.append(tokens + [pad] * rest)
        positions.append(place + list(range(rest)))
        predicts.append(marked + [False] * rest)
    return PackedBatch(
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        torch.tensor(predicts, device=device),
        torch.tensor(targets, device=device, dtype=torch.long),
    )


def packed_hidden(causal_lm: Any, batch: PackedBatch) -> Float[Tensor, "N H"]:
    """Last hidden states that predict the completion tokens, scaled so that hidden @ head.T are the logits.

    Gradient: to whatever of the model is trainable.
    """
    states: Tensor = causal_lm.base_model(
        input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False
    ).last_hidden_state
    hidden = states[batch.predicts_completion]
    scale = logits_scale(causal_lm.config)
    return hidden if scale == 1.0 else hidden * scale
