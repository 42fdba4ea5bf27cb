"""Random numbers that depend on what they are for, not on what was drawn before: a resumed run draws the same."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import lru_cache


def seed_for(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed of its own for each purpose.

    Example:
        >>> seed_for(0, "rollout", 3) == seed_for(0, "rollout", 3) != seed_for(0, "rollout", 4)
        True
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def prompts_of_step(num_prompts: int, per_step: int, step: int, seed: int) -> Sequence[int]:
    """Indices of a step's prompts: endless shuffles of all prompts, cut into steps."""
    first = step * per_step
    chosen = []
    for place in range(first, first + per_step):
        epoch, position = divmod(place, num_prompts)
        chosen.append(_order(num_prompts, epoch, seed)[position])
    return chosen


@lru_cache(maxsize=16)
def _order(num_prompts: int, epoch: int, seed: int) -> Sequence[int]:
    """All prompts in the order of one epoch."""
    order = list(range(num_prompts))
    random.Random(seed_for(seed, "prompts", epoch)).shuffle(order)
    return order
