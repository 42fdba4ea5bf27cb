"""Objects passed from Python that stand in for names in the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Given:
    """Objects passed from Python that stand in for names in the settings."""

    prompts: Any = None
    """Strings, dicts or a `datasets` object."""
    held_out: Any = None
    comparisons: Any = None
    """Dicts or a `datasets` object."""
    demonstrations: Any = None
    functions: Sequence[Callable[..., Any]] = ()
    gold: Callable[..., Any] | None = None
    model: Any = None
    """A loaded causal language model; it is trained in place."""
    tokenizer: Any = None


NOTHING_GIVEN = Given()
