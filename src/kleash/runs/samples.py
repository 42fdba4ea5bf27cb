"""Finds samples among many: filtered, sorted, a page at a time, and the same prompt across steps.

Texts and tokens make most of a run's size, so a query that needs numbers alone is answered from the index
`samples_numbers`, which holds nothing else. Not here: whole samples of a step, which `rows.py` reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kleash.runs.encoding import Stored, restore
from kleash.runs.records import Sample, Split
from kleash.runs.rows import SAMPLE_COLUMNS, read_sample

Sort = Literal["step", "kl", "reward", "gold", "length"]

NUMBERS = "step, split, prompt_index, sample_index, reward, gold, kl, stopped"

SHOWN = 240
"""Characters of a prompt's end and of a completion's beginning that a list shows."""

HELD_OUT: tuple[Split, ...] = ("before", "eval", "after")
"""Splits that share their prompts' indices."""


@dataclass(frozen=True)
class SampleQuery:
    """Which samples, in which order, and which page of them. None and empty text leave a filter out.

    Args:
        split: of the samples.
        sort: what to sort by; `length` is in tokens, or in characters where the run has none. A sample without the
            number, or with a NaN, comes last in both directions; equal ones keep the order in which they were written.
        descending: the largest first.
        search: text within prompt or completion, whatever its case.
        min_kl: KL(policy ‖ reference) at least, nats per sequence.
        max_kl: at most.
        min_reward: proxy reward at least.
        max_reward: at most.
        first_step: the earliest step.
        last_step: the latest step.
        offset: how many of those found to pass over.
        limit: how many to return at most.
    """

    split: Split | None = None
    sort: Sort = "step"
    descending: bool = False
    search: str = ""
    min_kl: float | None = None
    max_kl: float | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class SampleNumbers:
    """A sample without its texts: fields as in `Sample`. `num_tokens` is None where they were not recorded."""

    step: int
    split: Split
    prompt_index: int
    sample_index: int
    reward: float | None
    gold: float | None
    kl: float
    stopped: bool
    num_tokens: int | None


@dataclass(frozen=True)
class FoundSample(SampleNumbers):
    """What a list shows of a sample: its numbers, the end of its prompt and the beginning of its completion."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class FoundSamples:
    """One page, and how many samples there are on all pages."""

    total: int
    samples: list[FoundSample]


def find_samples(connection: sqlite3.Connection, query: SampleQuery) -> FoundSamples:
    """Return a page of the samples that a query asks for."""
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    tokens = _num_tokens(connection)
    conditions, values = _conditions(query)
    key = _length(connection, tokens) if query.sort == "length" else _comparable(query.sort)
    order = "DESC" if query.descending else "ASC"
    where = " AND ".join(conditions) or "TRUE"
    found = connection.execute(
        f"SELECT rowid FROM samples WHERE {where} ORDER BY {key} {order} NULLS LAST, rowid", values
    ).fetchall()
    page = [rowid for (rowid,) in found[query.offset : query.offset + query.limit]]
    rows = dict(_rows(connection, f"prompt, completion, {NUMBERS}, {tokens}", page))
    return FoundSamples(len(found), [_found(*rows[rowid]) for rowid in page if rowid in rows])


def find_sample(
    connection: sqlite3.Connection, split: Split, step: int, prompt_index: int, sample_index: int
) -> Sample | None:
    """Return one sample with its tokens, or None where there is none of that place."""
    row = connection.execute(
        f"SELECT {SAMPLE_COLUMNS} FROM samples WHERE split = ? AND step = ? AND prompt_index = ? AND sample_index = ?",
        (split, step, prompt_index, sample_index),
    ).fetchone()
    return None if row is None else read_sample(*row)


def find_prompt(connection: sqlite3.Connection, split: Split, prompt_index: int, limit: int) -> list[SampleNumbers]:
    """Return the samples of one prompt by step, without texts; of too many, evenly spaced ones, the ends included.

    Args:
        connection: of the run.
        split: whose prompt it is; the held-out splits share theirs.
        prompt_index: of the prompt.
        limit: how many at most, at least 2.
    """
    splits = HELD_OUT if split in HELD_OUT else (split,)
    places = connection.execute(
        f"SELECT rowid FROM samples WHERE split IN ({_marks(splits)}) AND prompt_index = ?"
        " ORDER BY step, CASE split WHEN 'before' THEN 0 WHEN 'after' THEN 2 ELSE 1 END, sample_index",
        (*splits, prompt_index),
    ).fetchall()
    if len(places) > limit:
        places = [places[round(i * (len(places) - 1) / (limit - 1))] for i in range(limit)]
    rowids = [rowid for (rowid,) in places]
    rows = dict(_rows(connection, f"{NUMBERS}, {_num_tokens(connection)}", rowids))
    return [SampleNumbers(**_numbers(*rows[rowid])) for rowid in rowids if rowid in rows]


def count_samples(connection: sqlite3.Connection) -> dict[Split, int]:
    """Return how many samples each split has; a split without any is left out."""
    return dict(connection.execute("SELECT split, count(*) FROM samples GROUP BY split").fetchall())


def _conditions(query: SampleQuery) -> tuple[list[str], list[object]]:
    """Return what the query asks of a row, as SQL, and the values of its marks.

    The plus sign keeps SQLite from the index of the primary key, which lacks the numbers.
    """
    asked: list[tuple[str, object]] = [
        ("+split = ?", query.split),
        (f"{_comparable('kl')} >= ?", query.min_kl),
        (f"{_comparable('kl')} <= ?", query.max_kl),
        (f"{_comparable('reward')} >= ?", query.min_reward),
        (f"{_comparable('reward')} <= ?", query.max_reward),
        ("step >= ?", query.first_step),
        ("step <= ?", query.last_step),
        (_holds(query.search), _pattern(query.search)),
    ]
    return (
        [condition for condition, value in asked if value is not None],
        [value for _, value in asked if value is not None],
    )


def _holds(search: str) -> str:
    """Return the condition that a text is in prompt or completion: LIKE is fast and knows the case of ASCII alone."""
    texts = "prompt || char(10) || completion"
    return f"{texts} LIKE ? ESCAPE '\\'" if search.isascii() else f"instr(casefold({texts}), ?)"


def _pattern(search: str) -> str | None:
    if not search.isascii():
        return search.casefold()
    escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%" if search else None


def _comparable(column: str) -> str:
    """Return a number column as SQL that sorts and compares: see `encoding.py` for the words in it."""
    if column == "step":
        return column
    return f"CASE {column} WHEN 'nan' THEN NULL WHEN 'inf' THEN 9e999 WHEN '-inf' THEN -9e999 ELSE {column} END"


def _num_tokens(connection: sqlite3.Connection) -> str:
    """Return how many tokens a sample has, as SQL: a column, which a database of version 1 lacks."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return "num_tokens" if version > 1 else "json_array_length(tokens)"


def _length(connection: sqlite3.Connection, tokens: str) -> str:
    """Return the length of a completion as SQL; a run records the tokens of all its samples or of none."""
    first = connection.execute(f"SELECT {tokens} FROM samples LIMIT 1").fetchone()
    return tokens if first and first[0] else "length(completion)"


def _rows(connection: sqlite3.Connection, columns: str, rowids: Sequence[int]) -> list[tuple[int, tuple[Any, ...]]]:
    found = connection.execute(f"SELECT rowid, {columns} FROM samples WHERE rowid IN ({_marks(rowids)})", rowids)
    return [(rowid, tuple(row)) for rowid, *row in found]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _found(prompt: str, completion: str, *numbers: Any) -> FoundSample:
    return FoundSample(prompt=prompt[-SHOWN:], completion=completion[:SHOWN], **_numbers(*numbers))


def _numbers(
    step: int,
    split: Split,
    prompt_index: int,
    sample_index: int,
    reward: Stored,
    gold: Stored,
    kl: float | str,
    stopped: int,
    num_tokens: int,
) -> dict[str, Any]:
    """Return the fields of `SampleNumbers` of a row of `NUMBERS` and the number of tokens."""
    return {
        "step": step,
        "split": split,
        "prompt_index": prompt_index,
        "sample_index": sample_index,
        "reward": restore(reward),
        "gold": restore(gold),
        "kl": float(kl),
        "stopped": bool(stopped),
        "num_tokens": num_tokens or None,
    }
