"""`kleash audit`: read a run's log, whoever wrote it, and say how the run is: by its record, or by every rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kleash.cli.audit_summary import last_values, print_audit
from kleash.cli.files import STDOUT, check_files, replace_file
from kleash.cli.screen import screen
from kleash.errors import EXIT_ALARM, ConfigError, KleashError
from kleash.monitor.log import Log
from kleash.monitor.logs.facts import facts_of
from kleash.monitor.logs.health import Alarm, Health, examine, has_record
from kleash.monitor.logs.reading import read_log
from kleash.report.catalogue import unit
from kleash.runs.encoding import store

SCHEMA_VERSION = 1


class AlarmsRaised(KleashError):
    """The log raises alarms: not a mistake, but an answer that a script can act on."""

    exit_code = EXIT_ALARM


def run(
    path: Path,
    columns: Sequence[str] = (),
    trainer: str | None = None,
    beta: float | None = None,
    least: str = "warning",
    json_path: str | None = None,
) -> None:
    """Print what a log is, what its KLs are, and how the run is.

    Args:
        path: the log.
        columns: the user's names, each `NAME=KEY`.
        trainer: which trainer wrote it, where the log does not say.
        beta: reward per nat, where the log does not say.
        least: the severity from which an alarm makes the exit code 4.
        json_path: where everything is written as JSON; `-` is standard output, and the text goes to standard error.

    Raises:
        AlarmsRaised: an alarm of at least that severity was raised at some step.
        DataError: a log that cannot be read.
        RunDirError: a run that cannot be read.
        ConfigError: arguments that cannot work.
    """
    check_files(json_path, None, "audit.json")
    if beta is not None and not 0 <= beta < float("inf"):
        raise ConfigError(f"--beta {beta:g} is no price of drift: it is 0 or more. Give what the run was started with.")
    log = read_log(path, columns=column_map(columns), trainer=trainer, beta=beta)
    if beta is not None and has_record(log):
        raise ConfigError(
            f"--beta {beta:g}: {path} is a Kleash run that was watched while it was trained: its alarms are those it "
            "recorded, so that a beta would change nothing. Leave it out."
        )
    health = examine(log, facts_of(log, beta))
    print_audit(screen(stderr=json_path == STDOUT), log, health)
    if json_path is not None:
        text = json.dumps(to_json(log, health), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        if json_path == STDOUT:
            print(text, end="")
        else:
            replace_file(Path(json_path), text)
    raised = health.raised(least)
    if raised:
        names = ", ".join(dict.fromkeys(f"{alarm.event.name} ({alarm.event.severity})" for alarm in raised))
        raise AlarmsRaised(f"{path} raises {names}.")


def column_map(columns: Sequence[str]) -> dict[str, str]:
    """Return the map that `--column NAME=KEY` gives; the name may hold an equals sign.

    Raises:
        ConfigError: an argument of another form, or a name given twice.
    """
    found: dict[str, str] = {}
    for given in columns:
        name, divider, key = given.rpartition("=")
        if not (divider and name and key):
            raise ConfigError(f"--column {given} is not NAME=KEY, such as --column my_kl=kl/k3_per_token.")
        if name in found:
            raise ConfigError(f"--column gives {name} twice, as {found[name]} and as {key}. Leave one out.")
        found[name] = key
    return found


def to_json(log: Log, health: Health) -> dict[str, Any]:
    """Return everything as JSON can hold it; the schema is in docs/audit.md."""
    steps = [step.step for step in log.steps]
    return {
        "schema_version": SCHEMA_VERSION,
        "path": str(log.path),
        "source": log.source,
        "notes": list(log.notes),
        "steps": {"count": len(steps), "first": min(steps, default=None), "last": max(steps, default=None)},
        "samples": len(log.samples),
        "columns": [{"name": column.name, "key": column.key, "says": column.says} for column in log.columns],
        "last": {
            key: {"step": step, "value": store(value), "unit": unit(key)}
            for key, (step, value) in last_values(log).items()
        },
        "alarms_from": "record" if health.from_record else "rules",
        "alarms": [_alarm(alarm) for alarm in health.alarms],
        "health_notes": list(health.notes),
        "suspect_checkpoints": [
            {
                "step": suspect.checkpoint.step,
                "path": str(suspect.checkpoint.path),
                "alarms": [event.name for event in suspect.events],
            }
            for suspect in health.suspects
        ],
    }


def _alarm(alarm: Alarm) -> Mapping[str, Any]:
    event = alarm.event
    return {
        "name": event.name,
        "severity": event.severity,
        "began": event.began,
        "noticed": alarm.noticed,
        "over": alarm.over,
        "message": event.message,
        "values": {name: store(value) for name, value in event.values.items()},
        "causes": [{"text": cause.text, "check": cause.check} for cause in event.causes],
        "advice": event.advice,
    }
