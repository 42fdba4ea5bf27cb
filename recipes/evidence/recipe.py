"""What a recipe of evidence is: a claim, the runs that test it, what is measured of them, and what that says.

A recipe is a folder under recipes/ with `run.toml`, `README.md` and `evidence.py`, a module with the names of
`Recipe`. What was measured is kept beside them in `results.json`; README.md, the picture and docs/evidence.md are
written from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Measured = Mapping[str, Any]
"""In JSON's types."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        values: of the settings that the recipe varies, as written, by dotted key.
        path: its run directory.
    """

    values: Mapping[str, str]
    path: Path


@dataclass(frozen=True)
class Expectation:
    """A claim, what was expected of a number, what came out, and whether that is as expected."""

    claim: str
    expected: str
    measured: str
    held: bool


@dataclass(frozen=True)
class Section:
    """What a recipe has to show.

    Attributes:
        expectations: each claim with what became of it.
        parts: tables and sentences in Markdown, in the order of reading.
        picture: a whole SVG file.
        caption: what the picture shows, for those who cannot see it.
    """

    expectations: Sequence[Expectation]
    parts: Sequence[str]
    picture: str
    caption: str


class Recipe(Protocol):
    """The names of a recipe's module."""

    def train(self, folder: Path, jobs: int | None) -> Sequence[Run]:
        """Train what `folder` does not hold yet, up to so many runs at once, and return all runs."""

    def measure(self, runs: Sequence[Run], folder: Path) -> Measured:
        """Return what is to be known of the runs; `folder` is theirs, and keeps what should not be made twice."""

    def section(self, measured: Measured) -> Section:
        """Return what the numbers say."""
