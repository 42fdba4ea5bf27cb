"""From the words of a command line to the points of a sweep: which settings take several values, in every combination.

A comma between values makes a setting swept. Commas within quotes, lists and tables belong to one value.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kleash.errors import ConfigError

OWN = ("name", "output_dir")
"""Settings that say where a sweep is kept; its points lie in it."""
OPENING, CLOSING = "[{", "]}"
QUOTES = "\"'"
EXAMPLE = "algorithm.kl.beta=0,0.02,0.05"


@dataclass(frozen=True)
class Grid:
    """A file, the settings that all points share as `key=value`, and the values of those that are swept, as written."""

    file: Path | None
    fixed: tuple[str, ...]
    swept: Mapping[str, tuple[str, ...]]

    def combinations(self) -> list[dict[str, str]]:
        """Return the value of each swept key at every point; the last key varies fastest."""
        return [dict(zip(self.swept, values, strict=True)) for values in itertools.product(*self.swept.values())]


def read_grid(words: Sequence[str]) -> Grid:
    """Sort the words of a command line: a file, settings with one value, settings with several.

    Raises:
        ConfigError: two files, nothing swept, an empty value, a key that is swept and given again, or one that
            cannot be swept.
    """
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise ConfigError(
            f"There are {len(files)} files on the command line ({', '.join(files)}); a sweep varies one run. Give one "
            f"of them, and what varies as a setting with commas, such as {EXAMPLE}."
        )
    settings = [word for word in words if "=" in word]
    swept: dict[str, tuple[str, ...]] = {}
    for word in settings:
        key, values = _key(word), tuple(split_values(word.partition("=")[2]))
        if len(values) > 1:
            _check_swept(word, key, values, [_key(other) for other in settings])
            swept[key] = values
    if not swept:
        said = f"{' '.join(settings)} gives one value to each" if settings else "there is no setting with several"
        raise ConfigError(
            f"Nothing is swept: {said}. Separate the values of a setting by commas, without blanks, such as {EXAMPLE}."
        )
    return Grid(Path(files[0]) if files else None, tuple(word for word in settings if _key(word) not in swept), swept)


def split_values(text: str) -> list[str]:
    """Cut at the commas outside of quotes, lists and tables.

    Example:
        >>> split_values('0, 0.02')
        ['0', '0.02']
        >>> split_values('[-1, 1],[0, 1]')
        ['[-1, 1]', '[0, 1]']
        >>> split_values('"a, b",c')
        ['"a, b"', 'c']
    """
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            escaped = quote == '"' and (len(values[-1]) - len(values[-1].rstrip("\\"))) % 2 == 1
            quote = "" if character == quote and not escaped else quote
        elif character in QUOTES and (depth or not values[-1].strip()):
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            values.append("")
            continue
        values[-1] += character
    return [value.strip() for value in values]


def _key(word: str) -> str:
    return ".".join(name.strip() for name in word.partition("=")[0].split("."))


def _check_swept(word: str, key: str, values: Sequence[str], keys: Sequence[str]) -> None:
    if "" in values:
        raise ConfigError(
            f"'{word}' on the command line has an empty value beside a comma. Write the values without blanks between "
            f"them, such as {EXAMPLE}; text with a comma in it needs quotes of its own: '{key}=\"one, two\"'."
        )
    if key in OWN:
        raise ConfigError(
            f"'{word}' on the command line cannot be swept: {key} says where the sweep is kept, and its points are "
            "named by their values. Give it one value."
        )
    if keys.count(key) > 1:
        raise ConfigError(
            f"{key} is given {keys.count(key)} times on the command line, once with several values. Give all of its "
            "values in one list with commas."
        )
