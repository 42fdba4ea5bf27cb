"""What both models are asked: prompts of one's own, or 100 built-in ones, and texts to be scored as they stand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from kleash.data.prompts import Prompt, load_prompts
from kleash.data.render import RenderedPrompt, Renderer, render
from kleash.data.sources import read_rows
from kleash.errors import DataError, near_match
from kleash.models.tokenizer import Tokenizer

BUILT_IN = files("kleash.gauge") / "prompts.jsonl"
CORPUS_WINDOW = 1024
"""Longer texts are scored in pieces of so many tokens, each without what came before it."""
SHORTEST_TEXT = 2

Texts = str | Path | Iterable[Any]


def prompts(source: Texts | None, *, column: str | None, limit: int | None) -> list[Prompt]:
    """Prompts from a file, a hub data set or memory; None: the built-in ones.

    Args:
        source: see `kleash.data.prompts.load_prompts`; a column `category` groups them.
        column: the column that holds the prompt; None: `prompt`, or `messages` where there is no such column.
        limit: keep only the first so many.

    Raises:
        DataError: nothing to read, no such column, or a row that is no prompt.
    """
    if source is None:
        with BUILT_IN.open(encoding="utf-8") as file:
            return load_prompts([json.loads(line) for line in file], limit=limit)
    if not isinstance(source, str | Path):
        source = list(source)
    return load_prompts(source, column=column or _column(source, ("prompt", "messages")), limit=limit)


def rendered(
    asked: list[Prompt], tokenizer: Tokenizer, *, built_in: bool, max_length: int
) -> tuple[list[RenderedPrompt], str]:
    """Prompts as token ids, once for both models, and a sentence on how.

    Messages go through the chat template. Plain prompts are continued as they stand, except the built-in ones, which
    are put as a user's message wherever there is a template.
    """
    as_chat = built_in and tokenizer.has_chat_template
    ready = render(asked, tokenizer, max_completion_length=max_length, as_chat=as_chat)
    if any(prompt.messages is not None for prompt in ready):
        return ready, f"prompts rendered once for both models, with the chat template of {tokenizer.name}"
    return ready, "prompts are plain text, continued as they stand by both models"


def texts(source: Texts, tokenizer: Renderer, *, column: str | None, limit: int | None) -> list[list[list[int]]]:
    """Token ids of each text, in pieces of at most `CORPUS_WINDOW` tokens.

    Args:
        source: as for prompts; a text file has one text a line.
        tokenizer: adds its own special tokens.
        column: None: `text`, or `prompt` where there is no such column.
        limit: keep only the first so many texts.

    Raises:
        DataError: nothing to read, no such column, or no text of two tokens or more.
    """
    if not isinstance(source, str | Path):
        source = list(source)
    chosen = column or _column(source, ("text", "prompt"))
    window = min(CORPUS_WINDOW, tokenizer.max_context)
    found = []
    for row in islice(read_rows(source), limit):
        if chosen not in row.values:
            names = [str(name) for name in row.values]
            raise DataError(
                f"{row.where} has no column '{chosen}'. It has: {', '.join(names) or 'none'}."
                f"{near_match(chosen, names)} Name the column that holds the text."
            )
        ids = tokenizer.encode(str(row.values[chosen]))
        pieces = [ids[start : start + window] for start in range(0, len(ids), window)]
        found.append([piece for piece in pieces if len(piece) >= SHORTEST_TEXT])
    if not any(found):
        raise DataError(
            f"{source!r:.80} holds no text of {SHORTEST_TEXT} tokens or more, so there is nothing to score."
        )
    return found


def _column(source: Any, names: tuple[str, str]) -> str:
    """The first name, or the second where the first row has only that."""
    first = next(iter(read_rows(source)), None)
    there = {} if first is None else first.values
    return names[1] if names[0] not in there and names[1] in there else names[0]
