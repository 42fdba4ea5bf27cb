"""Whether what a run is to do about alarms can be done: refused before weights are read, with the reason.

What depends on the machine, programs and environment variables, is looked at where a run begins, not where settings are
read: a run can be looked at and exported elsewhere.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

from kleash.config.algorithms import Controller, FixedBeta, OnlineDpo, OnPolicy, TargetBeta
from kleash.config.schema import Monitor, RunConfig
from kleash.errors import ConfigError


def monitor_contradictions(config: RunConfig, controller: Controller | None) -> Iterator[str]:
    """Yield a sentence for each thing that cannot work.

    Args:
        config: a valid configuration.
        controller: of beta; None for an algorithm that has none.
    """
    monitor = config.monitor
    if "tighten" in monitor.ladder:
        yield from _tighten(config, controller)
    if monitor.loosen is not None and not isinstance(controller, TargetBeta):
        yield (
            "monitor.loosen raises the target of algorithm.kl.controller.type = 'target', and this run has no such"
            " target. Remove the table, or give algorithm.kl.target_nats_per_sequence or target_nats_per_token."
        )
    elif monitor.loosen is not None:
        yield from _limit(config, monitor.loosen.limit)
    if "stop" in monitor.ladder[:-1]:
        after = monitor.ladder[monitor.ladder.index("stop") + 1]
        yield f"monitor.ladder has '{after}' after 'stop', which ends the run. Put 'stop' last."
    yield from _ways_to_tell(monitor)


def monitor_without_effect(monitor: Monitor) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for every setting of `[monitor]` that changes nothing."""
    if not monitor.ladder:
        reason = "monitor.ladder is empty, so that nothing is done about alarms. Give a ladder, or remove it."
        yield "monitor.act_on", reason
        if monitor.loosen is None:
            yield "monitor.patience", reason
    if "tighten" not in monitor.ladder:
        yield "monitor.tighten_by", "monitor.ladder has no 'tighten'. Add it, or remove this."
    if monitor.webhook is None and monitor.webhook_env is None and monitor.command is None:
        yield (
            "monitor.notify",
            "monitor.webhook, webhook_env and command are not set: nothing is sent. Give one, or remove it.",
        )


def address_of(monitor: Monitor) -> str | None:
    """Return the webhook's address, from the settings or from the environment; None where there is none."""
    return monitor.webhook if monitor.webhook_env is None else os.environ.get(monitor.webhook_env)


def check_ways_to_tell(monitor: Monitor) -> None:
    """See that this machine has the program and the environment variable that alarms are sent with.

    Raises:
        ConfigError: it has not, or the variable holds no address. Its value is not told.
    """
    if monitor.webhook_env is not None:
        address = os.environ.get(monitor.webhook_env)
        where = f"monitor.webhook_env names the environment variable {monitor.webhook_env}"
        if address is None:
            raise ConfigError(f"{where}, which is not set. Set it to the webhook's address, or leave it out.")
        if not _is_address(address) or _has_password(address):
            raise ConfigError(
                f"{where}, which holds no web address (its value is not shown). Set it to one that begins with http://"
                " or https:// and has no user and password."
            )
    if monitor.command is not None:
        program = shlex.split(monitor.command)[0]
        if shutil.which(program) is None:
            raise ConfigError(
                f"monitor.command names '{program}', which is not on the PATH. Install it, or give its full path."
            )


def _tighten(config: RunConfig, controller: Controller | None) -> Iterator[str]:
    if controller is None:
        kind = config.algorithm.type
        why = (
            "beta is part of what DPO learns towards, and moving it would change that in mid-run"
            if kind == "dpo"
            else "it has no KL penalty"
        )
        yield (
            f"monitor.ladder has 'tighten', and algorithm.type = '{kind}' has no leash to shorten: {why}. Leave"
            " 'tighten' out; 'roll_back' and 'stop' work with every algorithm."
        )
        return
    assert isinstance(config.algorithm, OnPolicy)
    beta = config.algorithm.kl.beta
    none_given = beta is None and isinstance(config.algorithm, OnlineDpo)
    if isinstance(controller, FixedBeta) and (beta == 0 or none_given):
        default = " (the default of algorithm.type = 'online_dpo')" if none_given else ""
        yield (
            f"monitor.ladder has 'tighten', and algorithm.kl.beta is fixed at 0{default}: 0 stays 0 whatever it is"
            " divided by. Give a beta above 0 or a target, or leave 'tighten' out."
        )


def _limit(config: RunConfig, limit: float) -> Iterator[str]:
    assert isinstance(config.algorithm, OnPolicy)
    for name in ("target_nats_per_sequence", "target_nats_per_token"):
        target = getattr(config.algorithm.kl, name)
        if target is not None and limit <= target:
            yield (
                f"monitor.loosen.limit = {limit:g} is not above the target of {target:g} (algorithm.kl.{name}): the"
                f" target could never be raised. Give a limit above {target:g}, or remove the table."
            )


def _ways_to_tell(monitor: Monitor) -> Iterator[str]:
    if monitor.webhook is not None and monitor.webhook_env is not None:
        yield "monitor.webhook and monitor.webhook_env are both set, and a run has one webhook. Remove one."
    if monitor.webhook is not None:
        if _has_password(monitor.webhook):
            yield (
                "monitor.webhook has a user and a password in its address, and they would not be sent. Give an address"
                " without them; monitor.command can run a program that sends them."
            )
        elif not _is_address(monitor.webhook):
            yield (
                f"monitor.webhook = '{monitor.webhook}' is no web address. Give one that begins with http:// or"
                " https://; monitor.command runs a program."
            )
    if monitor.command is not None:
        try:
            words = shlex.split(monitor.command)
        except ValueError as error:
            yield f"monitor.command = '{monitor.command}' cannot be split into words ({error}). Close its quotes."
        else:
            if not words:
                yield f"monitor.command = '{monitor.command}' names no program. Give one, or leave it out."


def _is_address(text: str) -> bool:
    address = urlsplit(text)
    return address.scheme in ("http", "https") and bool(address.netloc)


def _has_password(text: str) -> bool:
    return "@" in urlsplit(text).netloc
