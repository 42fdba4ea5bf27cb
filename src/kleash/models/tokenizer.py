"""A Hugging Face tokenizer as the rest of Kleash needs it: ids in and out, stop tokens, chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kleash.errors import ModelError

END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>", "<|eom_id|>")
"""Tokens by which chat models end their turn; one counts only if the tokenizer marks it special."""


@dataclass(frozen=True)
class Tokenizer:
    """Implements `kleash.data.render.Renderer` for a Hugging Face tokenizer.

    `stop_ids` are all tokens that end a response. `pad_id` fills rows and is always masked, so that it may equal a
    stop token.
    """

    inner: Any
    name: str
    max_context: int
    stop_ids: tuple[int, ...]
    pad_id: int

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer brings a chat template."""
        return bool(self.inner.chat_template)

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, or None."""
        return self.inner.bos_token_id  # type: ignore[no-any-return]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text."""
        return list(self.inner(text, add_special_tokens=add_special_tokens).input_ids)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The conversation as text, ending where the assistant's reply begins."""
        return self.inner.apply_chat_template(  # type: ignore[no-any-return]
            list(messages), tokenize=False, add_generation_prompt=True
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a response without its special tokens."""
        return self.inner.decode(  # type: ignore[no-any-return]
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Each token's own text; special tokens by their name. Split characters show as U+FFFD."""
        return [self.inner.decode([i], clean_up_tokenization_spaces=False) for i in ids]

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are not text."""
        return frozenset(self.inner.all_special_ids) | frozenset(
            i for i, token in self.inner.added_tokens_decoder.items() if token.special
        )


def wrap(inner: Any, config: Any, generation_config: Any, name: str) -> Tokenizer:
    """Find the stop tokens and the padding of a model.

    Raises:
        ModelError: the tokenizer has no token that ends a text.
    """
    stops: list[int] = []
    for source in (inner.eos_token_id, config.eos_token_id, getattr(generation_config, "eos_token_id", None)):
        stops += source if isinstance(source, list) else [] if source is None else [source]
    stops += [i for i, token in inner.added_tokens_decoder.items() if token.special and token.content in END_OF_TURN]
    if not stops:
        raise ModelError(
            f"model {name!r}: neither its tokenizer nor its config names a token that ends a text. "
            "Set tokenizer.eos_token and save the tokenizer"
        )
    stop_ids = tuple(dict.fromkeys(stops))
    pad_id = inner.pad_token_id if inner.pad_token_id is not None else stop_ids[0]
    context = getattr(config, "max_position_embeddings", None) or inner.model_max_length
    return Tokenizer(inner, name, int(context), stop_ids, int(pad_id))
