from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kleash.data.packing import chunk_documents, pack
from kleash.errors import DataError


def first_fit_decreasing(lengths, capacity):
    """The definition, row by row."""
    rows = []
    for length, index in sorted((-length, index) for index, length in enumerate(lengths)):
        fitting = [row for row in rows if sum(lengths[other] for other in row) - length <= capacity]
        if not fitting:
            rows.append([])
        (fitting or rows[-1:])[0].append(index)
    return rows


@given(st.lists(st.integers(1, 20), max_size=40), st.integers(20, 50))
def test_packing_is_first_fit_decreasing(lengths, capacity):
    rows = pack(lengths, capacity)
    assert rows == first_fit_decreasing(lengths, capacity)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= capacity for row in rows)
    assert len(rows) >= ceil(sum(lengths) / capacity)


def test_documents_of_half_a_row_pair_up_in_their_order():
    assert pack([4, 4, 4, 4, 4], capacity=8) == [[0, 1], [2, 3], [4]]


def test_many_documents_are_packed_in_no_time():
    lengths = [1 + index * 7919 % 500 for index in range(20_000)]
    assert len(pack(lengths, 512)) <= 1.03 * sum(lengths) / 512


@pytest.mark.parametrize("length", [0, 9])
def test_a_document_that_fits_no_row(length):
    with pytest.raises(ValueError, match=rf"^document 1 has {length} tokens: each needs 1 to 8, and none is cut$"):
        pack([8, length], capacity=8)


@given(st.lists(st.lists(st.integers(1, 9), max_size=7), max_size=12), st.integers(1, 12))
def test_chunks_are_the_joined_documents(documents, capacity):
    joined = " 0 ".join(" ".join(map(str, document)) for document in documents if document)
    stream = [int(token) for token in joined.split()]
    if len(stream) < capacity:
        with pytest.raises(DataError) as caught:
            chunk_documents(documents, capacity, separator=0)
        assert str(caught.value) == (
            f"The text has {len(stream)} tokens, too few for one row of {capacity}. Give more text, or shorten"
            " the rows."
        )
        return
    rows, dropped = chunk_documents(iter(documents), capacity, separator=0)
    assert {len(row) for row in rows} == {capacity}
    flat = [token for row in rows for token in row]
    assert flat == stream[: len(flat)]
    assert dropped == len(stream) - len(flat) < capacity


def test_rows_hold_something():
    with pytest.raises(ValueError, match="capacity is 0: a row holds at least 1 token"):
        chunk_documents([[1]], 0, separator=0)
