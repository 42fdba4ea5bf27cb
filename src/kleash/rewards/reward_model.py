"""A trained reward model, or an ensemble of them, as a reward function.

It reads text: prompts and completions are encoded anew with the reward model's own tokenizer and chat template, as its
comparisons were in training. Token ids of a policy never reach it, so that policy and reward model may be of different
families.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64

from kleash.data.completions import completion_ids
from kleash.data.prompts import Prompt
from kleash.data.render import render
from kleash.errors import ConfigError, DataError
from kleash.models.batch import collate
from kleash.models.saved_reward import SavedReward, open_saved
from kleash.models.scalar_loading import load_saved, load_saved_tokenizer
from kleash.models.scalar_model import ScalarModel
from kleash.models.tokenizer import Tokenizer
from kleash.rewards import ensemble
from kleash.rewards.function import Text

Tokens = tuple[int, ...]
Scores = Float64[np.ndarray, "k B"]
Combination = Literal["mean", "worst_case", "mean_minus_sd"]


class RewardModel:
    """Call it as `f(prompts, completions) -> list[float]`: higher is better, one number a completion.

    The weights are read at the first call; everything else is checked before.
    """

    def __init__(
        self,
        saved: SavedReward,
        tokenizer: Tokenizer,
        combine: Callable[[Scores], Float64[np.ndarray, " B"]],
        *,
        batch_size: int = 16,
        device: torch.device | None = None,
    ) -> None:
        """Score with what was saved.

        Args:
            saved: the members and how they read texts.
            tokenizer: theirs.
            combine: from the members' scores `[k, B]` to one number a completion.
            batch_size: completions in a forward pass; never changes a score.
            device: default: a GPU where there is one.
        """
        self.saved, self._tokenizer, self._combine = saved, tokenizer, combine
        self._batch_size, self._device = batch_size, device
        self._model: ScalarModel | None = None

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        combine: Combination = "mean",
        sd_weight: float = 1.0,
        batch_size: int = 16,
        device: torch.device | None = None,
    ) -> RewardModel:
        """The reward model that a path means; its weights are not read yet.

        Args:
            path: a run (its newest checkpoint), a checkpoint, or a Hugging Face folder.
            combine: how members make one number: a function of `kleash.rewards.ensemble`.
            sd_weight: for `mean_minus_sd`.
            batch_size: completions in a forward pass; never changes a score.
            device: default: a GPU where there is one.

        Raises:
            ModelError: no reward model is found there, or its tokenizer cannot be read.
            ConfigError: batch_size is below 1.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size = {batch_size} scores nothing at a time. Give 1 or more")
        saved = open_saved(path)
        rules: dict[str, Callable[[Scores], Float64[np.ndarray, " B"]]] = {
            "mean": ensemble.mean,
            "worst_case": ensemble.worst_case,
            "mean_minus_sd": lambda scores: ensemble.mean_minus_sd(scores, sd_weight),
        }
        return cls(saved, load_saved_tokenizer(saved), rules[combine], batch_size=batch_size, device=device)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text]) -> list[float]:
        """Score completions.

        Args:
            prompts: one a completion: text, or messages that end before the answer.
            completions: text, or one message of the assistant's.

        Raises:
            DataError: not one prompt a completion, a completion that is several messages, or more tokens than the
                reward model reads.
        """
        return [float(score) for score in self._combine(self.member_scores(prompts, completions))]

    def member_scores(self, prompts: Sequence[Text], completions: Sequence[Text]) -> Scores:
        """Each member's own scores, of several with their origins taken off; arguments and errors as for a call."""
        rows = self._encode(prompts, completions)
        model = self._loaded()
        scores = np.zeros((model.num_members, len(rows)), dtype=np.float64)
        by_length = sorted(range(len(rows)), key=lambda index: sum(map(len, rows[index])))
        for start in range(0, len(rows), self._batch_size):
            chosen = by_length[start : start + self._batch_size]
            scores[:, chosen] = self._score([rows[index] for index in chosen], model)
        return np.asarray(scores - np.array(self.saved.origins)[:, None])

    @torch.no_grad()
    def _score(self, rows: Sequence[tuple[Tokens, Tokens]], model: ScalarModel) -> Scores:
        prompts, completions = zip(*rows, strict=True)
        batch = collate(prompts, completions, pad=self._tokenizer.pad_id, device=model.device)
        scores = [model.scores(batch, member) for member in range(model.num_members)]
        return torch.stack(scores).double().cpu().numpy()

    def _loaded(self) -> ScalarModel:
        if self._model is None:
            self._model = load_saved(self.saved, context=self._tokenizer.max_context, device=self._device)
        return self._model

    def _encode(self, prompts: Sequence[Text], completions: Sequence[Text]) -> list[tuple[Tokens, Tokens]]:
        """Prompt and completion tokens of each row, as in training."""
        if len(prompts) != len(completions):
            raise DataError(
                f"reward model {self._tokenizer.name}: {len(prompts)} prompts for {len(completions)} completions. "
                "Give one prompt a completion"
            )
        stop_id = self._tokenizer.stop_ids[0] if self.saved.rendering.append_stop else None
        rows = []
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            prompt_ids = self._prompt_ids(index, prompt)
            answer_ids = completion_ids(_answer(index, completion), self._tokenizer, None)
            if stop_id is not None and answer_ids[-1:] != (stop_id,):  # a policy may spell the stop token out
                answer_ids += (stop_id,)
            self._check_lengths(index, len(prompt_ids), len(answer_ids))
            rows.append((prompt_ids, answer_ids))
        return rows

    def _prompt_ids(self, index: int, prompt: Text) -> Tokens:
        """Rendered as in training; a conversation with a system message keeps its own."""
        rendering, where = self.saved.rendering, f"prompt {index} of the reward model's batch"
        if isinstance(prompt, str):
            given = Prompt(None, prompt, {}, where)
            has_system = False
        else:
            given = Prompt(tuple(dict(message) for message in prompt), None, {}, where)
            has_system = prompt[0]["role"] in ("system", "developer")
        (rendered,) = render(
            [given],
            replace(self._tokenizer, max_context=sys.maxsize),  # its length is checked with the completion's
            max_completion_length=0,
            system_prompt=None if has_system else rendering.system_prompt,
            as_chat=rendering.as_chat,
        )
        return rendered.token_ids

    def _check_lengths(self, index: int, prompt: int, completion: int) -> None:
        limit = self._tokenizer.max_context
        if prompt == 0:
            raise DataError(
                f"prompt {index} has no token in the tokenizer of the reward model {self._tokenizer.name}: there is "
                "nothing to answer. Remove the prompt, or use another reward model"
            )
        if prompt + completion > limit:
            raise DataError(
                f"prompt {index} has {prompt} tokens and its completion {completion}, together {prompt + completion}: "
                f"the reward model {self._tokenizer.name} reads {limit} at most. Shorten or remove the prompt, lower "
                "rollout.max_completion_length, or use a reward model with a longer context"
            )


def _answer(index: int, completion: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(completion, str):
        return completion
    if len(completion) != 1 or completion[0].get("role") != "assistant":
        roles = [message.get("role") for message in completion]
        raise DataError(
            f"completion {index} is a list of messages with the roles {roles}. A reward model scores one answer: give "
            "text, or one message of the assistant's"
        )
    return str(completion[0]["content"])
