"""Which job an algorithm is: the table from `algorithm.type` to the module that prepares it."""

from __future__ import annotations

from collections.abc import Callable

from kleash.config.monitor_checks import check_ways_to_tell
from kleash.config.schema import RunConfig
from kleash.monitor.monitor import check_names
from kleash.training import imitation, on_policy, preference, reward_modelling
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import Prepared

PREPARE: dict[str, Callable[[RunConfig, Given], Prepared]] = {
    "rloo": on_policy.prepare,
    "grpo": on_policy.prepare,
    "ppo": on_policy.prepare,
    "online_dpo": on_policy.prepare,
    "dpo": preference.prepare,
    "sft": imitation.prepare,
    "reward_model": reward_modelling.prepare,
}


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> Prepared:
    """All that can fail before weights are read.

    Raises:
        KleashError: settings, data, functions or names that cannot be used.
    """
    check_names(config.monitor.ignore)
    check_ways_to_tell(config.monitor)
    return PREPARE[config.algorithm.type](config, given)
