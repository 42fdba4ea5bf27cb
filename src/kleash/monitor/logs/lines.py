"""The lines of a CSV or JSON Lines file as named values; one that is cut off at the end is left out and told."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kleash.errors import DataError


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
            found.append(Line(where, _json_object(where, json.loads(line))))
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
        DataError: no header, or a row that has more fields than it.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), restval=None)
    found: list[Line] = []
    try:
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


def _json_list(path: Path, text: str) -> list[Line]:
    try:
        items = json.loads(text)
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
