"""Where prompts come from: rows of a file, of a hub data set, or of something already in memory.

Every row carries the place it was read from, so that an error can point at it. What a row means as a prompt
is decided in `prompts.py`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from kleash.errors import DataError, near_match

Format = Literal["text", "jsonl", "json", "csv", "parquet", "hub"]

EXTENSIONS: dict[str, Format] = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<split>.+))?")


class Row(NamedTuple):
    """One record and the place it was read from, such as ``prompts.jsonl:3``."""

    where: str
    values: Mapping[str, Any]


def read_rows(source: str | Path | Iterable[Any], format: Format | None = None) -> Iterator[Row]:
    """Yield the rows of a file, a hub data set or an iterable.

    Args:
        source: a path, a hub data set ``org/name`` or ``org/name:split``, or an iterable of strings or dicts
            (a `datasets.Dataset` is one).
        format: how to read a path; None goes by the file's extension.

    Raises:
        DataError: the source is missing, of an unknown kind, or malformed; the text says where.
    """
    if not isinstance(source, str | Path):
        return _memory_rows(source)
    if format is None:
        format = guess_format(source)
    _check_format(format)
    if format == "hub":
        return _hub_rows(str(source))
    path = Path(source)
    if not path.is_file():
        raise _missing_file(path)
    return _READERS[format](path)


def guess_format(source: str | Path) -> Format:
    """Return the format of a path by its extension, or ``hub`` for an ``org/name`` that is no local path."""
    path = Path(source)
    known = ", ".join(EXTENSIONS)
    if path.is_dir():
        raise DataError(f"'{source}' is a folder, not a file of prompts. Name one file in it ({known}).")
    if path.suffix in EXTENSIONS:
        return EXTENSIONS[path.suffix]
    if path.is_file():
        raise DataError(
            f"'{source}' has the extension '{path.suffix}', which says nothing about how to read it. Known"
            f" extensions: {known}. Rename the file or set format."
        )
    if isinstance(source, str) and HUB_ID.fullmatch(source) and not path.parent.is_dir():
        return "hub"
    raise _missing_file(path)


def _check_format(format: str) -> None:
    known = get_args(Format)
    if format not in known:
        raise DataError(
            f"format = '{format}' is not a format that prompts are read in.{near_match(format, known)} Known"
            f" formats: {', '.join(known)}."
        )


def _missing_file(path: Path) -> DataError:
    if not path.parent.is_dir():
        return DataError(f"No file '{path}': there is no folder '{path.parent}'. Check the path.")
    near = near_match(path.name, (entry.name for entry in path.parent.iterdir()))
    return DataError(
        f"No file '{path}' in {path.parent.resolve()}.{near} Check the path; a data set on the hub is written"
        " 'org/name' or 'org/name:split'."
    )


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, line without its line ending) of a UTF-8 text file."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                yield f"{path}:{number}", line.removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise _not_utf8(path, exc) from exc


def _not_utf8(path: Path, exc: UnicodeDecodeError) -> DataError:
    return DataError(f"{path} is not UTF-8 text: byte {exc.object[exc.start]:#04x} is no character. Save it as UTF-8.")


def _text_rows(path: Path) -> Iterator[Row]:
    """One prompt a line, kept to the letter; blank lines count only when another prompt follows them."""
    blank: list[Row] = []
    for where, line in _lines(path):
        row = Row(where, {"prompt": line})
        if not line.strip():
            blank.append(row)
            continue
        yield from blank
        blank.clear()
        yield row


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for where, line in _lines(path):
        if line.strip():
            yield Row(where, _json_object(where, _parsed_json(where, line)))


def _json_rows(path: Path) -> Iterator[Row]:
    """A JSON array of objects; a file that does not begin with ``[`` is read as JSON Lines."""
    text = "\n".join(line for _, line in _lines(path))
    if not text.lstrip().startswith("["):
        yield from _jsonl_rows(path)
        return
    for index, item in enumerate(_parsed_json(str(path), text)):
        where = f"{path}[{index}]"
        yield Row(where, _json_object(where, item))


def _parsed_json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        place = where if exc.lineno == 1 else f"{where}:{exc.lineno}"
        shown = text.split("\n")[exc.lineno - 1][:80]
        raise DataError(
            f"{place} is not valid JSON: {exc.msg} at column {exc.colno} of {shown!r}."
            ' Each prompt is one JSON object, such as {"prompt": "The weather today"}.'
        ) from exc


def _json_object(where: str, item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    raise DataError(
        f"{where} holds a {type(item).__name__}, not an object with named columns."
        ' Write {"prompt": ...} for each prompt.'
    )


def _csv_rows(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            for values in reader:
                where = f"{path}:{reader.line_num}"
                names = reader.fieldnames or []
                if None in values or None in values.values():
                    raise DataError(
                        f"{where} does not have the {len(names)} fields that the header names"
                        f" ({', '.join(names)}). Quote a field that contains a comma or a line break."
                    )
                yield Row(where, values)
    except csv.Error as exc:
        raise DataError(f"{path}:{reader.line_num} is not valid CSV: {exc}. Check its quotes.") from exc
    except UnicodeDecodeError as exc:
        raise _not_utf8(path, exc) from exc


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as exc:
        raise needs_extra(str(path), "pyarrow") from exc
    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches()
        rows = (values for batch in batches for values in batch.to_pylist())
        for index, values in enumerate(rows):
            yield Row(f"{path}[{index}]", values)
    except pyarrow.ArrowInvalid as exc:
        raise DataError(f"{path} is not a Parquet file that pyarrow can read: {exc}") from exc


def _hub_rows(source: str) -> Iterator[Row]:
    match = HUB_ID.fullmatch(source)
    if match is None:
        raise DataError(f"'{source}' is not a hub data set: write 'org/name' or 'org/name:split'.")
    name, split = match["name"], match["split"] or "train"
    try:
        import datasets
    except ImportError as exc:
        raise needs_extra(f"the hub data set '{name}'", "datasets") from exc
    try:
        data = datasets.load_dataset(name, split=split)
    except Exception as exc:  # hub, network, cache and script errors share no base class
        reason = (str(exc).splitlines() or [""])[0]
        raise DataError(
            f"Cannot load split '{split}' of the hub data set '{name}': {type(exc).__name__}: {reason}. Check"
            " the name, the split and the network, or save the prompts to a .jsonl or .parquet file and name"
            " that file instead."
        ) from exc
    return (Row(f"{name}:{split}[{index}]", values) for index, values in enumerate(data))


def needs_extra(what: str, package: str) -> DataError:
    """The error for a format whose package is not installed."""
    return DataError(f"Reading {what} needs {package}, which is not installed: pip install 'kleash[data]'.")


def _memory_rows(source: Iterable[Any]) -> Iterator[Row]:
    if isinstance(source, Mapping):
        names = ", ".join(str(name) for name in source)
        raise DataError(
            f"The prompts are a {type(source).__name__} of {names}, not a list of rows. Pass one of its"
            " splits, or a list with one dict a prompt."
        )
    if hasattr(source, "iterrows"):
        raise DataError(
            f"The prompts are a {type(source).__name__}, which iterates over column names. Pass"
            " frame.to_dict('records') instead."
        )
    for index, item in enumerate(source):
        where = f"prompts[{index}]"
        if isinstance(item, str):
            yield Row(where, {"prompt": item})
        elif isinstance(item, Mapping):
            yield Row(where, item)
        else:
            raise DataError(
                f"{where} is a {type(item).__name__}: a prompt is a string, or a dict with a 'prompt' column."
            )


_READERS: dict[Format, Callable[[Path], Iterator[Row]]] = {
    "text": _text_rows,
    "jsonl": _jsonl_rows,
    "json": _json_rows,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
