"""Logits of many tokens, a chunk at a time: what lets a head be applied to `[N, H]` without holding `[N, V]`.

A chunk is one matrix product. It is read block by block in float32 or wider, and on a CPU a block fits the cache, so
that only the product itself travels to memory and back.

Axes: N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK_BYTES = 50_000_000
"""Size of one `[chunk, V]` buffer, if it were float32; two, in the dtype of the head, are most of the extra memory."""
KEEP_BYTES = 200_000_000
"""Logits that are together at most this large are kept from forward, not made again in backward."""
CACHE_BYTES = 3_200_000
"""On a CPU, size of one float32 `[block, V]` buffer: four of these stay in its cache from one pass to the next."""


def rows_at_once(head: Float[Tensor, "V H"], temperature: float, chunk_size: int | None) -> int:
    """Tokens held as logits at once: `chunk_size`, or by default what fits `CHUNK_BYTES`.

    Raises:
        ValueError: temperature is not positive, so that the logits would have no log-probabilities.
    """
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: greedy sampling has no log-probabilities")
    return chunk_size or max(1, CHUNK_BYTES // (4 * head.shape[0]))


def cut(start: int, stop: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that follow one another from `start` to `stop`."""
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


class ChunkedLogits:
    """Logits of a chunk in the dtype of the head; block by block in float32 (or float64), divided by the temperature.

    With `kept`, the product of all tokens is there already.
    """

    def __init__(self, head: Tensor, rows: int, temperature: float, kept: Tensor | None = None) -> None:
        """Make room for the logits of `rows` tokens; `head` is `[V, H]`."""
        self.head, self.temperature, self.kept, self.start = head.T, temperature, kept, 0
        self.product = head.new_empty(rows, head.shape[0]) if kept is None else kept
        fitting = max(1, CACHE_BYTES // (4 * head.shape[0])) if head.device.type == "cpu" else rows
        self.block = min(fitting, rows)
        self.wide = self.scratch()

    def scratch(self) -> Tensor:
        """A buffer for one block."""
        dtype = torch.promote_types(self.product.dtype, torch.float32)
        return self.product.new_empty(self.block, self.product.shape[1], dtype=dtype)

    def multiply(self, hidden: Tensor, chunk: slice) -> None:
        """Make the logits of `hidden[chunk]`: beside those before, if the buffer has room for all, else over them."""
        if self.kept is None:
            self.start = 0 if len(self.product) >= len(hidden) else chunk.start
            torch.mm(hidden[chunk], self.head, out=self.narrow(chunk))

    def narrow(self, part: slice) -> Tensor:
        """Rows `part`, counted as in `hidden`, of the product."""
        return self.product[part.start - self.start : part.stop - self.start]

    def __getitem__(self, part: slice) -> Tensor:
        """Logits of a block of rows, in a buffer that the next block overwrites."""
        logits = self.wide[: part.stop - part.start].copy_(self.narrow(part))
        return logits if self.temperature == 1.0 else logits.div_(self.temperature)
