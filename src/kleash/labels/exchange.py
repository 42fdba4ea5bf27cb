"""Pairs and votes on their way to and from files: the comparisons format, Argilla and Label Studio.

`argilla.py` and `label_studio.py` say what a record of theirs means. Here records are read and written, and matched
with the pairs that a store has: the other tool may show the two completions in the other order.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kleash.data.comparisons import Comparison, load_comparisons, write_comparisons
from kleash.data.prompts import Prompt
from kleash.errors import DataError
from kleash.labels import argilla, label_studio
from kleash.labels.records import Answer, Choice, Labelled, Pair
from kleash.labels.store import LabelStore

ExchangeFormat = Literal["comparisons", "argilla", "label-studio"]


class Exchanged(NamedTuple):
    """How much was read or written, and how many rows of a file were left out, by reason."""

    pairs: int
    votes: int
    filtered: Mapping[str, int] = {}


def write_labels(store: LabelStore, path: Path, format: ExchangeFormat) -> Exchanged:
    """Write a store to a file, which appears whole or not at all.

    Args:
        store: the store.
        path: the file. Comparisons are .jsonl or .parquet, one a vote; the others are JSON, one record a pair.
        format: comparisons, argilla or label-studio.

    Returns:
        The pairs and votes in the file. Comparisons have neither skips nor flagged pairs.

    Raises:
        DataError: nothing to write, or a file that cannot be written.
    """
    if format == "comparisons":
        return _write_comparisons(store, path)
    labelled = collect(store)
    if not labelled:
        raise DataError(f"The label store {store.name} has no pairs, so there is nothing to write to '{path}'.")
    records = argilla.to_records(labelled) if format == "argilla" else label_studio.to_tasks(labelled)
    _write_json(path, records)
    return Exchanged(len(labelled), sum(len(item.answers) for item in labelled))


def read_labels(store: LabelStore, path: Path, format: ExchangeFormat) -> Exchanged:
    """Add a file's pairs and votes to a store. Doing it twice adds nothing twice.

    Args:
        store: the store.
        path: the file.
        format: comparisons, argilla or label-studio.

    Returns:
        The pairs that were new, and the votes in the file.

    Raises:
        DataError: a file that cannot be read, or a record that means nothing; the text says which.
    """
    if format == "comparisons":
        read = load_comparisons(path)
        return take_in(store, _labelled(read.rows, path.name))._replace(filtered=read.filtered)
    records = _read_json(path)
    return take_in(store, argilla.from_records(records) if format == "argilla" else label_studio.from_tasks(records))


def collect(store: LabelStore) -> list[Labelled]:
    """Return every pair with its votes."""
    answers: defaultdict[int | None, list[Answer]] = defaultdict(list)
    for vote in store.votes():
        answers[vote.pair_id].append(
            Answer(vote.annotator, vote.choice, vote.flagged, vote.strength, vote.note, vote.seconds)
        )
    return [Labelled(pair, tuple(answers[pair.id])) for pair in store.pairs()]


def take_in(store: LabelStore, labelled: Iterable[Labelled]) -> Exchanged:
    """Add pairs and votes; a vote is turned round where the store has the pair's completions in the other order."""
    labelled = list(labelled)
    added = store.add(item.pair for item in labelled)
    stored = {pair.key: pair for pair in store.pairs()}
    votes = 0
    for item in labelled:
        pair = stored[item.pair.key]
        assert pair.id is not None
        for answer in item.answers:
            choice = answer.choice if pair.first == item.pair.first else turned(answer.choice)
            store.vote(
                answer.annotator,
                pair.id,
                choice,
                strength=answer.strength,
                flagged=answer.flagged,
                note=answer.note,
                seconds=answer.seconds,
            )
            votes += 1
    return Exchanged(added, votes)


def turned(choice: Choice | None) -> Choice | None:
    """Return the same choice about the pair with its completions exchanged."""
    if choice == "first":
        return "second"
    return "first" if choice == "second" else choice


def _write_comparisons(store: LabelStore, path: Path) -> Exchanged:
    rows = [_comparison(row, number) for number, row in enumerate(store.comparisons())]
    if not rows:
        raise DataError(
            f"The label store {store.name} has no votes for one completion or a tie on pairs that nobody flagged, so"
            f" there is nothing to write to '{path}'. `kleash label serve` collects votes."
        )
    write_comparisons(path, rows)
    pairs = {(row.prompt.key, frozenset((row.chosen, row.rejected))) for row in rows}
    return Exchanged(len(pairs), len(rows))


def _comparison(row: dict[str, Any], number: int) -> Comparison:
    where, prompt = f"vote {number}", row.pop("prompt")
    asked = Prompt(None, prompt, {}, where) if isinstance(prompt, str) else Prompt(tuple(prompt), None, {}, where)
    return Comparison(prompt=asked, where=where, **row)


def _labelled(rows: Sequence[Comparison], file: str) -> list[Labelled]:
    """A row is a pair with one vote; where no annotator is named, the file is.

    Raises:
        DataError: an annotator has two votes on one pair, and a store keeps one.
    """
    labelled: list[Labelled] = []
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        asked = row.prompt.text if row.prompt.messages is None else list(row.prompt.messages)
        pair = Pair(asked or "", row.chosen, row.rejected, row.source)
        tie = row.strength == 0
        annotator = row.annotator or file
        other = seen.setdefault((pair.key, annotator), row.where)
        if other != row.where:
            raise DataError(
                f"{row.where} is another vote of {annotator!r} on the pair of {other}, and a store keeps one vote of an"
                " annotator on a pair. Remove one of them, or name the annotators."
            )
        answer = Answer(annotator, "tie" if tie else "first", strength=None if tie else row.strength)
        labelled.append(Labelled(pair, (answer,)))
    return labelled


def _write_json(path: Path, records: list[dict[str, Any]]) -> None:
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(json.dumps(records, indent=1), encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be written: {error.strerror or error}. Make its folder, or name another place."
        ) from error


def _read_json(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}. Check the path.") from error
    except ValueError as error:
        raise DataError(f"'{path}' is not JSON ({error}). Export it from the other tool as JSON.") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"'{path}' is not a list of records. Export it from the other tool as JSON.")
    return records
