"""From class defaults, one TOML file and `key=value` arguments to a checked `RunConfig`.

Later sources win, key by key; no environment variable changes a number. Relative paths in the file that exist
beside it are made absolute from there, so that a run starts from any directory; others are left as they are.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kleash.config.checks import check
from kleash.config.describe import run_settings
from kleash.config.messages import explain
from kleash.config.schema import RunConfig, long_forms
from kleash.errors import ConfigError, near_match

COMMAND_LINE = "on the command line"

PATHS = (
    ("model", "name"),
    ("model", "adapter"),
    ("model", "reference"),
    *((table, name) for table in ("prompts", "comparisons", "demonstrations") for name in ("path", "held_out_path")),
    ("pretraining", "path"),
    ("reward", "model"),
)
BUILT_IN = "demo"
"""The name of the built-in model and prompts; a file or folder of that name never stands in for them."""


@dataclass(frozen=True)
class Loaded:
    """A checked configuration, the dotted keys that the user gave, their source, and what to mention."""

    config: RunConfig
    explicit: frozenset[str]
    source: str
    warnings: tuple[str, ...]


def load(path: Path | None, overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None) -> Loaded:
    """Read, merge and check a configuration; no weight is read.

    Args:
        path: a TOML file, or None.
        overrides: `key=value` with a dotted key; the value is TOML, or else a string. The last of a key wins.
        base: settings below the file, such as a stored `to_dict`. They count as inherited, not as given: one
            without effect is a warning instead of an error.

    Raises:
        ConfigError: a file that cannot be read, a setting that is unknown or out of range, or settings that
            contradict each other; one line for each.
    """
    file = {} if path is None else _anchored(long_forms(_read(path)), path.resolve().parent)
    merged = _merge(long_forms(_renamed(base or {})), file)
    origins = {key: "in the inherited settings" for key, _ in _leaves(merged)}
    origins |= {key: f"in {path}" for key, _ in _leaves(file)}
    explicit = {key for key, _ in _leaves(file)}
    for override in overrides:
        given = long_forms(_parse_override(override))
        merged = _merge(merged, given)
        origins |= {key: COMMAND_LINE for key, _ in _leaves(given)}
        explicit |= {key for key, _ in _leaves(given)}
    _fill_types(merged)
    sources = ([str(path)] if path else []) + (["the command line"] if overrides else [])
    try:
        config = RunConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explain(error, merged, origins)) from None
    explicit &= {key for key, _ in _leaves(merged)}
    source = " and ".join(sources)
    try:
        warnings = check(config, explicit)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from None
    return Loaded(config, frozenset(explicit), source, warnings)


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Return every setting as plain JSON types; `load(None, base=to_dict(config))` gives them back."""
    return config.model_dump(mode="json")


def _renamed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that an older Kleash stored, with `algorithm.kl.controller.loosen` where it is now."""
    settings = _merge({}, stored)
    algorithm = settings.get("algorithm")
    kl = algorithm.get("kl") if isinstance(algorithm, dict) else None
    controller = kl.get("controller") if isinstance(kl, dict) else None
    if isinstance(controller, dict) and "loosen" in controller:
        settings["monitor"] = {"loosen": controller.pop("loosen")} | settings.get("monitor", {})
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = path.parent
        names = [entry.name for entry in folder.glob("*.toml")] if folder.is_dir() else []
        raise ConfigError(
            f"There is no file {path}.{near_match(path.name, names)} `kleash init {path}` writes one to start from."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {error.start}), which TOML must be. Save it as UTF-8, or give"
            " the TOML file of the run."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Give the TOML file of a run.") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_message(path, text, str(error))) from None


def _syntax_message(path: Path, text: str, error: str) -> str:
    """Say where the TOML breaks and show the line; tomllib gives the place only inside its message."""
    advice = "Strings need quotes, and each key = value a line of its own."
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", error, re.DOTALL)
    if found is None:
        return f"{path} is not TOML: {error}. {advice}"
    line = text.splitlines()[int(found[2]) - 1].strip()
    return f"{path}, line {found[2]}, column {found[3]}, is not TOML: {found[1]}, in\n    {line}\n{advice}"


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise ConfigError(
            f"'{override}' on the command line is not of the form key=value. Write a dotted key and its"
            " value, such as algorithm.kl.target_nats_per_sequence=6."
        )
    value: Any = _parse_value(".".join(names), text.strip())
    for name in reversed(names):
        value = {name: value}
    return dict(value)


def _parse_value(key: str, text: str) -> Any:
    """Read TOML, or else take the text itself; a setting that is a string takes digits as text too."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"] if parsed.keys() == {"value"} else text
    is_text = any(entry.key == key and entry.type == "a string" for entry in run_settings())
    return text if is_text and not isinstance(value, str) else value


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, `above` winning; tables are merged key by key, lists are replaced."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping):
            under = below.get(key)
            merged[key] = _merge(under if isinstance(under, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _fill_types(data: dict[str, Any]) -> None:
    """Name in place the algorithm and the controller that are meant where only their settings are given."""
    algorithm = data.get("algorithm")
    if not isinstance(algorithm, dict):
        return
    algorithm.setdefault("type", "rloo")
    kl = algorithm.get("kl")
    if algorithm["type"] in ("dpo", "sft", "reward_model"):
        return
    if isinstance(kl, dict) and isinstance(kl.get("controller"), dict):
        has_target = any(kl.get(name) is not None for name in ("target_nats_per_sequence", "target_nats_per_token"))
        kl["controller"].setdefault("type", "target" if has_target else "fixed")


def _anchored(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the file's settings with the paths that exist under its folder made absolute."""
    anchored = _merge({}, data)
    for table, name in PATHS:
        settings = anchored.get(table)
        if isinstance(settings, dict) and isinstance(settings.get(name), str):
            settings[name] = _anchored_path(settings[name], folder)
    reward = anchored.get("reward")
    if isinstance(reward, dict):
        if isinstance(reward.get("functions"), list):
            reward["functions"] = [_anchored_function(item, folder) for item in reward["functions"]]
        if "gold" in reward:
            reward["gold"] = _anchored_function(reward["gold"], folder)
    critic = anchored.get("algorithm", {}).get("critic")
    if isinstance(critic, dict) and isinstance(critic.get("start"), str):
        critic["start"] = _anchored_path(critic["start"], folder)
    return anchored


def _anchored_path(text: str, folder: Path) -> str:
    return str(folder / text) if text and text != BUILT_IN and (folder / text).exists() else text


def _anchored_function(reference: Any, folder: Path) -> Any:
    """Anchor `file.py:function`; anything else is returned as it is."""
    file, colon, function = reference.rpartition(":") if isinstance(reference, str) else ("", "", "")
    return _anchored_path(file, folder) + colon + function if file.endswith(".py") else reference
