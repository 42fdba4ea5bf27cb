"""The tiny model that other tests train is an ordinary model folder with the four special tokens kept apart."""

from transformers import AutoModelForCausalLM, AutoTokenizer


def test_its_special_tokens_are_apart_and_its_text_comes_back(tiny_model_dir):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, end_of_turn]
    assert ids == [256, 257, 258, 260]
    text = "Größe  7 µm\n"
    encoded = tokenizer(text).input_ids
    assert len(encoded) == 1 + len(text.encode("utf-8"))
    assert encoded[0] == tokenizer.bos_token_id
    assert tokenizer.decode(encoded, skip_special_tokens=True) == text


def test_its_chat_template_writes_one_bos_and_opens_the_reply(tiny_model_dir):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_its_model_has_a_row_for_each_token(tiny_model_dir):
    config = AutoModelForCausalLM.from_pretrained(tiny_model_dir).config
    assert (config.vocab_size, config.num_hidden_layers, config.hidden_size) == (261, 2, 32)
