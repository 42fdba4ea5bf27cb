"""What pydantic found wrong, in words: the key, its value and source, why that cannot work, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kleash.config.describe import Choice, Place, allowed, either, place, run_settings, tables_of, toml
from kleash.config.foreign import sentence, translate
from kleash.errors import near_match

OUT_OF_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"}

REASONS = {
    "algorithm.kl.beta": "a negative penalty pays for drift, and one that is not finite is no number",
    "algorithm.kl.target_nats_per_sequence": "KL is never below 0, and at 0 nats nothing can be learned",
    "algorithm.kl.target_nats_per_token": "KL is never below 0, and at 0 nats nothing can be learned",
    "algorithm.num_generations": (
        "a leave-one-out or group baseline needs at least 2 samples of each prompt, to compare one with another"
    ),
    "rollout.temperature": "at 0 every token is certain, nothing is explored and no KL is finite",
}
"""Why a value out of range cannot work, where the range alone does not say it."""


def explain(error: ValidationError, data: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return one line for each setting that is wrong.

    Args:
        error: from validating a `RunConfig`.
        data: what was validated.
        origins: for each dotted key that was given, where: "in run.toml", "on the command line".
    """
    lines: dict[str, str] = {}
    for item in error.errors(include_url=False):
        for key, line in _lines(item, data, origins):
            lines.setdefault(key, line)
    return "\n".join(line for key, line in lines.items() if not any(other.startswith(key + ".") for other in lines))


def _lines(item: ErrorDetails, data: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = place(item["loc"])
    if item["type"] == "extra_forbidden":
        key = ".".join(filter(None, (at.key, str(at.rest[0]))))
        for leaf, value in _leaves(key, item["input"]):
            yield leaf, f"{_given(leaf, value, origins)} is not a setting. {_unknown(leaf, at)}"
    elif item["type"] == "missing" and not at.rest:
        yield at.key, _missing(at)
    elif item["type"] == "union_tag_invalid":
        key, tag = f"{at.key}.type", item["input"]["type"]
        choices = next(entry.type for entry in run_settings() if entry.key == key)
        hint = near_match(str(tag), choices.replace(" or ", ", ").replace("'", "").split(", "))
        yield key, f"{_given(key, tag, origins)} is unknown. Choose {choices}.{hint}"
    else:
        value = _lookup(data, at.key)
        yield at.key, f"{_given(at.key, value, origins)} {_wrong(item['type'], at, value)}"


def _given(key: str, value: Any, origins: Mapping[str, str]) -> str:
    """The key, what it was set to and where: "algorithm.kl.beta = -1 in run.toml"."""
    origin = origins.get(key) or next((where for other, where in origins.items() if other.startswith(key + ".")), "")
    return f"{key} = {toml(value)} {origin}".rstrip()


def _wrong(kind: str, at: Place, value: Any) -> str:
    assert at.field is not None
    must = f"must be {allowed(at.field)}"
    tables = tables_of(at.field.annotation)
    if len(tables) > 1 and isinstance(value, str):
        must += f': write {at.key}.type = "{value}"'
    reason = REASONS.get(at.key) if kind in OUT_OF_RANGE else None
    if kind == "string_too_short":
        reason = "it is empty"
    return f"cannot work: {reason}. It {must}." if reason else f"{must}."


def _missing(at: Place) -> str:
    """Name the setting, what it means and a line that would do."""
    assert at.field is not None
    key = next(entry.key for entry in run_settings() if f"{entry.key}.".startswith(f"{at.key}."))
    entry = next(entry for entry in run_settings() if entry.key == key)
    return f"{key} is missing, and has no default. It is {entry.type}: {entry.doc}"


def _unknown(key: str, at: Place) -> str:
    """Say what was probably meant: another trainer's name, a setting of another table, or a typing error."""
    if any(entry.key == key for entry in run_settings()):
        return f"It exists only with {_choice_having(f'{at.key}.{at.rest[0]}', f'{at.key}.type')}."
    foreign = translate(key)
    if foreign is not None:
        return sentence(foreign)
    elsewhere = _elsewhere(key)
    if elsewhere:
        return f"It belongs elsewhere: {either(elsewhere)}."
    name = key.rpartition(".")[2]
    beside = [known for known in at.table.model_fields if known != "type"]
    close = difflib.get_close_matches(name, beside, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{'.'.join(filter(None, (at.key, close[0])))}'?"
    full_names = {entry.key.rpartition(".")[2]: entry.key for entry in run_settings()}
    close = difflib.get_close_matches(name, full_names, n=1, cutoff=0.7)
    if close:
        return f"Did you mean '{full_names[close[0]]}'?"
    return f"Known here: {', '.join(beside)}."


def _choice_having(name: str, type_key: str) -> Choice:
    """The values of the choice on `type_key` that have a setting or table `name`."""
    choices = (entry.when for entry in run_settings() if f"{entry.key}.".startswith(f"{name}."))
    kinds = dict.fromkeys(kind for when in choices if when and when.key == type_key for kind in when.kinds)
    return Choice(type_key, tuple(kinds))


def _elsewhere(key: str) -> list[str]:
    """Settings of this name in other tables, those that are always there first."""
    names = key.split(".")
    for start in range(len(names)):
        ending = ".".join(names[start:])
        found = {entry.key: entry.when for entry in run_settings() if f".{entry.key}".endswith(f".{ending}")}
        if found:
            always = [known for known, when in found.items() if when is None]
            return always + [
                f"{known} (with {_choice_having(known, when.key)})" for known, when in found.items() if when
            ]
    return []


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}", item)
    else:
        yield key, value


def _lookup(data: Mapping[str, Any], key: str) -> Any:
    value: Any = data
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else value
    return value
