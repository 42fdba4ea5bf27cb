"""What models are called where several stand side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence

CHECKPOINT = re.compile(r"(?P<run>.+?)(?:@|/checkpoints/step_)(?P<step>\d+)/?$")


def short_name(name: str) -> str:
    """Return the last part of a path or hub id."""
    return name.rstrip("/").rpartition("/")[2]


def short_names(names: Sequence[str]) -> list[str]:
    """Return the last part of each name, or the names as they are where two would be the same."""
    shortened = [short_name(name) for name in names]
    return shortened if len(set(shortened)) == len(shortened) else list(names)


def checkpoint_steps(names: Sequence[str]) -> list[int] | None:
    """Return the steps of names such as `runs/a@20` or `runs/a/checkpoints/step_20`; None unless all are of one run."""
    found = [match for match in map(CHECKPOINT.match, names) if match]
    if len(found) < len(names) or len({match["run"] for match in found}) != 1:
        return None
    return [int(match["step"]) for match in found]
