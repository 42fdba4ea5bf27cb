"""Task scores of both models beside the drift: functions applied to their replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kleash.data.render import RenderedPrompt
from kleash.gauge import statistics
from kleash.gauge.directions import Drawn
from kleash.gauge.records import Score
from kleash.models.tokenizer import Tokenizer
from kleash.rewards.function import Reward, evaluate, resolve, reward_batch

ScoreSpec = str | Callable[..., Any]


def resolved(specs: Sequence[ScoreSpec]) -> list[Reward]:
    """Find the scoring functions, each `module:function`, `path/to/file.py:function` or itself.

    Raises:
        ConfigError: there is no such function.
    """
    return [resolve(spec) for spec in specs]


def measured(
    rewards: Sequence[Reward],
    tuned: Drawn,
    reference: Drawn,
    prompts: Sequence[RenderedPrompt],
    tokenizer: Tokenizer,
) -> list[Score]:
    """Mean score of the replies of each model, and the difference paired by prompt; unscored replies are left out.

    Raises:
        DataError: a function raised, or returned something that is not one number or None a reply.
    """
    found = []
    for reward in rewards:
        before, of_before = _values(reward, reference, prompts, tokenizer)
        after, of_after = _values(reward, tuned, prompts, tokenizer)
        common = np.intersect1d(of_before, of_after)
        gaps = [after[of_after == prompt].mean() - before[of_before == prompt].mean() for prompt in common]
        found.append(
            Score(
                reward.name,
                statistics.mean(before, of_before),
                statistics.mean(after, of_after),
                statistics.mean(gaps, common),
            )
        )
    return found


def _values(reward: Reward, drawn: Drawn, prompts: Sequence[RenderedPrompt], tokenizer: Tokenizer) -> tuple[Any, Any]:
    """Scores and the prompts they belong to, without the replies that have none."""
    texts = [tokenizer.decode(completion.token_ids) for completion in drawn.completions]
    batch = reward_batch([prompts[index] for index in drawn.prompts], texts)
    scores = evaluate(reward, batch.prompts, batch.completions, batch.columns)
    kept = [(score, index) for score, index in zip(scores, drawn.prompts, strict=True) if score is not None]
    return np.array([score for score, _ in kept]), np.array([index for _, index in kept], dtype=np.int64)
