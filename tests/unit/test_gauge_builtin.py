"""The built-in prompts, which column is read, and how prompts become tokens."""

from collections import Counter
from itertools import islice

import pytest

from kleash.errors import DataError
from kleash.gauge.builtin import prompts, texts


class Bytes:
    """A tokenizer of bytes behind a begin-of-text token."""

    max_context = 8

    def encode(self, text):
        return [256, *text.encode()]


def test_there_are_100_built_in_prompts_in_seven_categories_that_take_turns():
    found = prompts(None, column=None, limit=None)
    counts = Counter(prompt.columns["category"] for prompt in found)
    assert len({prompt.text for prompt in found}) == 100
    assert set(counts) == {"chat", "facts", "arithmetic", "code", "story", "refusal", "languages"}
    assert min(counts.values()) >= 10
    assert len({prompt.columns["category"] for prompt in islice(found, 7)}) == 7
    assert prompts(None, column=None, limit=3) == found[:3]


def test_prompts_are_read_from_prompt_or_else_from_messages():
    messages = [{"role": "user", "content": "hello"}]
    assert prompts([{"prompt": "a", "messages": messages}], column=None, limit=None)[0].text == "a"
    assert prompts([{"messages": messages}], column=None, limit=None)[0].messages == tuple(messages)
    assert prompts([{"q": "a"}], column="q", limit=None)[0].text == "a"
    with pytest.raises(DataError, match="has no column 'prompt'"):
        prompts([{"q": "a"}], column=None, limit=None)


def test_an_iterator_of_prompts_loses_none():
    assert [prompt.text for prompt in prompts(iter(["a", "b"]), column=None, limit=None)] == ["a", "b"]


def test_texts_are_read_from_text_or_else_from_prompt_and_cut_at_the_context():
    assert texts([{"text": "ab"}, {"text": "c"}], Bytes(), column=None, limit=None) == [[[256, 97, 98]], [[256, 99]]]
    assert texts(["ab"], Bytes(), column=None, limit=None) == [[[256, 97, 98]]]
    assert texts([{"x": "ab"}] * 3, Bytes(), column="x", limit=2) == [[[256, 97, 98]]] * 2
    (pieces,) = texts(["x" * 17], Bytes(), column=None, limit=None)
    assert [len(piece) for piece in pieces] == [8, 8, 2]


def test_a_last_piece_of_one_token_has_nothing_to_predict():
    (pieces,) = texts(["x" * 8], Bytes(), column=None, limit=None)
    assert [len(piece) for piece in pieces] == [8]


def test_a_text_file_has_one_text_a_line(tmp_path):
    (tmp_path / "t.txt").write_text("ab\nc\n")
    assert texts(tmp_path / "t.txt", Bytes(), column=None, limit=None) == [[[256, 97, 98]], [[256, 99]]]
    with pytest.raises(DataError, match=r"t\.txt:1 has no column 'body'"):
        texts(tmp_path / "t.txt", Bytes(), column="body", limit=None)
