"""Which of two answers to a prompt is better: comparisons read in the usual shapes, filtered, written and split.

Four shapes are read as they are: our own columns, TRL's with a prompt column, TRL's with the prompt inside the two
conversations, and Anthropic-HH's dialogues. Turning a comparison into token ids happens in `completions.py`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from kleash.data.prompts import Message, Prompt, held_out_rank, prompt_of
from kleash.data.sources import Format, Row, needs_extra, read_rows
from kleash.errors import DataError, near_match

COLUMNS = ("prompt", "chosen", "rejected", "strength", "annotator", "source")
IGNORED_COLUMNS = (
    "id",
    "prompt_id",
    "conversation_id",
    "messages",
    "dataset",
    "metadata",
    "category",
    "language",
    "score_chosen",
    "score_rejected",
    "chosen_score",
    "rejected_score",
    "chosen-rating",
    "rejected-rating",
    "chosen-model",
    "rejected-model",
)
"""Columns of well-known data sets that say nothing about which answer is better beyond what chosen and rejected do."""
OTHER_NAMES = {"margin": "strength", "question": "prompt", "instruction": "prompt"}

EQUAL_SIDES = "chosen and rejected are the same text"
DUPLICATE = "the same annotator made the same comparison before"
HH_TURNS = "the turns of an HH dialogue do not alternate from the human's to the assistant's"
HH_PARTED = "the HH dialogues part before their last turn"
HH_BLANK = "a turn of an HH dialogue is blank"

HH_START = re.compile(r"\s*Human:")
HH_TURN = re.compile(r"\n\n(Human|Assistant): ?")
HH_ROLES = {"Human": "user", "Assistant": "assistant"}


@dataclass(frozen=True)
class Comparison:
    """Two answers to one prompt, and which is better.

    Attributes:
        prompt: what was asked.
        chosen: text of the better answer.
        rejected: text of the worse answer.
        strength: how much better; 0 is a tie, larger is clearer, None is not said. Its unit is the annotator's.
        annotator: who said so, or None.
        source: where the comparison comes from, such as a data set's name, or None.
        where: the place it was read from, for error messages.
    """

    prompt: Prompt
    chosen: str
    rejected: str
    strength: float | None
    annotator: str | None
    source: str | None
    where: str


@dataclass(frozen=True)
class Comparisons:
    """What was read, and what was left out of it.

    Attributes:
        rows: the comparisons, in the order of the source.
        filtered: number of comparisons left out, by reason.
        ignored_columns: columns that were there and not read, sorted.
    """

    rows: list[Comparison]
    filtered: dict[str, int]
    ignored_columns: tuple[str, ...]


def load_comparisons(
    source: str | Path | Iterable[Any], *, format: Format | None = None, limit: int | None = None
) -> Comparisons:
    """Read comparisons from a file, a hub data set or memory.

    Equal sides and repetitions (the same annotator, or nobody named, on the same prompt and the same two texts in the
    same order) are left out and counted, and so are the dialogues of Anthropic-HH that hold no comparison.

    Args:
        source: a .jsonl, .json, .csv or .parquet file; a hub data set ``org/name`` or ``org/name:split``; or an
            iterable of dicts.
        format: how to read a path; None goes by the file's extension.
        limit: read only the first `limit` rows; None reads all.

    Raises:
        DataError: nothing to read, nothing left after filtering, or a row that is no comparison; the text names the
            place.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit = {limit} leaves no comparisons. Give 1 or more, or leave it out to read all.")
    rows: list[Comparison] = []
    filtered: Counter[str] = Counter()
    ignored: set[str] = set()
    seen: set[tuple[str, str, str, str | None]] = set()
    for row in islice(rows_named("comparisons", source, format), limit):
        ignored |= _ignored_columns(row)
        comparison = _comparison_of(row)
        if isinstance(comparison, str):
            filtered[comparison] += 1
            continue
        identity = (comparison.prompt.key, comparison.chosen, comparison.rejected, comparison.annotator)
        if comparison.chosen == comparison.rejected:
            filtered[EQUAL_SIDES] += 1
        elif identity in seen:
            filtered[DUPLICATE] += 1
        else:
            seen.add(identity)
            rows.append(comparison)
    if not rows:
        name = f"'{source}'" if isinstance(source, str | Path) else f"The {type(source).__name__} of comparisons"
        raise nothing_left(name, filtered, "Mend it, or give other comparisons.")
    return Comparisons(rows, dict(filtered), tuple(sorted(ignored)))


def nothing_left(name: str, filtered: Mapping[str, int], advice: str) -> DataError:
    """The error for a set of comparisons of which nothing is left, with the reasons and their counts."""
    if not filtered:
        return DataError(f"{name}: no comparisons, so there is nothing to learn from. Give at least one.")
    reasons = "; ".join(f"{count} because {reason}" for reason, count in filtered.items())
    return DataError(f"{name}: nothing is left of {sum(filtered.values())} comparisons. Filtered: {reasons}. {advice}")


def write_comparisons(path: str | Path, rows: Sequence[Comparison]) -> None:
    """Write comparisons in our own columns, as JSON Lines or Parquet; the file appears whole or not at all.

    Raises:
        DataError: an extension other than .jsonl and .parquet, prompts of both kinds in one Parquet file, or a folder
            that cannot be written.
    """
    path = Path(path)
    if path.suffix not in (".jsonl", ".parquet"):
        raise DataError(
            f"'{path}' has the extension '{path.suffix}': comparisons are written as .jsonl or .parquet. Rename it."
        )
    records = [_record_of(row) for row in rows]
    fresh = path.with_name(path.name + ".new")
    try:
        if path.suffix == ".parquet":
            _write_parquet(fresh, path, records)
        else:
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            fresh.write_text("".join(lines), encoding="utf-8", newline="\n")
        os.replace(fresh, path)
    except OSError as error:
        raise DataError(
            f"The comparisons cannot be written to '{path}': {error.strerror or error}. Make its folder, change the"
            " folder's permissions, or name another place."
        ) from error


def split_comparisons(
    rows: Sequence[Comparison], held_out: int, seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """Set at least `held_out` comparisons aside, no prompt of theirs on the other side: (training, held out).

    Prompts are ranked by a hash of the seed and what they ask, as `split_held_out` does, and taken with all their
    comparisons until there are enough. Both lists keep the order of `rows`.

    Raises:
        DataError: fewer than 0 to hold out, or none left to train on.
    """
    per_prompt = Counter(row.prompt.key for row in rows)
    held: set[str] = set()
    count = 0
    for key in sorted(per_prompt, key=lambda key: held_out_rank(seed, key)):
        if count >= held_out:
            break
        held.add(key)
        count += per_prompt[key]
    if held_out < 0 or count < held_out or len(held) == len(per_prompt):
        raise DataError(
            f"Cannot hold out {held_out} of {len(rows)} comparisons of {len(per_prompt)} distinct prompts: a prompt's"
            " comparisons stay together, and those of at least one prompt must be left to train on. Hold out fewer,"
            " or give more prompts."
        )
    training = [row for row in rows if row.prompt.key not in held]
    return training, [row for row in rows if row.prompt.key in held]


def rows_named(noun: str, source: str | Path | Iterable[Any], format: Format | None) -> Iterator[Row]:
    """The rows of a source; those already in memory are placed as ``noun[0]``, ``noun[1]``, ..."""
    rows = read_rows(source, format)
    if isinstance(source, str | Path):
        return rows
    return (Row(f"{noun}[{index}]", row.values) for index, row in enumerate(rows))


def answer_text(where: str, name: str, messages: Sequence[Any]) -> str:
    """Text of the assistant's message that ends `messages`.

    Raises:
        DataError: the last message is not the assistant's, holds no text, or is blank.
    """
    last = messages[-1]
    if not isinstance(last, Mapping) or last.get("role") != "assistant" or not isinstance(last.get("content"), str):
        raise DataError(
            f"{where}: {name} ends with {last!r}. Its last message is the answer, so it must be"
            ' {"role": "assistant", "content": TEXT}.'
        )
    content: str = last["content"]
    check_not_blank(where, name, content)
    return content


def check_not_blank(where: str, name: str, text: str) -> None:
    """Refuse an answer of nothing but white space.

    Raises:
        DataError: the answer is blank.
    """
    if not text.strip():
        raise DataError(
            f"{where}: {name} is {text!r}, which is blank: there is no answer to learn from. Remove the row, or write"
            " the answer."
        )


def _ignored_columns(row: Row) -> set[str]:
    """The row's columns that are not read.

    Raises:
        DataError: a column that is neither known nor on the list of those that may be left unread.
    """
    ignored = {str(name) for name in row.values if name not in COLUMNS}
    for name in sorted(ignored.difference(IGNORED_COLUMNS)):
        other = OTHER_NAMES.get(name)
        hint = f" What others call '{name}' is '{other}' here." if other else near_match(name, COLUMNS)
        raise DataError(
            f"{row.where} has a column '{name}', which is not one of a comparison.{hint} Known columns:"
            f" {', '.join(COLUMNS)}. Rename it to the one it is, or remove it from the file."
        )
    return ignored


def _comparison_of(row: Row) -> Comparison | str:
    """The row's comparison, or the reason for which it is left out."""
    asked = row.values.get("prompt")
    chosen, rejected = _side(row, "chosen"), _side(row, "rejected")
    if isinstance(chosen, str) and isinstance(rejected, str):
        if asked is not None:
            return _comparison(row, asked, chosen, rejected)
        if not (HH_START.match(chosen) and HH_START.match(rejected)):
            raise DataError(
                f"{row.where} has no prompt: its chosen and rejected are text, and not both are a dialogue that begins"
                " with 'Human:'. Add a column 'prompt', or give whole conversations as lists of messages."
            )
        chosen, rejected = _hh_messages(chosen), _hh_messages(rejected)
        flaw = _hh_flaw(chosen, rejected)
        if flaw is not None:
            return flaw
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise DataError(
            f"{row.where}: chosen is a {type(chosen).__name__} and rejected is a {type(rejected).__name__}. Give both"
            " as text, or both as lists of messages."
        )
    if asked is None or len(chosen) > 1 or len(rejected) > 1:
        asked = _shared_prompt(row.where, asked, chosen[:-1], rejected[:-1])
    return _comparison(
        row, asked, answer_text(row.where, "chosen", chosen), answer_text(row.where, "rejected", rejected)
    )


def _comparison(row: Row, asked: Any, chosen: str, rejected: str) -> Comparison:
    return Comparison(
        prompt=prompt_of(Row(row.where, {"prompt": asked}), "prompt"),
        chosen=chosen,
        rejected=rejected,
        strength=_strength(row),
        annotator=_name(row, "annotator"),
        source=_name(row, "source"),
        where=row.where,
    )


def _side(row: Row, name: str) -> str | list[Any]:
    value = row.values.get(name)
    if value is None:
        columns = ", ".join(str(column) for column in row.values) or "none"
        raise DataError(
            f"{row.where} has no {name} answer; its columns: {columns}. A comparison needs chosen and rejected."
            " Write it, or remove the row."
        )
    if isinstance(value, str):
        check_not_blank(row.where, name, value)
        return value
    if isinstance(value, list | tuple) and value:
        return list(value)
    raise DataError(
        f"{row.where}: {name} is {value!r}, a {type(value).__name__}. An answer is text, or a list of messages that"
        " ends with the assistant's."
    )


def _shared_prompt(where: str, asked: Any, chosen: list[Any], rejected: list[Any]) -> Any:
    """The messages before the two answers, which must be the same, and what the prompt column says if there is one."""
    for index, (left, right) in enumerate(zip_longest(chosen, rejected)):
        if left != right:
            raise DataError(
                f"{where}: chosen and rejected answer different prompts: message {index} before the answer is {left!r}"
                f" in chosen and {right!r} in rejected. Compare two answers to one prompt, or remove the row."
            )
    if asked is None or asked == chosen:
        return chosen
    last = chosen[-1] if chosen else None
    if isinstance(last, Mapping) and asked == last.get("content"):
        return chosen
    raise DataError(
        f"{where}: the prompt is {asked!r}, but the conversations in chosen and rejected ask {last!r}. Make them say"
        " the same, or leave only the answers in chosen and rejected."
    )


def _hh_messages(dialogue: str) -> list[Message]:
    """The turns of a dialogue; text is kept to the letter but for the one space after the speaker's name."""
    _, *parts = HH_TURN.split("\n\n" + dialogue.lstrip())
    return [{"role": HH_ROLES[speaker], "content": text} for speaker, text in zip(parts[::2], parts[1::2], strict=True)]


def _hh_flaw(chosen: list[Message], rejected: list[Message]) -> str | None:
    """Why two dialogues are no comparison: the published files hold such rows, and nobody can mend those."""
    for dialogue in (chosen, rejected):
        if [turn["role"] for turn in dialogue] != ["user", "assistant"] * (len(dialogue) // 2):
            return HH_TURNS
    if chosen[:-1] != rejected[:-1]:
        return HH_PARTED
    if any(not turn["content"].strip() for turn in (*chosen, rejected[-1])):
        return HH_BLANK
    return None


def _strength(row: Row) -> float | None:
    value = row.values.get("strength")
    if value is None or value == "":
        return None
    try:
        strength = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        strength = math.nan
    if not (math.isfinite(strength) and strength >= 0):
        raise DataError(
            f"{row.where}: strength is {value!r}. It is a finite number: 0 for a tie, larger for a clearer preference,"
            " never negative (swap chosen and rejected instead). Leave it out where nobody said how clear it was."
        )
    return strength


def _name(row: Row, column: str) -> str | None:
    value = row.values.get(column)
    if value is None or value == "":
        return None
    if isinstance(value, str | int):
        return str(value)
    raise DataError(f"{row.where}: {column} is {value!r}, a {type(value).__name__}. Name it by a text or a number.")


def _record_of(row: Comparison) -> dict[str, Any]:
    prompt = row.prompt.text if row.prompt.messages is None else list(row.prompt.messages)
    return {"prompt": prompt} | {name: getattr(row, name) for name in COLUMNS[1:]}


def _write_parquet(fresh: Path, path: Path, records: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as exc:
        raise needs_extra(str(path), "pyarrow") from exc
    if len({type(record["prompt"]) for record in records}) > 1:
        raise DataError(
            f"'{path}' would hold prompts that are text and prompts that are messages, and a Parquet column has one"
            " type. Write a .jsonl file, or two files."
        )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), fresh)
