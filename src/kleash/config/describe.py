"""What the schema says about itself: one entry a setting, for docs, help, `kleash init` and messages.

Nothing is explained here: docs and defaults come from `kleash.config.schema`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from kleash.config.schema import RunConfig
from kleash.config.settings import Settings

UNSET = "unset"
"""Default of a setting that may be left out and then has no value of its own."""


@dataclass(frozen=True)
class Choice:
    """A `type`, and those of its values that have some setting."""

    key: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        """As in a message: "algorithm.type = 'grpo' or 'ppo'"."""
        return f"{self.key} = " + either(f"'{kind}'" for kind in self.kinds)


@dataclass(frozen=True)
class Entry:
    """One setting.

    `key` is dotted, `type` says in words what is allowed, `default` is TOML (None: required, `UNSET`: no
    value), `doc` is the schema's docstring, and `when` names the choice that has it (None: always there).
    """

    key: str
    type: str
    default: str | None
    doc: str
    when: Choice | None = None


@dataclass(frozen=True)
class Place:
    """Where a pydantic location points: dotted key, field, innermost table, and what was not found there."""

    key: str
    field: FieldInfo | None
    table: type[Settings]
    rest: tuple[str | int, ...]


def describe(model: type[Settings], prefix: str = "") -> list[Entry]:
    """Return one entry a setting, in the schema's order; `prefix` is put before every key."""
    entries: list[Entry] = []
    for name, field in model.model_fields.items():
        key = prefix + name
        tables = tables_of(field.annotation)
        if len(tables) > 1:
            entries += _choice(key, field, tables)
        elif name != "type":
            if not tables or allowed(field) != "a table":
                entries.append(Entry(key, allowed(field), _default(field), _doc(field)))
            for table in tables:
                entries += describe(table, key + ".")
    return entries


@cache
def run_settings() -> tuple[Entry, ...]:
    """Return the entries of a whole run."""
    return tuple(describe(RunConfig))


def table_docs(model: type[Settings] = RunConfig, prefix: str = "") -> dict[str, str]:
    """Return the docstring of every table under its dotted key; a choice is documented by its `type`."""
    docs = {}
    for name, field in model.model_fields.items():
        tables = tables_of(field.annotation)
        if len(tables) == 1:
            docs[prefix + name] = _summary(tables[0])
        for table in tables:
            docs |= table_docs(table, f"{prefix}{name}.")
    return docs


def place(location: Sequence[str | int]) -> Place:
    """Follow a pydantic location through the run's schema, leaving out the names pydantic adds for unions."""
    table: type[Settings] = RunConfig
    field: FieldInfo | None = None
    choices: dict[str, type[Settings]] = {}
    names: list[str] = []
    for index, part in enumerate(location):
        if part in choices:
            table, choices = choices[str(part)], {}
        elif part in table.model_fields:
            field = table.model_fields[str(part)]
            names.append(str(part))
            tables = tables_of(field.annotation)
            choices = {_tag(choice): choice for choice in tables}
            table = tables[0] if len(tables) == 1 else table
        else:
            return Place(".".join(names), field, table, tuple(location[index:]))
    return Place(".".join(names), field, table, ())


def tables_of(annotation: Any) -> tuple[type[Settings], ...]:
    """Return the tables that an annotation allows: none for a plain value, several for a choice on `type`."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return (annotation,)
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return tuple(table for part in get_args(annotation) for table in tables_of(part))
    return ()


def allowed(field: FieldInfo) -> str:
    """Return in words what a field takes: "a number above 0", "'linear' or 'cosine'", "a list of strings"."""
    return _words(field.annotation, field.metadata)


def toml(value: Any) -> str:
    """Return a plain value as TOML; a table as an inline table, without the keys that are None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def either(parts: Iterable[str]) -> str:
    """Join as "a", "a or b", "a, b or c"."""
    listed = list(parts)
    return " or ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def _choice(key: str, field: FieldInfo, tables: Sequence[type[Settings]]) -> Iterator[Entry]:
    """Entries of a choice on `type`: the type itself, what only some have, then what all have alike.

    A setting that hangs on a choice further in names that one.
    """
    tags = [_tag(table) for table in tables]
    docs = [f"`{tag}`: {_summary(table)}" for tag, table in zip(tags, tables, strict=True)]
    default = UNSET if field.default is None else toml(field.default.type)
    doc = " ".join([_doc(field), *docs]).strip()
    yield Entry(f"{key}.type", either(f"'{tag}'" for tag in tags), default, doc)
    having: dict[Entry, list[str]] = {}
    for tag, table in zip(tags, tables, strict=True):
        for entry in describe(table, key + "."):
            having.setdefault(entry, []).append(tag)
    for entry, kinds in having.items():
        if len(kinds) < len(tags):
            yield replace(entry, when=entry.when or Choice(f"{key}.type", tuple(kinds)))
    yield from (entry for entry, kinds in having.items() if len(kinds) == len(tags))


def _tag(table: type[Settings]) -> str:
    kind = table.model_fields.get("type")
    return table.__name__ if kind is None else str(kind.default)


def _summary(table: type[Settings]) -> str:
    return (table.__doc__ or "").strip().splitlines()[0]


def _doc(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    if isinstance(field.default, Settings):
        return "a table"
    return UNSET if field.default is None else toml(field.default)


def _words(annotation: Any, limits: Sequence[Any] = ()) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0], parts[1:])
    if origin in (Union, types.UnionType):
        choices = [_words(part, limits) for part in parts if part is not types.NoneType]
        return (", or " if any("," in choice for choice in choices) else " or ").join(dict.fromkeys(choices))
    if origin is Literal:
        return either(toml(part) if isinstance(part, bool) else f"'{part}'" for part in parts)
    if origin is tuple:
        return _list_words(parts)
    if tables_of(annotation):
        return "a table"
    nouns = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    return nouns[annotation] + _bounds(limits)


def _list_words(parts: Sequence[Any]) -> str:
    plural = {"a number": "numbers", "a string": "strings"}
    items = plural.get(_words(parts[0]), _words(parts[0]))
    return f"a list of {items}" if parts[-1] is Ellipsis else f"a list of {len(parts)} {items}"


def _bounds(limits: Sequence[Any]) -> str:
    nested = (part for limit in limits if isinstance(limit, FieldInfo) for part in limit.metadata)
    found = {type(limit): limit for limit in (*limits, *nested)}
    low, above, below = (
        found.get(annotated_types.Ge),
        found.get(annotated_types.Gt),
        found.get(annotated_types.Lt),
    )
    if above and below:
        return f" between {above.gt} and {below.lt}, ends excluded"
    if above:
        return f" above {above.gt}"
    return f", {low.ge} or above" if low else ""
