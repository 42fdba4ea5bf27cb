"""The pretraining mix of PPO-ptx: language modelling on general text, in the same update as the reward.

Adds gamma * (mean nats per token of text) to the loss of each update. Source: Ouyang et al. 2022 (InstructGPT), arXiv
2203.02155, equation 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from torch import Tensor

from kleash.config.schema import Pretraining
from kleash.data.demonstrations import load_demonstrations
from kleash.data.packing import chunk_documents
from kleash.models.batch import collate
from kleash.models.policy import Policy
from kleash.models.tokenizer import Tokenizer
from kleash.ops.logprobs import linear_logprobs
from kleash.training.seeds import prompts_of_step, seed_for


class Mix:
    """Rows of text, and how much of them an update learns."""

    def __init__(
        self, rows: Sequence[Sequence[int]], settings: Pretraining, seed: int, accelerator: Accelerator
    ) -> None:
        """Learn `settings.rows_per_update` of `rows` in each update, in endless shuffles."""
        self._rows, self._settings, self._seed, self._accelerator = rows, settings, seed_for(seed, "text"), accelerator

    def backward(self, policy: Policy, update: int) -> Tensor:
        """Add the gradient of gamma * loss; returns this process's part of the loss, nats per token."""
        chosen = prompts_of_step(len(self._rows), self._settings.rows_per_update, update, self._seed)
        tokens = sum(len(self._rows[i]) - 1 for i in chosen)
        total = torch.zeros((), device=policy.device)
        for i in chosen[self._accelerator.process_index :: self._accelerator.num_processes]:
            loss = text_loss(policy, [self._rows[i]]) / tokens
            (self._settings.gamma * loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total


def text_loss(policy: Policy, rows: Sequence[Sequence[int]]) -> Tensor:
    """Sum of -log p over every token of every row but its first; gradient to the trained weights."""
    batch = collate(
        [row[:1] for row in rows], [row[1:] for row in rows], pad=policy.tokenizer.pad_id, device=policy.device
    )
    return -linear_logprobs(policy.hidden(batch), policy.head, batch.targets).sum()


def text_rows(path: str, row_length: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Documents joined by the stop token and cut into rows of equal length.

    Raises:
        DataError: they cannot be read, or are too short for one row.
    """
    texts = [demonstration.completion for demonstration in load_demonstrations(path)]
    documents = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return chunk_documents(documents, row_length, tokenizer.stop_ids[0]).rows
