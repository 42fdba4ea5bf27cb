from dataclasses import dataclass

import pytest

from kleash.data.prompts import load_prompts
from kleash.data.render import render
from kleash.errors import DataError, ModelError

BOS = 1


@dataclass
class Bytes:
    """One token a byte; ``^`` is the BOS, which the tokenizer puts first unless told not to."""

    name: str = "org/model"
    has_chat_template: bool = True
    bos_token_id: int | None = BOS
    max_context: int = 100
    template_start: str = "^"
    heeds_add_special_tokens: bool = True

    def encode(self, text, *, add_special_tokens=True):
        ids = [BOS if byte == ord("^") else byte for byte in text.encode()]
        adds = add_special_tokens or not self.heeds_add_special_tokens
        return [BOS, *ids] if adds else ids

    def apply_chat_template(self, messages):
        if any(message["role"] == "tool" for message in messages):
            raise RuntimeError("roles must alternate")
        turns = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return f"{self.template_start}{turns}<assistant>"


def ids(text):
    return tuple(BOS if byte == ord("^") else byte for byte in text.encode())


def one(prompt, renderer=None, **settings):
    settings.setdefault("max_completion_length", 10)
    return render(load_prompts([{"prompt": prompt}]), renderer or Bytes(), **settings)[0]


def failure(error, prompt, renderer=None, **settings):
    with pytest.raises(error) as caught:
        one(prompt, renderer, **settings)
    return str(caught.value)


USER = [{"role": "user", "content": "hi"}]


def test_plain_text_is_encoded_as_it_stands():
    rendered = one("The weather ")
    assert rendered.messages is None
    assert rendered.text == "The weather "
    assert rendered.token_ids == ids("^The weather ")


def test_messages_go_through_the_template_and_get_one_bos():
    rendered = one(USER)
    assert rendered.messages == ({"role": "user", "content": "hi"},)
    assert rendered.text == "^<user>hi<assistant>"
    assert rendered.token_ids == ids("^<user>hi<assistant>")


def test_text_becomes_the_users_message():
    assert one("hi", as_chat=True).text == "^<user>hi<assistant>"
    assert one("hi", system_prompt="Be kind.").text == "^<system>Be kind.<user>hi<assistant>"
    assert one(USER, system_prompt="Be kind.").text == "^<system>Be kind.<user>hi<assistant>"


def test_two_system_messages_are_refused():
    prompt = [{"role": "system", "content": "a"}, *USER]
    assert failure(DataError, prompt, system_prompt="b") == (
        "prompts[0] ('hi') begins with a system message of its own, and system_prompt is set too: the model"
        " would read two. Remove one of them."
    )


def test_chat_needs_a_template():
    base = Bytes(has_chat_template=False)
    advice = (
        " Use an instruct model, which comes with a template, or give prompts as plain strings without system_prompt."
    )
    assert failure(ModelError, USER, base) == (
        f"org/model has no chat template, and prompts[0] ('hi') is a list of messages.{advice}"
    )
    assert failure(ModelError, "hi", base, system_prompt="a") == (
        f"org/model has no chat template, and prompts[0] ('hi') is to be rendered as chat.{advice}"
    )
    assert one("hi", base).token_ids == ids("^hi")


def test_a_template_that_refuses_the_roles():
    assert failure(DataError, [{"role": "tool", "content": "a"}]) == (
        "The chat template of org/model refuses prompts[0] ('a'): roles must alternate. Change the roles or"
        " their order to what the template accepts."
    )


@pytest.mark.parametrize("renderer", [Bytes(template_start="^^"), Bytes(heeds_add_special_tokens=False)])
def test_a_template_whose_bos_the_tokenizer_adds_again(renderer):
    assert failure(DataError, USER, renderer) == (
        "prompts[0] ('hi') begins with two BOS tokens (id 1): the chat template of org/model adds one, and"
        " the tokenizer adds it again. The model never saw that in training. Remove the BOS from the"
        " template, or switch it off in the tokenizer."
    )


def test_a_text_whose_bos_the_tokenizer_adds_again():
    assert failure(DataError, "^hi") == (
        "prompts[0] ('^hi') begins with two BOS tokens (id 1): its text already has one, and the tokenizer"
        " of org/model adds it again. The model never saw that in training. Remove it from the text, or give"
        " the prompt as messages and let the chat template write it."
    )


def test_a_model_without_bos_may_repeat_any_token():
    assert one("^^", Bytes(bos_token_id=None)).token_ids == (BOS, BOS, BOS)


def test_prompt_and_completion_must_fit_the_context():
    prompt = "x" * 50
    assert len(one(prompt, max_completion_length=49).token_ids) == 51
    assert failure(DataError, prompt, max_completion_length=50) == (
        f"prompts[0] ('{'x' * 40}...') is 51 tokens long; with max_completion_length = 50 it needs 101, more"
        " than the context of 100 tokens of org/model. Shorten or remove the prompt, or lower"
        " max_completion_length."
    )
