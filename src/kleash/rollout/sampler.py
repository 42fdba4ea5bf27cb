"""What a sampler promises: samples from the policy at one temperature, untruncated, reproducible from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Completion:
    """One sampled response.

    `token_ids` ends with the stop token where `stopped`; otherwise the length limit cut it. `logprobs` are the
    sampler's own, at the sampling temperature, one a token.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool


Progress = Callable[[int, int], None]
"""Called while sampling with the positions decoded so far and the most there can be, batch after batch."""


class Sampler(Protocol):
    """Draws completions. The samples of one prompt are consecutive."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_samples: int,
        max_length: int,
        temperature: float,
        seed: int,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Draw `num_samples` completions of each prompt, in the order of prompts.

        The same seed, prompts, weights and batch size give the same samples on a CPU.
        """
        ...
