"""How texts of different lengths fill rows of equal size: whole documents side by side, or one stream cut up.

Lengths and capacities are in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kleash.errors import DataError


class Chunks(NamedTuple):
    """Language-model rows, each of exactly the capacity, and the tokens at the end that filled no further row."""

    rows: list[list[int]]
    dropped_tokens: int


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Put documents into rows of at most `capacity` tokens, by first-fit decreasing; none is cut.

    Documents are taken from the longest to the shortest, equal ones in their order, and each goes into the first row
    that has room. The number of rows is at most 11/9 of the fewest possible, plus 6/9. Takes O(n log n) steps.

    Args:
        lengths: each document's tokens.
        capacity: tokens a row.

    Returns:
        The documents' indices, row by row. Every index is in exactly one row. No documents, no rows.

    Raises:
        ValueError: a document longer than a row, or one without tokens.

    Reference: Johnson 1973; the bound is Dosa 2007, doi.org/10.1007/978-3-540-74450-4_1.

    Example:
        >>> pack([3, 6, 4, 2], capacity=8)
        [[1, 3], [2, 0]]
    """
    for index, length in enumerate(lengths):
        if not 1 <= length <= capacity:
            raise ValueError(f"document {index} has {length} tokens: each needs 1 to {capacity}, and none is cut")
    rows: list[list[int]] = []
    room = _Room(len(lengths), capacity)
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = room.take(lengths[index])
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
    return rows


def chunk_documents(documents: Iterable[Sequence[int]], capacity: int, separator: int) -> Chunks:
    """Join documents by a separator and cut the stream into rows of exactly `capacity` tokens.

    Args:
        documents: each document's token ids; those without any are passed over.
        capacity: tokens a row.
        separator: the token between two documents, usually the one that ends a text.

    Returns:
        The rows, and how many tokens at the end of the stream were too few for another.

    Raises:
        ValueError: a capacity below 1.
        DataError: too few tokens for a single row.

    Example:
        >>> chunk_documents([[1, 2, 3], [4, 5]], capacity=2, separator=0)
        Chunks(rows=[[1, 2], [3, 0], [4, 5]], dropped_tokens=0)
    """
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}: a row holds at least 1 token")
    rows: list[list[int]] = []
    stream: list[int] = []
    for document in documents:
        if document:
            between = [separator] if rows or stream else []
            stream += [*between, *document]
        full = len(stream) // capacity * capacity
        rows += [stream[start : start + capacity] for start in range(0, full, capacity)]
        del stream[:full]
    if not rows:
        raise DataError(
            f"The text has {len(stream)} tokens, too few for one row of {capacity}. Give more text, or shorten the"
            " rows."
        )
    return Chunks(rows, len(stream))


class _Room:
    """The free tokens of rows 0, 1, ..., as a tree of maxima: the first row with room is found in log n steps."""

    def __init__(self, num_rows: int, capacity: int) -> None:
        self._num_leaves = 1 << max(num_rows - 1, 0).bit_length()
        self._most = [capacity] * (2 * self._num_leaves)

    def take(self, tokens: int) -> int:
        """Take `tokens` from the first row that has them, and return which row that is."""
        node = 1
        while node < self._num_leaves:
            node *= 2
            if self._most[node] < tokens:
                node += 1
        row = node - self._num_leaves
        self._most[node] -= tokens
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])
        return row
