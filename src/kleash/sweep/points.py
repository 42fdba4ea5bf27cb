"""The points of a sweep: settings that were checked, and a name that can be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kleash.config.describe import toml
from kleash.config.loader import Loaded, load, to_dict
from kleash.errors import ConfigError
from kleash.sweep.grid import OWN, Grid

LONGEST_VALUE = 40
"""Characters of a value in a name."""
SHOWN_ERRORS = 3


@dataclass(frozen=True, eq=False)
class Point:
    """One run of a sweep.

    Attributes:
        name: of its folder, such as `beta_0.02-seed_1`.
        values: value of each swept key, as written.
        settings: every setting that was given, by dotted key; all others are defaults.
    """

    name: str
    values: Mapping[str, str]
    settings: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The swept values in short: "beta=0.02 seed=1"."""
        shorts = short_keys(self.values)
        return " ".join(f"{shorts[key]}={value}" for key, value in self.values.items())

    @property
    def toml(self) -> str:
        """The settings as a file that `kleash train` takes."""
        return "".join(f"{key} = {toml(value)}\n" for key, value in self.settings.items())


@dataclass(frozen=True)
class Checked:
    """The points of a grid, where they are to be kept, and what to mention."""

    points: tuple[Point, ...]
    output_dir: str
    name: str
    warnings: tuple[str, ...]


def check_points(grid: Grid) -> Checked:
    """Load and check every point; no weight is read.

    Raises:
        ConfigError: points that cannot work, each named; or two that are the same run.
    """
    combinations = grid.combinations()
    shorts = short_keys(grid.swept)
    loaded: list[Loaded] = []
    wrong: dict[str, list[str]] = {}
    for values in combinations:
        try:
            loaded.append(load(grid.file, [*grid.fixed, *(f"{key}={value}" for key, value in values.items())]))
        except ConfigError as error:
            said = " ".join(f"{shorts[key]}={value}" for key, value in values.items())
            wrong.setdefault(str(error), []).append(said)
    if wrong:
        raise ConfigError(_wrong(wrong, len(combinations)))
    names = _names(combinations)
    points = tuple(
        Point(name, values, _given(one)) for name, values, one in zip(names, combinations, loaded, strict=True)
    )
    _check_different(points, loaded)
    config = loaded[0].config
    stem = config.algorithm.type if grid.file is None else grid.file.stem
    return Checked(
        points=points,
        output_dir=config.output_dir,
        name=config.name or "-".join([stem, *shorts.values()]),
        warnings=tuple(dict.fromkeys(warning for one in loaded for warning in one.warnings)),
    )


def short_keys(keys: Mapping[str, object]) -> dict[str, str]:
    """Return for each dotted key the shortest ending that no other key has."""
    shorts = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[start:]) for start in reversed(range(len(parts)))]
        others = [f".{other}" for other in keys if other != key]
        shorts[key] = next(ending for ending in endings if not any(other.endswith(f".{ending}") for other in others))
    return shorts


def _names(combinations: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a folder name for each point; a number sets apart those that would look alike."""
    shorts = short_keys(combinations[0])
    names: list[str] = []
    for values in combinations:
        name = "-".join(f"{shorts[key]}_{_plain(value)}" for key, value in values.items())
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _plain(value: str) -> str:
    """Return a value as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", value).strip("_")[:LONGEST_VALUE] or "empty"


def _given(loaded: Loaded) -> dict[str, Any]:
    """Return the settings that were given, paths made absolute where the file's folder has them."""
    found: dict[str, Any] = {}
    for key in sorted(loaded.explicit):
        value: Any = to_dict(loaded.config)
        for name in key.split("."):
            value = value[name]
        if key not in OWN:
            found[key] = value
    return found


def _wrong(wrong: Mapping[str, Sequence[str]], count: int) -> str:
    """Name the points that cannot work, and why; many that fail alike are cut short."""
    bad = sum(len(points) for points in wrong.values())
    said = [f"{', '.join(points)}: {error}" for error, points in wrong.items()]
    left = f"\nand {len(said) - SHOWN_ERRORS} more" if len(said) > SHOWN_ERRORS else ""
    return f"{bad} of the {count} points cannot work, so none was started.\n" + "\n".join(said[:SHOWN_ERRORS]) + left


def _check_different(points: Sequence[Point], loaded: Sequence[Loaded]) -> None:
    seen: list[Loaded] = []
    for point, one in zip(points, loaded, strict=True):
        same = next((index for index, other in enumerate(seen) if other.config == one.config), None)
        if same is not None:
            raise ConfigError(
                f"{points[same].label} and {point.label} are one and the same run, and it would be trained twice. "
                "Give each value once; for repeats, sweep training.seed."
            )
        seen.append(one)
