"""The lines of a CSV or JSON Lines file as named values; one that is cut off at the end is left out and told."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kleash.errors import DataError

LONGEST_INTEGER = 300
"""Digits: the largest float has 309."""


class Line(NamedTuple):
    """One record, and the place it was read from, such as `metrics.jsonl:3`."""

    where: str
    values: Mapping[Any, Any]


def text_of(path: Path) -> str:
    """Return the text of a file; a last character that is cut in its middle is left out.

    Raises:
        DataError: it cannot be read, or is no UTF-8 text.
    """
    try:
        data = path.read_bytes()
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start} is no character. It is "
            "damaged, compressed or of another format; unpack it, or give a CSV or JSON Lines export."
        ) from error
    except OSError as error:
        raise gone(path, error) from error


def gone(path: Path, error: OSError) -> DataError:
    """The error for a file that was there and cannot be read."""
    return DataError(
        f"{path} cannot be read: {error.strerror or error}. It was deleted or moved meanwhile, or it is not yours to "
        "read. Check the path."
    )


def parse_json(where: str, text: str) -> Any:
    """Return what a JSON text holds.

    Raises:
        json.JSONDecodeError: it is not whole; what that means is for the caller to say.
        DataError: it is nested too deeply, has a number that no float holds, or a name twice in one object.
    """
    try:
        return json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError as error:
        raise DataError(
            f"{where} is nested too deeply to be read: it begins with {text[:20]!r}. A log is named numbers, a few "
            "levels deep at most; give the file that the trainer wrote."
        ) from error
    except _Unreadable as error:
        raise DataError(f"{where} {error}") from error


def json_lines(path: Path, text: str) -> tuple[list[Line], list[str]]:
    """Return the objects of JSON Lines, or of one JSON list, and notes.

    Raises:
        DataError: a line before the last is no JSON object; the text names it.
    """
    if text.lstrip().startswith("["):
        return _json_list(path, text), []
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    found: list[Line] = []
    for number, line in numbered:
        where = f"{path}:{number}"
        try:
            found.append(Line(where, _json_object(where, parse_json(where, line))))
        except json.JSONDecodeError as error:
            if number == numbered[-1][0] and found:
                note = f"The last line, {where}, is cut off: the run was killed or is still writing. The rest is read."
                return found, [note]
            raise DataError(
                f"{where} is not valid JSON: {error.msg} at column {error.colno} of {line[:60]!r}. Mend or delete "
                "the line; every line of JSON Lines is one object."
            ) from error
    return found, []


def csv_lines(path: Path, text: str) -> tuple[list[Line], list[str]]:
    """Return the rows of a CSV file by the names of its header, and notes.

    Raises:
        DataError: a name twice in the header, or a row that has more fields than it.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), restval=None)
    found: list[Line] = []
    try:
        _check_header(path, reader.fieldnames or ())
        for values in reader:
            where = f"{path}:{reader.line_num}"
            if None in values:
                raise DataError(
                    f"{where} has more fields than the {len(reader.fieldnames or [])} of the header. Quote a field "
                    "that contains a comma."
                )
            found.append(Line(where, values))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num} is not valid CSV: {error}. Check its quotes.") from error
    if found and not text.endswith(("\n", "\r")) and None in found[-1].values.values():
        where = found.pop().where
        return found, [f"The last row, {where}, is cut off: the run was killed or is still writing. The rest is read."]
    return found, []


def _check_header(path: Path, names: Sequence[str]) -> None:
    twice = _twice(names)
    if twice is not None:
        raise DataError(
            f"{path}:1 names '{twice}' twice in its header, and which of the columns counts cannot be known. Rename or "
            "delete one of them."
        )


class _Unreadable(Exception):
    """What a JSON text holds that a log cannot: the end of a sentence."""


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise _Unreadable(
            f"has an integer of {len(digits)} digits, {digits[:12]}..., which is more than a number can hold. Mend or "
            "delete it: what a trainer measures has no such size."
        )
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = _twice(name for name, _ in pairs)
        raise _Unreadable(f"has '{twice}' twice in one object, and which counts cannot be known. Delete one of them.")
    return found


def _twice(names: Iterable[str]) -> str | None:
    """Return the first name that comes a second time, an empty one apart; None if there is none."""
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            return name
        seen.add(name)
    return None


def _json_list(path: Path, text: str) -> list[Line]:
    try:
        items = parse_json(str(path), text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno} is not valid JSON: {error.msg}. A list is read as a whole, so a cut one cannot be; "
            "export the history again, or as JSON Lines."
        ) from error
    return [Line(f"{path}[{index}]", _json_object(f"{path}[{index}]", item)) for index, item in enumerate(items)]


def _json_object(where: str, item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    raise DataError(f"{where} holds a {type(item).__name__}, not an object of named numbers.")
