"""One rule for numbers that SQLite and JSON would lose: NaN and the infinities are stored as text.

SQLite turns a NaN into NULL and JSON has no word for it, so either would make a broken number look like one
that was not measured. Here ``nan``, ``inf`` and ``-inf`` are written as those strings, everywhere, and read
back as floats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

Stored = float | str | None


def store(value: float | None) -> Stored:
    """Return the number as SQLite and JSON can keep it: itself, "nan", "inf", "-inf", or None."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else str(number)


def restore(value: Stored) -> float | None:
    """Undo `store`."""
    return None if value is None else float(value)


def dump(value: object) -> str:
    """Return JSON as other programs read it: UTF-8, and never the non-standard NaN.

    Raises:
        ValueError: a NaN or an infinity that did not go through `store`.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump_numbers(values: Iterable[float]) -> str:
    """Return a JSON list of numbers, stored by the rule above."""
    return dump([store(value) for value in values])


def load_numbers(text: str) -> tuple[float, ...]:
    """Undo `dump_numbers`."""
    return tuple(float(value) for value in json.loads(text))


def dump_named(values: Mapping[str, float | None]) -> str:
    """Return a JSON object of named numbers, stored by the rule above."""
    return dump({name: store(value) for name, value in values.items()})


def load_named(text: str) -> dict[str, float | None]:
    """Undo `dump_named`."""
    return {name: restore(value) for name, value in json.loads(text).items()}
