"""Which tokenizers are one vocabulary, and over which rows a KL runs."""

from types import SimpleNamespace

import pytest

from kleash.errors import ModelError
from kleash.gauge.vocabulary import check_tokenizers, shared, shared_rows
from kleash.models.tokenizer import Tokenizer

WORDS = {"a": 0, "b": 1, "c": 2}


def tokenizer(vocabulary, name="reference", *, pad="<pad>", stops=(2,), context=100, template=None):
    inner = SimpleNamespace(get_vocab=lambda: vocabulary, pad_token=pad, chat_template=template)
    return Tokenizer(inner, name, context, stops, 0)


def refused(ours, theirs, rows=100):
    with pytest.raises(ModelError) as caught:
        check_tokenizers(tokenizer(ours), rows, tokenizer(theirs, "tuned"), rows)
    return str(caught.value)


def test_equal_tokenizers_pass_and_so_does_a_padding_token_of_one():
    check_tokenizers(tokenizer(WORDS), 3, tokenizer(WORDS), 3)
    padded = {**WORDS, "<pad>": 3}
    check_tokenizers(tokenizer(WORDS), 3, tokenizer(padded), 4)
    check_tokenizers(tokenizer(padded), 4, tokenizer(WORDS), 3)


def test_tokens_beyond_the_output_layer_do_not_count():
    more = {**WORDS, "<extra>": 3}
    check_tokenizers(tokenizer(WORDS), 3, tokenizer(more), 3)
    assert "<extra>" in refused(WORDS, more, rows=4)


def test_what_differs_is_named():
    assert "2 tokens have other ids (as 0 and 1) ('a', 'b')" in refused(WORDS, {"a": 1, "b": 0, "c": 2})
    assert "1 token only reference has ('c'); 1 token only tuned has ('d')" in refused(WORDS, {"a": 0, "b": 1, "d": 2})
    many = {**WORDS, **{f"t{i}": 3 + i for i in range(9)}}
    assert "9 tokens only tuned has ('t0', 't1', 't2', ...)" in refused(WORDS, many)


def test_both_models_stop_where_either_would_and_keep_to_the_shorter_context():
    one = tokenizer(WORDS, stops=(2,), context=50, template="x")
    other = tokenizer(WORDS, "tuned", stops=(1, 2), context=40, template="y")
    both = shared(one, other)
    assert (both.name, both.stop_ids, both.max_context) == ("reference", (2, 1), 40)


def test_the_template_is_the_references_or_else_the_tuned_models():
    bare, chatty = tokenizer(WORDS), tokenizer(WORDS, "tuned", template="y")
    assert shared(bare, chatty).name == "tuned"
    assert shared(chatty, bare).name == "tuned"
    assert shared(bare, bare).name == "reference"


def test_rows_are_those_of_the_smaller_head_if_it_holds_every_token():
    assert shared_rows(tokenizer(WORDS), 3, 3) == (3, None)
    rows, note = shared_rows(tokenizer(WORDS), 64, 4)
    assert rows == 4
    assert "64 (reference) and 4 (tuned) rows" in note
    assert "over the first 4 rows" in note
    with pytest.raises(ModelError, match="2 rows cannot hold the 3 tokens of 'reference'"):
        shared_rows(tokenizer(WORDS), 3, 2)


def test_a_head_without_a_row_for_the_padding_token_is_large_enough():
    assert shared_rows(tokenizer({**WORDS, "<pad>": 3}), 4, 3)[0] == 3
