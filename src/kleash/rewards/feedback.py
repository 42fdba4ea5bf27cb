"""The rewards of the `reward` table that are models: a reward model, a judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kleash.config.schema import Reward


def sources(settings: Reward, *, pairwise: bool) -> list[Callable[..., Any]]:
    """The reward model, then the judge, where the table has them; their weights are read when first called.

    `pairwise`: samples come in pairs of one prompt, which the judge compares with one another; else each is compared
    with the reference's completion.

    Raises:
        KleashError: there is no such model, or it cannot be a reward.
    """
    found: list[Callable[..., Any]] = []
    if settings.model is not None:
        from kleash.rewards.reward_model import RewardModel

        found.append(RewardModel.from_folder(settings.model, combine=settings.combine, sd_weight=settings.sd_weight))
    if settings.judge is not None:
        from kleash.rewards.judge_reward import Preference, WinRate, make_judge

        judge = make_judge(settings.judge)
        found.append(Preference(judge) if pairwise else WinRate(judge))
    return found
