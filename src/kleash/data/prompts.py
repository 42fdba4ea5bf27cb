"""What the policy is asked: prompts, plain or conversational, and the split into training and held-out.

A prompt is either plain text that the model continues or a list of chat messages that it answers. Turning one
into token ids needs a tokenizer and happens in `render.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kleash.data.sources import Format, Row, read_rows
from kleash.errors import DataError, near_match

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
REWARD_ARGUMENTS = ("prompts", "completions")


@dataclass(frozen=True)
class Prompt:
    """One prompt: exactly one of text and messages.

    Attributes:
        messages: chat messages, each with a role and a content, the last one not the assistant's; or None.
        text: plain text to be continued as it stands; or None.
        columns: the row's further columns; handed to reward functions that ask for them by name.
        source: the place it was read from, for error messages.
    """

    messages: tuple[Message, ...] | None
    text: str | None
    columns: dict[str, Any]
    source: str

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.text is None):
            raise DataError(f"{self.source}: a prompt is either text or messages, and exactly one of the two.")

    @property
    def key(self) -> str:
        """What is asked, as one string: two prompts with equal keys are the same prompt."""
        return self.text if self.text is not None else json.dumps(self.messages, sort_keys=True, default=str)

    @property
    def label(self) -> str:
        """The place and the first words, for error messages."""
        words = self.text if self.text is not None else str((self.messages or ({},))[-1].get("content", ""))
        return f"{self.source} ({words[:40] + '...' if len(words) > 40 else words!r})"


def load_prompts(
    source: str | Path | Iterable[Any],
    *,
    column: str = "prompt",
    format: Format | None = None,
    limit: int | None = None,
) -> list[Prompt]:
    """Read prompts from a file, a hub data set or memory.

    Args:
        source: a .txt (one prompt a line), .jsonl, .json, .csv or .parquet file; a hub data set ``org/name``
            or
            ``org/name:split`` (split ``train`` by default); or an iterable of strings or dicts.
        column: the column that holds the prompt: a string, or a list of messages.
        format: how to read a path; None goes by the file's extension.
        limit: keep only the first `limit` prompts; None keeps all.

    Raises:
        DataError: nothing to read, or a row that is no prompt; the text names the file and the line.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit = {limit} leaves no prompts. Give 1 or more, or leave it out to read all.")
    prompts = [prompt_of(row, column) for row in islice(read_rows(source, format), limit)]
    if not prompts:
        name = f"'{source}'" if isinstance(source, str | Path) else f"The {type(source).__name__} of prompts"
        raise DataError(f"{name} holds no prompts, so there is nothing to train on. Give it at least one.")
    return prompts


def split_held_out(prompts: Sequence[Prompt], count: int, seed: int) -> tuple[list[Prompt], list[Prompt]]:
    """Set `count` distinct prompts aside, with every copy of them: (training, held out).

    Prompts are ranked by a hash of the seed and what they ask, and the first `count` are held out. The choice
    thus depends neither on the order of the file nor on the platform, and adding prompts moves only a few.
    Both lists keep the order of `prompts`.

    Raises:
        DataError: fewer than 0 to hold out, or none left to train on.
    """
    ranked = sorted({prompt.key for prompt in prompts}, key=lambda key: held_out_rank(seed, key))
    if not 0 <= count < len(ranked):
        raise DataError(
            f"Cannot hold out {count} of {len(ranked)} distinct prompts: between 0 and {len(ranked) - 1} can"
            " be held out, so that at least one is left to train on."
        )
    held_keys = set(ranked[:count])
    training = [prompt for prompt in prompts if prompt.key not in held_keys]
    held_out = [prompt for prompt in prompts if prompt.key in held_keys]
    return training, held_out


def held_out_rank(seed: int, key: str) -> bytes:
    """Where a prompt stands in the order in which prompts are held out: it depends on the seed and the prompt alone."""
    return hashlib.sha256(f"{seed}\n{key}".encode()).digest()


def prompt_of(row: Row, column: str) -> Prompt:
    """The prompt in a row's column, with the other columns beside it.

    Raises:
        DataError: no such column, or what is in it is no prompt.
    """
    if column not in row.values:
        names = [str(name) for name in row.values]
        raise DataError(
            f"{row.where} has no column '{column}'. It has:"
            f" {', '.join(names) or 'none'}.{near_match(column, names)} Name the column that holds the"
            " prompt."
        )
    columns = {str(name): value for name, value in row.values.items() if name != column}
    for name in REWARD_ARGUMENTS:
        if name in columns:
            raise DataError(
                f"{row.where} has a column '{name}', the name of an argument that every reward function gets."
                " Rename the column."
            )
    value = row.values[column]
    if isinstance(value, str):
        return Prompt(None, _checked_text(row.where, value), columns, row.where)
    if isinstance(value, list | tuple):
        return Prompt(_checked_messages(row.where, value), None, columns, row.where)
    raise DataError(
        f"{row.where}: column '{column}' holds a {type(value).__name__} ({value!r}). A prompt is a string or"
        " a list of messages."
    )


def _checked_text(where: str, text: str) -> str:
    if not text.strip():
        raise DataError(f"{where}: the prompt is blank. Remove the row, or write the prompt.")
    return text


def _checked_messages(where: str, messages: Sequence[Any]) -> tuple[Message, ...]:
    if not messages:
        raise DataError(f"{where}: the prompt is an empty list of messages. Remove the row, or write the messages.")
    for index, message in enumerate(messages):
        place = f"{where}, message {index}"
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise DataError(f"{place} is {message!r}: a message is an object with a 'role' and a 'content'.")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise DataError(
                f"{place} has the role {role!r}.{near_match(str(role), ROLES)} Known roles: {', '.join(ROLES)}."
            )
        if not isinstance(content, str):
            raise DataError(f"{place} has content {content!r}: content is text, and nothing else is supported.")
    if messages[-1]["role"] == "assistant":
        raise DataError(
            f"{where}: the last message is the assistant's, so there is nothing left to answer. End the"
            " prompt with the user's message and move the answer to a column of its own."
        )
    if not any(message["content"].strip() for message in messages):
        raise DataError(f"{where}: the prompt is blank. Remove the row, or write the messages.")
    return tuple(dict(message) for message in messages)
