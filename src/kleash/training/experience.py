"""What a step learns from: completions of some prompts, with their rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kleash.config.schema import Reward as RewardSettings
from kleash.data.render import RenderedPrompt
from kleash.models.tokenizer import Tokenizer
from kleash.rewards import feedback, shaping
from kleash.rewards.function import (
    REFERENCE_COMPLETIONS,
    Reward,
    RewardBatch,
    evaluate,
    resolve,
    reward_batch,
    score,
    takes,
)
from kleash.rewards.judge_reward import Preference, WinRate
from kleash.rollout.sampler import Completion

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rewards:
    """Rewards of B completions, `[B]` each; NaN where `scored` is False.

    `raw` is the weighted sum of the functions, `shaped` what is optimised, `gold` is only measured.
    """

    raw: Floats
    shaped: Floats
    gold: Floats | None
    scored: NDArray[np.bool_]
    num_clipped: int
    by_function: Mapping[str, Floats] = field(default_factory=dict)
    """Each function's own scores, where there are several."""
    asked: bool = True
    """Whether there was anything to ask for a score."""


@dataclass(frozen=True)
class Experience:
    """P prompts with G consecutive completions each: B = P G sequences."""

    prompts: Sequence[RenderedPrompt]
    completions: Sequence[Completion]
    texts: Sequence[str]
    rewards: Rewards

    @property
    def group_size(self) -> int:
        """G."""
        return len(self.completions) // len(self.prompts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each completion, stop token included, `[B]`."""
        return np.array([len(completion.token_ids) for completion in self.completions])


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of the raw reward under the starting policy, over `count` samples."""

    mean: float
    sd: float
    count: int


class Rewarder:
    """Scores completions with the functions of the `reward` table, and shapes the result."""

    def __init__(self, settings: RewardSettings, functions: Sequence[Reward], gold: Reward | None) -> None:
        """Use `functions` with the table's weights; `spread` is needed before rescaled rewards can be made."""
        self._settings, self._functions, self._gold = settings, list(functions), gold
        self._weights = settings.weights or (1.0,) * len(functions)
        self.spread: Spread | None = None
        everything = [*functions, *([] if gold is None else [gold])]
        self.wants_reference = any(takes(reward, REFERENCE_COMPLETIONS) for reward in everything)
        """Whether a reward compares with what the reference writes to the same prompts."""
        self.pairwise = any(isinstance(reward.function, Preference) for reward in functions)
        """Whether a reward compares the two samples of a prompt with each other."""
        self._measuring: Rewarder | None = None

    @classmethod
    def from_settings(
        cls,
        settings: RewardSettings,
        functions: Sequence[Callable[..., Any]] = (),
        gold: Callable[..., Any] | None = None,
        *,
        pairwise: bool = False,
    ) -> Rewarder:
        """Find functions, reward model and judge by name, or take the functions that are given.

        `pairwise`: samples come in pairs, and a judge compares the two of a pair.
        """
        wanted: list[str | Callable[..., Any]] = list(functions or settings.functions)
        found = [resolve(f, timeout=settings.timeout) for f in wanted]
        often = Counter(reward.name for reward in found)
        found = [
            resolve(f, name=_reference(f), timeout=settings.timeout) if often[reward.name] > 1 else reward
            for f, reward in zip(wanted, found, strict=True)
        ]
        found += [resolve(model) for model in feedback.sources(settings, pairwise=pairwise)]
        measured = gold or settings.gold
        return cls(settings, found, None if measured is None else resolve(measured, timeout=settings.timeout))

    def __call__(
        self,
        prompts: Sequence[RenderedPrompt],
        completions: Sequence[Completion],
        texts: Sequence[str],
        references: Sequence[str] | None = None,
    ) -> Rewards:
        """Rewards of B completions, each with its own entry of `prompts` and, where one is wanted, of `references`."""
        batch = reward_batch(prompts, texts)
        if references is not None:
            batch.columns[REFERENCE_COMPLETIONS] = reward_batch(prompts, references).completions
        if not self._functions:  # nothing is optimised: gold alone is measured
            return self._gold_alone(batch)
        scores = score(self._functions, self._weights, *batch)
        raw = _floats(scores.total)
        several = {name: _floats(values) for name, values in scores.by_function.items() if len(self._functions) > 1}
        gold = None if self._gold is None else _floats(evaluate(self._gold, *batch))
        return self.shaped(Rewards(raw, raw, gold, ~np.isnan(raw), 0, several), completions)

    def measuring(self) -> Rewarder:
        """The same rewards for samples that are only measured: a judge compares each with the reference's."""
        if not self.pairwise:
            return self
        if self._measuring is None:
            functions = [
                resolve(WinRate(reward.function.judge)) if isinstance(reward.function, Preference) else reward
                for reward in self._functions
            ]
            self._measuring = Rewarder(self._settings, functions, self._gold)
        self._measuring.spread = self.spread
        return self._measuring

    def judged(self) -> dict[str, float | None]:
        """What a judge's answers came to so far, by metric; nothing without a judge."""
        tallies = [r.function.tally for r in self._functions if isinstance(r.function, Preference | WinRate)]
        return {
            key: value
            for tally in tallies
            for key, value in (
                ("judge/asked", float(tally.asked)),
                ("judge/unread", float(tally.unparsable + tally.failed)),
                ("judge/both_orders_agree", tally.agreement),
                ("judge/cost", tally.cost),
            )
        }

    def _gold_alone(self, batch: RewardBatch) -> Rewards:
        rewards = unrewarded(len(batch.completions))
        return rewards if self._gold is None else replace(rewards, gold=_floats(evaluate(self._gold, *batch)))

    def shaped(self, rewards: Rewards, completions: Sequence[Completion]) -> Rewards:
        """The same rewards with `shaped` made of `raw` anew, as the spread is known now."""
        scored, shaped = rewards.scored, rewards.raw.copy()
        stopped = np.array([completion.stopped for completion in completions])
        lengths = np.array([len(completion.token_ids) for completion in completions])
        shaped[scored], clipped = self._shape(shaped[scored], stopped[scored], lengths[scored])
        return replace(rewards, shaped=shaped, num_clipped=clipped)

    def _shape(self, rewards: Floats, stopped: NDArray[np.bool_], lengths: NDArray[np.int64]) -> tuple[Floats, int]:
        settings, clipped = self._settings, 0
        if settings.rescale and self.spread is not None:
            rewards = shaping.rescale(rewards, self.spread.mean, self.spread.sd)
        if settings.clip is not None:
            rewards, clipped = shaping.clip(rewards, *settings.clip)
        rewards = shaping.missing_stop_penalty(rewards, stopped, settings.missing_stop_penalty)
        rewards = shaping.length_penalty(rewards, lengths, settings.length_penalty_from, settings.length_penalty)
        return rewards, clipped


def gather(
    prompts: Sequence[RenderedPrompt],
    completions: Sequence[Completion],
    tokenizer: Tokenizer,
    rewarder: Rewarder,
    opponents: Sequence[str] | None = None,
) -> Experience:
    """Decode and score P prompts' completions; `opponents` are what the reference wrote, one a prompt."""
    group = len(completions) // len(prompts)
    texts = [tokenizer.decode(completion.token_ids) for completion in completions]
    repeated = [prompt for prompt in prompts for _ in range(group)]
    references = None if opponents is None else [text for text in opponents for _ in range(group)]
    return Experience(prompts, completions, texts, rewarder(repeated, completions, texts, references))


def unrewarded(count: int) -> Rewards:
    """Rewards of samples that are only measured: none has a score."""
    nothing = np.full(count, np.nan)
    return Rewards(nothing, nothing, None, np.zeros(count, dtype=np.bool_), 0, asked=False)


def _reference(function: str | Callable[..., Any]) -> str:
    """`module:function`, the same in every process and after a resume."""
    if isinstance(function, str):
        return function
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
