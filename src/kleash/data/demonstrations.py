"""What supervised fine-tuning imitates: prompts with a written answer, conversations, or plain documents.

Of a conversation the assistant's last message is imitated and all before it is the prompt. A plain document has no
prompt: all of it is imitated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from kleash.data.comparisons import answer_text, check_not_blank, rows_named
from kleash.data.completions import completion_ids
from kleash.data.prompts import Prompt, prompt_of
from kleash.data.render import Renderer, render_prompt
from kleash.data.sources import Format, Row, guess_format
from kleash.errors import DataError, near_match

IMITATED_COLUMNS = ("completion", "messages", "text")


@dataclass(frozen=True)
class Demonstration:
    """A text to imitate.

    Attributes:
        prompt: what it answers; None for a plain document.
        completion: the text that is imitated.
        where: the place it was read from, for error messages.
    """

    prompt: Prompt | None
    completion: str
    where: str


@dataclass(frozen=True)
class RenderedDemonstration:
    """A demonstration as a model reads it.

    Attributes:
        prompt_ids: tokens that are read and not imitated; at least one.
        completion_ids: tokens that are imitated; at least one.
        demonstration: what it was made from.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    demonstration: Demonstration


def load_demonstrations(
    source: str | Path | Iterable[Any], *, format: Format | None = None, limit: int | None = None
) -> list[Demonstration]:
    """Read demonstrations from a file, a hub data set or memory.

    A row holds exactly one of: `completion`, with its `prompt`; `messages`, the last one the assistant's; `text`, a
    document. Its other columns are not read. A .txt file holds one document a paragraph: blank lines part them, and
    line breaks inside one are kept.

    Args:
        source: a .txt, .jsonl, .json, .csv or .parquet file; a hub data set ``org/name`` or ``org/name:split``; or an
            iterable of dicts.
        format: how to read a path; None goes by the file's extension.
        limit: keep only the first `limit` demonstrations; None keeps all.

    Raises:
        DataError: nothing to read, or a row that is no demonstration; the text names the place.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit = {limit} leaves no demonstrations. Give 1 or more, or leave it out to read all.")
    rows = rows_named("demonstrations", source, format)
    if isinstance(source, str | Path) and (format or guess_format(source)) == "text":
        rows = _paragraphs(rows)
    demonstrations = [_demonstration_of(row) for row in islice(rows, limit)]
    if not demonstrations:
        name = f"'{source}'" if isinstance(source, str | Path) else f"The {type(source).__name__} of demonstrations"
        raise DataError(f"{name} holds no demonstrations, so there is nothing to imitate. Give it at least one.")
    return demonstrations


def render_demonstrations(
    demonstrations: Sequence[Demonstration],
    renderer: Renderer,
    *,
    stop_id: int | None,
    max_length: int,
    system_prompt: str | None = None,
    as_chat: bool = False,
) -> list[RenderedDemonstration]:
    """Turn demonstrations into token ids; none is cut.

    A document is read behind the tokenizer's BOS; without one, its own first token takes that place and is not
    imitated. `system_prompt` and `as_chat` say how prompts are rendered and leave documents as they are.

    Args:
        demonstrations: what to render.
        renderer: the model's tokenizer.
        stop_id: the token that ends a text; None for texts that a length limit cut off.
        max_length: the most tokens that prompt and completion may have together; the model's context bounds it too.
        system_prompt: put before every conversation; a prompt of plain text becomes the user's message.
        as_chat: a prompt of plain text becomes the user's message even without a system prompt.

    Raises:
        ModelError: the model has no chat template and a prompt needs one.
        DataError: a prompt that cannot be rendered, a text with a stop token of its own, a document of one token, or
            texts longer than `max_length`.
    """
    rendered = []
    for demonstration in demonstrations:
        ids = completion_ids(demonstration.completion, renderer, stop_id)
        if demonstration.prompt is None:
            prompt_ids, ids = _document_start(demonstration.where, ids, renderer)
        else:
            prompt = render_prompt(demonstration.prompt, renderer, system_prompt=system_prompt, as_chat=as_chat)
            prompt_ids = prompt.token_ids
        rendered.append(RenderedDemonstration(prompt_ids, ids, demonstration))
    _check_lengths(rendered, max_length, renderer)
    return rendered


def _paragraphs(lines: Iterator[Row]) -> Iterator[Row]:
    for blank, group in groupby(lines, key=lambda row: not row.values["prompt"].strip()):
        if not blank:
            paragraph = list(group)
            yield Row(paragraph[0].where, {"text": "\n".join(row.values["prompt"] for row in paragraph)})


def _demonstration_of(row: Row) -> Demonstration:
    present = [name for name in IMITATED_COLUMNS if row.values.get(name) is not None]
    if len(present) != 1:
        names = [str(name) for name in row.values]
        near = "" if present else "".join(near_match(name, names) for name in IMITATED_COLUMNS)
        raise DataError(
            f"{row.where} has {' and '.join(present) or 'nothing to imitate'}; its columns:"
            f" {', '.join(names) or 'none'}.{near} Give exactly one of completion (with its prompt), messages and text."
        )
    (name,) = present
    value = row.values[name]
    if name == "messages" or (name == "completion" and isinstance(value, list | tuple)):
        return _conversation_of(row, name, value)
    if not isinstance(value, str):
        raise DataError(f"{row.where}: {name} is {value!r}, a {type(value).__name__}. The text to imitate is a string.")
    check_not_blank(row.where, name, value)
    return Demonstration(prompt_of(row, "prompt") if name == "completion" else None, value, row.where)


def _conversation_of(row: Row, name: str, messages: Any) -> Demonstration:
    if not isinstance(messages, list | tuple) or not messages:
        raise DataError(
            f"{row.where}: {name} is {messages!r}. It is a list of messages that ends with the assistant's answer."
        )
    completion = answer_text(row.where, name, messages)
    if name == "completion":
        if len(messages) > 1:
            raise DataError(
                f"{row.where}: completion has {len(messages)} messages. It is the assistant's one answer: move those"
                " before it to the prompt."
            )
        return Demonstration(prompt_of(row, "prompt"), completion, row.where)
    prompt = prompt_of(Row(row.where, {"prompt": list(messages[:-1])}), "prompt")
    return Demonstration(prompt, completion, row.where)


def _document_start(where: str, ids: tuple[int, ...], renderer: Renderer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token that a document is read behind, and the tokens that are imitated."""
    bos = renderer.bos_token_id
    if bos is not None:
        if ids[:1] == (bos,):
            raise DataError(
                f"{where} begins with the BOS token (id {bos}) of {renderer.name}, and it is put first anyway: the"
                " model would read two. Remove it from the text."
            )
        return (bos,), ids
    if len(ids) < 2:
        raise DataError(
            f"{where} is a single token for {renderer.name}, which has no BOS to read it behind: nothing is left to"
            " imitate. Remove it, or join it to another document."
        )
    return ids[:1], ids[1:]


def _check_lengths(rendered: Sequence[RenderedDemonstration], max_length: int, renderer: Renderer) -> None:
    longest = min(max_length, renderer.max_context)
    sizes = [len(one.prompt_ids) + len(one.completion_ids) for one in rendered]
    too_long = [index for index, size in enumerate(sizes) if size > longest]
    if too_long:
        first = too_long[0]
        raise DataError(
            f"{len(too_long)} of {len(rendered)} demonstrations are longer than {longest} tokens, the smaller of the"
            f" row length ({max_length}) and the context of {renderer.name} ({renderer.max_context}): the first"
            f" is {rendered[first].demonstration.where} with {sizes[first]}, the longest has {max(sizes)}. None is cut:"
            " shorten or remove them, or lengthen the rows."
        )
