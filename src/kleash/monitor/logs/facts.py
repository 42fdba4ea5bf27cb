"""What a log says of its run besides the numbers: beta, the target, how long it is, the reference's own replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kleash.monitor.log import Log
from kleash.monitor.logs.raw import to_number
from kleash.monitor.logs.trainers import KLEASH
from kleash.monitor.rule import Facts

HELD_OUT = "eval/"


def facts_of(log: Log, beta: float | None = None) -> Facts:
    """Return what the rules may know of a run besides its numbers.

    Args:
        log: the run.
        beta: reward per nat, where the user says it.
    """
    if log.source != KLEASH:
        return Facts(beta=_first(beta, log.settings.get("beta")), steps=_count(log.settings.get("max_steps")))
    algorithm, training = _table(log.settings, "algorithm"), _table(log.settings, "training")
    return Facts(
        beta=_first(beta, algorithm.get("beta")),
        target_key=_target_key(_table(algorithm, "kl")),
        steps=_count(training.get("steps")),
        reference=_reference(log),
    )


def _first(told: float | None, logged: object) -> float | None:
    return to_number(logged) if told is None else told


def _count(value: object) -> int | None:
    """Return a number of steps; trainers write -1 for one that follows from epochs."""
    number = to_number(value)
    return int(number) if number is not None and number > 0 else None


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def _target_key(kl: Mapping[str, Any]) -> str | None:
    keys = {"target_nats_per_sequence": "kl/exact_per_sequence", "target_nats_per_token": "kl/exact_per_token"}
    return next((key for setting, key in keys.items() if kl.get(setting) is not None), None)


def _reference(log: Log) -> dict[str, float]:
    """Return the numbers of the evaluation before training, when policy and reference were one."""
    first = next((step for step in log.steps if step.step == 0), None)
    measured = first.metrics.items() if first is not None else ()
    return {
        key.removeprefix(HELD_OUT): value for key, value in measured if key.startswith(HELD_OUT) and value is not None
    }
