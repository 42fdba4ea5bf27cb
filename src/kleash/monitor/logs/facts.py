"""What a log says of its run besides the numbers: beta, the target, how long it is, the reference's own replies."""

from __future__ import annotations

from dataclasses import replace

from kleash.monitor.facts import facts_of_run
from kleash.monitor.log import Log
from kleash.monitor.logs.raw import to_number
from kleash.monitor.logs.trainers import KLEASH
from kleash.monitor.rule import Facts


def facts_of(log: Log, beta: float | None = None) -> Facts:
    """Return what the rules may know of a run besides its numbers.

    Args:
        log: the run.
        beta: reward per nat, where the user says it.
    """
    if log.source != KLEASH:
        return Facts(beta=_first(beta, log.settings.get("beta")), steps=_count(log.settings.get("max_steps")))
    facts = facts_of_run(log.settings, log.steps[0] if log.steps else None)
    return facts if beta is None else replace(facts, beta=beta)


def _first(told: float | None, logged: object) -> float | None:
    return to_number(logged) if told is None else told


def _count(value: object) -> int | None:
    """Return a number of steps; trainers write -1 for one that follows from epochs."""
    number = to_number(value)
    return int(number) if number is not None and number > 0 else None
