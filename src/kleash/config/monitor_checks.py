"""Whether what a run is to do about alarms can be done: refused before weights are read, with the reason."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from kleash.config.algorithms import Controller, FixedBeta, OnlineDpo, OnPolicy, TargetBeta
from kleash.config.schema import Monitor, RunConfig


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
    if monitor.webhook is None and monitor.command is None:
        yield (
            "monitor.notify",
            "monitor.webhook and monitor.command are not set: nothing is sent. Give one, or remove it.",
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


def _ways_to_tell(monitor: Monitor) -> Iterator[str]:
    if monitor.webhook is not None:
        address = urlsplit(monitor.webhook)
        if address.scheme not in ("http", "https") or not address.netloc:
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
