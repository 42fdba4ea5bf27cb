"""What a log says of its run besides the numbers: beta, the target, the reference's own replies, how long it is."""

from __future__ import annotations

from dataclasses import replace

from kleash.metrics import HELD_OUT
from kleash.monitor.facts import facts_of_run
from kleash.monitor.log import Log
from kleash.monitor.logs.naming import DRIFT
from kleash.monitor.logs.raw import to_number
from kleash.monitor.logs.trainers import KLEASH, trainer_of
from kleash.monitor.rule import Facts


def facts_of(log: Log, beta: float | None = None) -> Facts:
    """Return what the rules may know of a run besides its numbers.

    Args:
        log: the run.
        beta: reward per nat, where the user says it.
    """
    if log.source == KLEASH:
        facts = facts_of_run(log.settings, log.steps[0] if log.steps else None)
        return facts if beta is None else replace(facts, beta=beta)
    trainer = trainer_of(log.source)
    known = to_number(log.settings.get("beta")) if beta is None else beta
    return Facts(
        beta=known,
        beta_above_zero=known is None and trainer.kl_needs_beta and _has_kl(log),
        before_updates=0 if _first_step(log) == 0 else trainer.before_updates,
    )


def planned_steps(log: Log) -> int | None:
    """Return how many steps another trainer's run is to have; trainers write -1 where that follows from epochs."""
    number = to_number(log.settings.get("max_steps"))
    return int(number) if number is not None and number > 0 else None


def _first_step(log: Log) -> int | None:
    """Return the first step with a number of training; W&B's own count of them begins at 0 for every trainer."""
    measured = (step.step for step in log.steps if not all(key.startswith(HELD_OUT) for key in step.metrics))
    return next(measured, None)


def _has_kl(log: Log) -> bool:
    """Whether the trainer itself logged a KL to the reference: exact ones are the callback's."""
    keys = {key for step in log.steps for key in step.metrics}
    return any(key.startswith(DRIFT) and "exact" not in key for key in keys)
