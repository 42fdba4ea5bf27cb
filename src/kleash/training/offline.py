"""What jobs that learn from written rows share: which rows a step takes, how they are cut, and numbers by prompt."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from kleash.config.schema import RunConfig
from kleash.data.completions import RenderedComparison
from kleash.data.render import RenderedPrompt
from kleash.errors import DataError, RunStopped
from kleash.models.device import free_bytes
from kleash.training.experience import Floats
from kleash.training.memory import CPU_ACTIVATION_BYTES, GPU_SHARE, activation_bytes_per_token
from kleash.training.observer import CheckResult, Observer
from kleash.training.optimizer import Optimizer
from kleash.training.seeds import prompts_of_step, seed_for
from kleash.training.statistics import Numbers

Part = TypeVar("Part")

SAMPLED_PROMPTS = 64
"""Distinct held-out prompts at most that a policy is sampled on while it learns from written rows."""


def rows_of_step(config: RunConfig, num_rows: int, step: int, accelerator: Accelerator, *purpose: str) -> list[int]:
    """This process's share of a step's rows: endless shuffles of all of them, one order for each purpose."""
    training = config.training
    seed = seed_for(training.seed, *purpose) if purpose else training.seed
    chosen = prompts_of_step(num_rows, training.prompts_per_step, step, seed)
    return list(chosen[accelerator.process_index :: accelerator.num_processes])


def check_share(config: RunConfig, accelerator: Accelerator, sampled_on: int = 0) -> None:
    """Refuse what does not divide among processes: their rows would not count alike.

    Args:
        config: the run's settings.
        accelerator: how many processes there are.
        sampled_on: held-out prompts that an evaluation samples on; 0 for none.

    Raises:
        DataError: a step does not divide, or there are fewer held-out prompts than processes.
    """
    per_step, processes = config.training.prompts_per_step, accelerator.num_processes
    if per_step % processes:
        raise DataError(
            f"prompts_per_step = {per_step} does not divide among {processes} processes. Use a multiple of the number "
            "of processes"
        )
    if 0 < sampled_on < processes:
        raise DataError(
            f"{sampled_on} held-out prompts cannot be shared among {processes} processes. "
            "Hold out at least one each, or none"
        )


def of_all(accelerator: Accelerator, part: Part) -> list[Part]:
    """What each process has, in their order."""
    return [part] if accelerator.num_processes == 1 else list(gather_object([part]))


def cut(chosen: Sequence[int], lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Cut rows into micro-batches of like length, each at most `tokens_per_batch` tokens with its padding.

    Args:
        chosen: indices of rows.
        lengths: tokens of each row, by index.
        tokens_per_batch: what fits into memory; a longer row is a micro-batch of its own.
    """
    batches: list[list[int]] = []
    for i in sorted(chosen, key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[i] <= tokens_per_batch:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def tokens_per_batch(
    config: RunConfig, backbone: Any, device: torch.device, dtype: torch.dtype, longest: int, num_rows: int
) -> int:
    """Tokens of a forward and backward pass: as memory allows, or as `gradient_accumulation_steps` cuts a step.

    Args:
        config: the run's settings.
        backbone: the model whose activations have to fit.
        device: where it is.
        dtype: of its compute.
        longest: tokens of the longest row.
        num_rows: rows of a step in this process.
    """
    accumulation = config.training.gradient_accumulation_steps
    if accumulation != "auto":
        return longest * -(-num_rows // accumulation)
    budget = int(GPU_SHARE * free_bytes(device)) if device.type == "cuda" else CPU_ACTIVATION_BYTES
    return max(longest, budget // activation_bytes_per_token(backbone, dtype, longest))


def by_prompt(numbers: Numbers, key: str, values: Floats, prompts: Sequence[str]) -> None:
    """Record the mean of `[N]` values with its standard error over prompts: rows of one prompt resemble each other.

    Where all rows have the same prompt, it is no question but a lead to standing texts: the rows are the units then.
    """
    different, owner = np.unique(np.array(prompts), return_inverse=True)
    if len(different) == 1:
        owner = np.arange(len(values))
    sums = np.bincount(owner, weights=values).astype(np.float64)
    counts = np.bincount(owner).astype(np.float64)
    numbers.ratio(key, sums, counts, 1)


@dataclass
class Clock:
    """Times one update and counts its tokens."""

    began: float
    tokens: int = 0

    @classmethod
    def start(cls) -> Clock:
        """Now."""
        return cls(time.perf_counter())

    def account(self, numbers: Numbers, optimizer: Optimizer, grad_norm: float, step: int) -> None:
        """Put the optimiser's numbers and the seconds of the step beside the others."""
        seconds = time.perf_counter() - self.began
        numbers.metrics |= {
            "optim/grad_norm": grad_norm,
            "optim/learning_rate": optimizer.learning_rate(step),
            "time/total": seconds,
            "throughput/tokens_per_second": self.tokens / seconds,
        }


def report(observer: Observer, config: RunConfig, result: CheckResult) -> None:
    """Tell how a check came out, and end the run if it failed and was not to be skipped.

    Raises:
        RunStopped: it failed.
    """
    observer.checked(result)
    if not result.passed and result.name not in config.skip_checks:
        raise RunStopped(f'preflight failed: {result.detail}. Mend that, or set skip_checks = ["{result.name}"]')


def pair_length(row: RenderedComparison) -> int:
    """Tokens of a comparison's prompt with its longer side."""
    return len(row.prompt.token_ids) + max(len(row.chosen_ids), len(row.rejected_ids))


def pair_size(row: RenderedComparison) -> int:
    """Tokens of both sides of a comparison, each with its prompt and padding."""
    return 2 * pair_length(row)


def digest(rows: object) -> str:
    """SHA-256 of rows of token ids, in their order."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def distinct_prompts(prompts: Sequence[RenderedPrompt]) -> list[RenderedPrompt]:
    """The first of each prompt, `SAMPLED_PROMPTS` at most."""
    first = {prompt.token_ids: prompt for prompt in reversed(prompts)}
    found = [prompt for prompt in prompts if first.get(prompt.token_ids) is prompt]
    return found[:SAMPLED_PROMPTS]


def tell_filtered(observer: Observer, what: str, kept: int, filtered: Mapping[str, int]) -> None:
    """Say how many rows there are, and how many were left out and why."""
    reasons = "; ".join(f"{count} left out: {reason}" for reason, count in filtered.items())
    observer.fact(f"data       {kept} {what}" + (f"; {reasons}" if reasons else ""))


def tell_cost(observer: Observer, config: RunConfig, num_rows: int, seconds_per_step: float, trained: int) -> None:
    """Say how long the run will take, and how often it reads its rows."""
    training = config.training
    passes = training.steps * training.prompts_per_step / num_rows
    observer.fact(
        f"cost       {trained / 1e6:.1f}M weights to train; {passes:.1f} passes over {num_rows} rows in "
        f"{training.steps} steps, about {seconds_per_step * training.steps / 60:.0f} min"
    )
