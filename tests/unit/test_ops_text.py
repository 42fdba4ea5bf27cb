import doctest

import pytest

from kleash.ops import text
from kleash.ops.text import distinct_n, repeated_ngram_share, token_class


def test_docstring_examples():
    assert doctest.testmod(text).failed == 0


@pytest.mark.parametrize(
    ("sequences", "n", "expected"),
    [
        ([[1, 2, 3, 4]], 1, 1.0),
        ([[1, 1, 1, 1]], 1, 0.25),
        ([[1, 1, 1, 1]], 2, 1 / 3),
        ([[1, 2], [1, 2]], 1, 0.5),  # repetition between sequences counts
        ([[1, 2], [3, 4]], 2, 1.0),  # and (2, 3) is no bigram
        ([[1, 2, 3], [1]], 3, 1.0),
        ([[1], []], 2, 0.0),
        ([], 1, 0.0),
    ],
)
def test_distinct_n(sequences, n, expected):
    assert distinct_n(sequences, n) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("sequences", "n", "expected"),
    [
        ([[1, 2, 3, 4]], 1, 0.0),
        ([[1, 1, 1, 1]], 1, 0.75),
        ([[1, 2, 3, 1, 2, 3]], 2, 2 / 5),
        ([[1, 2], [1, 2]], 1, 0.0),  # repetition between sequences does not count
        ([[1, 1, 1], [1, 2, 3, 4, 5, 6, 7]], 1, 0.2),  # pooled: the mean of shares would be 1/3
        ([[1], []], 2, 0.0),
        ([], 4, 0.0),
    ],
)
def test_repeated_ngram_share(sequences, n, expected):
    assert repeated_ngram_share(sequences, n) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("share", [distinct_n, repeated_ngram_share])
def test_n_below_one_is_refused(share):
    with pytest.raises(ValueError, match="n = 0: an n-gram has at least 1 token"):
        share([[1, 2]], 0)


@pytest.mark.parametrize(
    ("token_text", "expected"),
    [
        (" \n\t", "whitespace"),
        ("", "whitespace"),
        (" the", "word"),
        ("\u00e9", "word"),
        ("\u4f60", "word"),
        ("\u0301", "word"),
        ("n't", "word"),
        ("x2", "word"),
        ("\ufffd", "word"),
        (" 12", "digit"),
        ("3.", "digit"),
        ("\u0665", "digit"),
        ("...", "punctuation"),
        ("+=", "punctuation"),
        ("\U0001f600", "punctuation"),
        ("<|im_end|>", "word"),
    ],
)
def test_token_class_of_ordinary_tokens(token_text, expected):
    assert token_class(token_text, is_special=False, is_stop=False) == expected


def test_stop_goes_before_special_and_special_before_text():
    assert token_class("<|im_end|>", is_special=True, is_stop=True) == "stop"
    assert token_class(".", is_special=False, is_stop=True) == "stop"
    assert token_class("<|im_start|>", is_special=True, is_stop=False) == "special"
