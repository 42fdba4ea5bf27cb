"""The rewards of a run, optimised or only measured, from its settings and what was passed from Python."""

from __future__ import annotations

from kleash.config.algorithms import Ppo
from kleash.config.schema import Reward, RunConfig
from kleash.models import saved_reward
from kleash.training.experience import Rewarder
from kleash.training.given import Given


def pinned(config: RunConfig) -> RunConfig:
    """The same settings with reward models named by checkpoint, so that a resumed run has the very same ones.

    Raises:
        ModelError: there is no such reward model.
    """
    reward, algorithm = config.reward, config.algorithm
    if reward is not None and reward.model is not None:
        reward = reward.model_copy(update={"model": saved_reward.pinned(reward.model)})
    if isinstance(algorithm, Ppo) and algorithm.critic.start is not None:
        critic = algorithm.critic.model_copy(update={"start": saved_reward.pinned(algorithm.critic.start)})
        algorithm = algorithm.model_copy(update={"critic": critic})
    return config.model_copy(update={"reward": reward, "algorithm": algorithm})


def rewarder_of(config: RunConfig, given: Given) -> Rewarder:
    """The rewards of the `reward` table; a run without one measures none.

    Raises:
        KleashError: a function, model or judge that cannot be used.
    """
    settings = config.reward or Reward()
    pairwise = config.algorithm.type == "online_dpo"
    return Rewarder.from_settings(settings, given.functions, given.gold, pairwise=pairwise)
