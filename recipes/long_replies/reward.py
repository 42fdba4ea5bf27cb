"""Plain words: the share of words with at most five letters, whatever the reply's length."""

from __future__ import annotations

import re
from typing import Any

LETTERS = 5


def plain_words(prompts: list[Any], completions: list[Any], **columns: list[Any]) -> list[float | None]:
    """One share in [0, 1] a reply; None for a reply without words."""
    return [
        _share(completion[0]["content"] if isinstance(completion, list) else completion) for completion in completions
    ]


def _share(text: str) -> float | None:
    words = re.findall(r"[A-Za-z]+", text)
    return sum(len(word) <= LETTERS for word in words) / len(words) if words else None
