"""The rewards of a run, optimised or only measured, from its settings and what was passed from Python."""

from __future__ import annotations

from kleash.config.schema import Reward, RunConfig
from kleash.training.experience import Rewarder
from kleash.training.given import Given


def rewarder_of(config: RunConfig, given: Given) -> Rewarder:
    """The rewards of the `reward` table; a run without one measures none.

    Raises:
        KleashError: a function, model or judge that cannot be used.
    """
    settings = config.reward or Reward()
    pairwise = config.algorithm.type == "online_dpo"
    return Rewarder.from_settings(settings, given.functions, given.gold, pairwise=pairwise)
