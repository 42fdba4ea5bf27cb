"""Prompts as token ids, with the model's own tokenizer and chat template passed in.

No tokenizer library is imported here: anything with the `Renderer` methods will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kleash.data.prompts import Message, Prompt
from kleash.errors import DataError, ModelError


class Renderer(Protocol):
    """What rendering needs to know of a model's tokenizer."""

    @property
    def name(self) -> str:
        """The model's name, for error messages."""
        ...

    @property
    def has_chat_template(self) -> bool:
        """Whether `apply_chat_template` can be called."""
        ...

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, or None if the model has none."""
        ...

    @property
    def max_context(self) -> int:
        """Tokens that prompt and completion may have together."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the text's token ids, with the tokenizer's own BOS and the like if asked for."""
        ...

    def apply_chat_template(self, messages: Sequence[Message]) -> str:
        """Return the conversation as text that ends where the assistant's answer begins."""
        ...


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as the model reads it.

    Attributes:
        prompt: the prompt it was made from.
        messages: the conversation that the template was given, system prompt included; None for plain text.
        text: what was encoded.
        token_ids: its tokens, special tokens included.
    """

    prompt: Prompt
    messages: tuple[Message, ...] | None
    text: str
    token_ids: tuple[int, ...]


def render(
    prompts: Sequence[Prompt],
    renderer: Renderer,
    *,
    max_completion_length: int,
    system_prompt: str | None = None,
    as_chat: bool = False,
) -> list[RenderedPrompt]:
    """Turn prompts into token ids.

    Plain text is encoded as it stands, with the special tokens the tokenizer adds by itself. Messages go
    through the chat template, whose text is encoded without adding special tokens again.

    Args:
        prompts: what to render.
        renderer: the model's tokenizer.
        max_completion_length: tokens that must still fit the context after each prompt.
        system_prompt: put before every conversation; plain text becomes the user's message.
        as_chat: plain text becomes the user's message even without a system prompt.

    Raises:
        ModelError: the model has no chat template and a prompt needs one.
        DataError: the template refuses a prompt, or a prompt has a system message besides `system_prompt`,
            begins with two BOS tokens, or is too long.
    """
    rendered = []
    for prompt in prompts:
        one = render_prompt(prompt, renderer, system_prompt=system_prompt, as_chat=as_chat)
        check_length(prompt, len(one.token_ids), max_completion_length, renderer)
        rendered.append(one)
    return rendered


def render_prompt(
    prompt: Prompt, renderer: Renderer, *, system_prompt: str | None = None, as_chat: bool = False
) -> RenderedPrompt:
    """Turn one prompt into token ids as `render` does, of whatever length.

    Raises:
        ModelError: the model has no chat template and the prompt needs one.
        DataError: the template refuses the prompt, or the prompt has a system message besides `system_prompt` or
            begins with two BOS tokens.
    """
    messages = _conversation(prompt, system_prompt, as_chat)
    if messages is None:
        text = prompt.text or ""
        token_ids = renderer.encode(text, add_special_tokens=True)
    else:
        text = _templated(prompt, messages, renderer)
        token_ids = renderer.encode(text, add_special_tokens=False)
    _check_single_bos(prompt, messages, token_ids, renderer)
    return RenderedPrompt(prompt, messages, text, tuple(token_ids))


def _conversation(prompt: Prompt, system_prompt: str | None, as_chat: bool) -> tuple[Message, ...] | None:
    if prompt.messages is None:
        if system_prompt is None and not as_chat:
            return None
        messages: tuple[Message, ...] = ({"role": "user", "content": prompt.text},)
    else:
        messages = prompt.messages
    if system_prompt is None:
        return messages
    if messages[0]["role"] in ("system", "developer"):
        raise DataError(
            f"{prompt.label} begins with a {messages[0]['role']} message of its own, and system_prompt is set"
            " too: the model would read two. Remove one of them."
        )
    return ({"role": "system", "content": system_prompt}, *messages)


def _templated(prompt: Prompt, messages: Sequence[Message], renderer: Renderer) -> str:
    if not renderer.has_chat_template:
        cause = "is a list of messages" if prompt.messages is not None else "is to be rendered as chat"
        raise ModelError(
            f"{renderer.name} has no chat template, and {prompt.label} {cause}. Use an instruct model, which"
            " comes with a template, or give prompts as plain strings without system_prompt."
        )
    try:
        return renderer.apply_chat_template(messages)
    except Exception as exc:  # a template is code of the model's author and may raise anything
        raise DataError(
            f"The chat template of {renderer.name} refuses {prompt.label}: {exc}. Change the roles or their"
            " order to what the template accepts."
        ) from exc


def _check_single_bos(
    prompt: Prompt, messages: Sequence[Message] | None, token_ids: Sequence[int], renderer: Renderer
) -> None:
    bos = renderer.bos_token_id
    if bos is None or list(token_ids[:2]) != [bos, bos]:
        return
    if messages is None:
        raise DataError(
            f"{prompt.label} begins with two BOS tokens (id {bos}): its text already has one, and the"
            f" tokenizer of {renderer.name} adds it again. The model never saw that in training. Remove it"
            " from the text, or give the prompt as messages and let the chat template write it."
        )
    raise DataError(
        f"{prompt.label} begins with two BOS tokens (id {bos}): the chat template of {renderer.name} adds"
        " one, and the tokenizer adds it again. The model never saw that in training. Remove the BOS from"
        " the template, or switch it off in the tokenizer."
    )


def check_length(prompt: Prompt, prompt_length: int, max_completion_length: int, renderer: Renderer) -> None:
    """See that prompt and completion fit the model's context together.

    Raises:
        DataError: they do not.
    """
    needed = prompt_length + max_completion_length
    if needed > renderer.max_context:
        raise DataError(
            f"{prompt.label} is {prompt_length} tokens long; with max_completion_length ="
            f" {max_completion_length} it needs {needed}, more than the context of {renderer.max_context}"
            f" tokens of {renderer.name}. Shorten or remove the prompt, or lower max_completion_length."
        )
