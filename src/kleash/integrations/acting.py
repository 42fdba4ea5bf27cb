"""What the callback can do about an alarm in somebody else's trainer: shorten its leash, or end the training."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from kleash.errors import ConfigError, near_match
from kleash.integrations.watching import trusted_checkpoint
from kleash.monitor import actions
from kleash.monitor.actions import Action
from kleash.runs.records import Event

Rung = Literal["tighten", "stop"]

RUNGS: tuple[str, ...] = get_args(Rung)
ACT_ON = ("warning", "critical")
WITH_A_LEASH = ("GRPOTrainer", "RLOOTrainer")
"""TRL's trainers that read `trainer.beta`, the price of drift, at every step."""


def check_ladder(ladder: Sequence[str], act_on: str, patience: int, tighten_by: float) -> None:
    """Refuse a ladder that cannot be climbed.

    Raises:
        ConfigError: an unknown rung, one after the end, or a number that cannot work.
    """
    for rung in ladder:
        if rung == "roll_back":
            raise ConfigError(
                "ladder has 'roll_back': the trainer's weights, optimiser and data cannot be put back under it while "
                "it trains. Use 'stop': its message names the newest checkpoint that lies under no alarm, and "
                "trainer.train(resume_from_checkpoint=...) goes on from there"
            )
        if rung not in RUNGS:
            raise ConfigError(
                f"ladder has {rung!r}, which is no action.{near_match(rung, RUNGS)} Give 'tighten', 'stop'"
            )
    if "stop" in ladder[:-1]:
        raise ConfigError(f"ladder = {list(ladder)} goes on after 'stop', which ends the training. Put 'stop' last")
    if act_on not in ACT_ON:
        raise ConfigError(f"act_on = {act_on!r} is no severity of an alarm. Give 'warning' or 'critical'")
    if patience < 1:
        raise ConfigError(
            f"patience = {patience}: the next rung needs a step to show what the last did. Give 1 or more"
        )
    if not 0 < tighten_by < 1:
        raise ConfigError(f"tighten_by = {tighten_by}: beta is divided by it to grow. Give a number between 0 and 1")


def check_ways_to_tell(webhook: str | None, command: str | None) -> None:
    """Refuse an address that is none, and a command line that is none.

    Raises:
        ConfigError: such a one.
    """
    if webhook is not None:
        address = urlsplit(webhook)
        if address.scheme not in ("http", "https") or not address.netloc:
            raise ConfigError(f"webhook = {webhook!r} is no web address. Give one with http:// or https:// in front")
    if command is not None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(
                f"command = {command!r} cannot be split into words ({error}). Close its quotes"
            ) from error
        if not words:
            raise ConfigError(f"command = {command!r} names no program. Give one, or leave it out")


def check_leash(trainer: Any) -> None:
    """Refuse to tighten where there is no beta that moves.

    Args:
        trainer: the trainer, or None where the callback was not attached to it.

    Raises:
        ConfigError: there is none, with the reason.
    """
    if trainer is None:
        raise ConfigError(
            "ladder has 'tighten', which divides the trainer's beta, and the callback does not know the trainer: it "
            "was passed as callbacks=[...]. Join it with KleashCallback(...).attach(trainer) instead"
        )
    name = type(trainer).__name__
    if not has_leash(trainer):
        raise ConfigError(
            f"ladder has 'tighten', and {name} has no beta that is the price of drift alone and can move in mid-run: "
            f"only TRL's {' and '.join(WITH_A_LEASH)} do. Use ladder=['stop']"
        )
    if trainer.beta == 0:
        raise ConfigError(
            f"ladder has 'tighten', and {name} has beta = 0: TRL then loads no reference model, and 0 stays 0 whatever "
            "it is divided by. Give it a beta above 0, or use ladder=['stop']"
        )


def has_leash(trainer: Any) -> bool:
    """Whether a trainer, or what it derives from, reads its beta anew at every step."""
    return any(cls.__name__ in WITH_A_LEASH for cls in type(trainer).__mro__)


def tighten(trainer: Any, by: float, action: Action, step: int) -> Event:
    """Divide the trainer's beta by `by`, from its next step on, and return the event that says so."""
    before = float(trainer.beta)
    trainer.beta = before / by
    return actions.tightened(step, action, f"beta from {before:.4g} to {trainer.beta:.4g}", before, trainer.beta)


def tightened_beta(events: Iterable[Event]) -> float | None:
    """The beta that the recorded events left; None if it was never touched."""
    values = [event.values["after"] for event in events if event.name == actions.TIGHTEN]
    return values[-1] if values else None


def stop(action: Action, step: int, run_dir: Path) -> Event:
    """Return the event of a training that ends here, with its alarm and the checkpoint to go on from."""
    ended = actions.stopped(step, action)
    trusted = trusted_checkpoint(run_dir)
    onward = (
        "No checkpoint on disk is free of alarms."
        if trusted is None
        else f"The newest checkpoint under no alarm is {trusted}: go on with resume_from_checkpoint={str(trusted)!r}."
    )
    words = (ended.message, action.alarm.message, action.alarm.advice, onward)
    return Event(step, ended.severity, ended.name, " ".join(filter(None, words)), ended.values)
