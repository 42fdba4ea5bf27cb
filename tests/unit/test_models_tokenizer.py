"""Stop tokens, padding, special tokens and the chat template, on the byte tokenizer."""

from types import SimpleNamespace

import pytest
from tiny_model import byte_tokenizer
from transformers import AddedToken

from kleash.errors import ModelError
from kleash.models.names import load_tokenizer
from kleash.models.tokenizer import wrap

BOS, EOS, PAD, TURN_START, TURN_END = range(256, 261)


def config(**values):
    return SimpleNamespace(**{"eos_token_id": EOS, "max_position_embeddings": 512, **values})


def test_stop_tokens_come_from_tokenizer_config_generation_config_and_template():
    generation = SimpleNamespace(eos_token_id=[EOS, 65])
    wrapped = wrap(byte_tokenizer(), config(eos_token_id=[EOS, 66]), generation, "m")
    assert wrapped.stop_ids == (EOS, 66, 65, TURN_END)


def test_a_turn_end_that_is_not_special_does_not_stop():
    inner = byte_tokenizer()
    inner.add_tokens([AddedToken("<end_of_turn>", special=False)])
    assert inner.convert_tokens_to_ids("<end_of_turn>") not in wrap(inner, config(), None, "m").stop_ids


def test_padding_is_the_tokenizers_or_else_the_first_stop_token():
    inner = byte_tokenizer()
    assert wrap(inner, config(), None, "m").pad_id == PAD
    inner.pad_token = inner.eos_token
    assert wrap(inner, config(), None, "m").pad_id == EOS
    inner.pad_token = None
    assert wrap(inner, config(), None, "m").pad_id == EOS


def test_a_model_that_never_ends_is_refused():
    inner = byte_tokenizer()
    inner.eos_token = None
    inner.add_special_tokens({"additional_special_tokens": []})
    stripped = SimpleNamespace(eos_token_id=None, pad_token_id=None, added_tokens_decoder={})
    with pytest.raises(ModelError, match=r"model 'm': neither its tokenizer nor its config names a token that ends"):
        wrap(stripped, config(eos_token_id=None), None, "m")


def test_context_is_the_models_or_else_the_tokenizers():
    assert wrap(byte_tokenizer(), config(max_position_embeddings=77), None, "m").max_context == 77
    without = SimpleNamespace(eos_token_id=EOS)
    assert wrap(byte_tokenizer(), without, None, "m").max_context == byte_tokenizer().model_max_length


def test_text_becomes_bytes_behind_bos_and_back(tiny_model_dir):
    tokenizer = load_tokenizer(str(tiny_model_dir))
    ids = tokenizer.encode("ab")
    assert ids[0] == tokenizer.bos_token_id == BOS
    assert tokenizer.encode("ab", add_special_tokens=False) == ids[1:]
    assert tokenizer.decode([*ids, EOS]) == "ab"
    assert tokenizer.token_texts(ids) == ["<|bos|>", "a", "b"]


def test_half_a_character_is_shown_as_one_that_is_unknown(tiny_model_dir):
    tokenizer = load_tokenizer(str(tiny_model_dir))
    ids = tokenizer.encode("é", add_special_tokens=False)
    assert len(ids) == 2
    assert tokenizer.token_texts(ids) == ["\ufffd", "\ufffd"]
    assert tokenizer.decode(ids) == "é"


def test_special_tokens(tiny_model_dir):
    assert load_tokenizer(str(tiny_model_dir)).special_ids == {BOS, EOS, PAD, TURN_START, TURN_END}


def test_the_chat_template_ends_where_the_answer_begins(tiny_model_dir):
    tokenizer = load_tokenizer(str(tiny_model_dir))
    assert tokenizer.has_chat_template
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])
    assert text == "<|bos|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode(text, add_special_tokens=False)[:2] == [BOS, TURN_START]


@pytest.mark.parametrize("name", ["no/such-model", "nosuch", "/no/such/folder"])
def test_a_missing_model_is_one_clear_sentence(name):
    with pytest.raises(ModelError) as caught:
        load_tokenizer(name)
    text = str(caught.value)
    assert text.startswith(f"model {name!r}: no such local folder, and the hub gave nothing (")
    assert text.endswith("Check the spelling, log in with `hf auth login` if it is gated, or give a folder")
    assert "\n" not in text


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="the folder cannot be read as a Hugging Face model"):
        load_tokenizer(str(tmp_path))
