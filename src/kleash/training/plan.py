"""How a step's samples are cut into updates, the same for the policy and its critic."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How a step's samples are cut into updates; `groups_per_batch` never changes the numbers."""

    temperature: float
    groups_per_batch: int
    num_minibatches: int
    num_epochs: int
    seed: int

    @property
    def single(self) -> bool:
        """Whether there is one update, which is then on-policy."""
        return self.num_minibatches * self.num_epochs == 1

    def minibatches(self, num_groups: int, step: int) -> list[Sequence[int]]:
        """The groups of each update: every epoch is a shuffle cut into `num_minibatches` (nearly) equal parts."""
        groups = list(range(num_groups))
        if self.single:
            return [groups]
        chosen: list[Sequence[int]] = []
        for epoch in range(self.num_epochs):
            order = list(groups)
            random.Random(f"{self.seed}/{step}/{epoch}").shuffle(order)
            chosen += [order[i :: self.num_minibatches] for i in range(self.num_minibatches)]
        return chosen
