"""What a run says of itself in words and numbers, the same on a live terminal and in a log file."""

from __future__ import annotations

from pathlib import Path

from kleash.metrics import lookup
from kleash.report.wording import number, percent, with_error
from kleash.runs.records import Event, Step
from kleash.runs.schema import REPORT

LABEL = 10
"""Width of the word that a line of facts begins with."""


def split_label(text: str) -> tuple[str, str]:
    """Return a line's label and its text; the label is empty where the line has none."""
    has_label = text[LABEL : LABEL + 1] == " "
    return (text[:LABEL], text[LABEL + 1 :]) if has_label else ("", text)


def labelled(label: str, text: str) -> str:
    """Return a line whose text stands in the column of the run's facts."""
    return f"{label:<{LABEL}} {text}"


def cells(step: Step, kl_key: str) -> dict[str, str]:
    """Return a step's numbers by their short titles, as suits what it learned from; what was not measured is a dash.

    Args:
        step: the step.
        kl_key: the KL that the target is about, such as `kl/exact_per_sequence`; its title carries the unit.
    """
    if "loss/sft" in step.metrics:
        own = _imitation_cells(step)
    elif "preference/chosen_drift" in step.metrics:
        own = _preference_cells(step)
    elif "preference/chosen_score" in step.metrics:
        own = _reward_model_cells(step)
    else:
        own = _on_policy_cells(step, kl_key)
    return {"step": str(step.step), **own, "s/step": _value(step, "time/total")}


def _on_policy_cells(step: Step, kl_key: str) -> dict[str, str]:
    stop_rate = step.metrics.get("length/stop_rate")
    return {
        "reward": _mean(step, "reward/proxy"),
        f"KL {short_unit(kl_key)}": _mean(step, kl_key),
        "target": _value(step, "control/target"),
        "beta": _value(step, "control/beta"),
        "entropy": _value(step, "entropy/per_token"),
        "length": _value(step, "length/mean"),
        "stop": number(None) if stop_rate is None else percent(stop_rate),
        "dist-2": _value(step, "text/distinct_2"),
    }


def _preference_cells(step: Step) -> dict[str, str]:
    return {
        "loss": _mean(step, "loss/preference"),
        "accuracy": _mean(step, "preference/accuracy"),
        "margin": _mean(step, "preference/margin"),
        "chosen drift nats/sequence": _mean(step, "preference/chosen_drift"),
        "rejected drift nats/sequence": _mean(step, "preference/rejected_drift"),
    }


def _reward_model_cells(step: Step) -> dict[str, str]:
    return {
        "loss": _mean(step, "loss/preference"),
        "accuracy": _mean(step, "preference/accuracy"),
        "margin": _mean(step, "preference/margin"),
    }


def _imitation_cells(step: Step) -> dict[str, str]:
    return {
        "loss nats/token": _mean(step, "loss/sft"),
        "tokens/s": _value(step, "throughput/tokens_per_second"),
    }


def _value(step: Step, key: str) -> str:
    return number(step.metrics.get(key))


def _mean(step: Step, key: str) -> str:
    found = step.metrics.get(key)
    return number(None) if found is None else narrow(with_error(found, step.stderr.get(key)))


def narrow(text: str) -> str:
    """Return "value ± error" without its blanks, so that a row fits 80 columns."""
    return text.replace(" ± ", "±")


def has_trained(step: Step) -> bool:
    """Return whether a row is a training step; the last row of a run is an evaluation alone."""
    return "time/total" in step.metrics


def short_unit(kl_key: str) -> str:
    """Return the unit of a KL for a narrow column: nats/sequence or nats/token."""
    return lookup(kl_key).unit.replace(" per ", "/")


def held_out(step: Step, kl_key: str) -> str | None:
    """Return the line of a step's evaluation on held-out data, or None if it had none."""
    named = (
        ("accuracy", "preference/accuracy"),
        ("agreement", "preference/agreement"),
        ("loss", "loss/sft"),
        ("reward", "reward/proxy"),
        ("gold", "reward/gold"),
        ("KL", kl_key),
    )
    said = []
    for name, key in named:
        value = step.metrics.get(f"eval/{key}")
        if value is not None:
            unit = f" {lookup(key).unit}" if name in ("KL", "loss") else ""
            said.append(f"{name} {with_error(value, step.stderr.get(f'eval/{key}'))}{unit}")
    return labelled("held out", f"after {step.step} steps: {', '.join(said)}") if said else None


def alarm_label(event: Event) -> str:
    """Return what the line of an event begins with: how severe it is, or that an alarm is over."""
    return "over" if event.ends else event.severity


def alarm_text(event: Event) -> str:
    """Return an event after its label: when and what, and for an alarm what to do."""
    began = "" if event.began is None or event.ends else f" since step {event.began}"
    return f"step {event.step}: {event.name}{began}: {event.message} {event.advice}".rstrip()


def closing(run_dir: Path, status: str, reason: str) -> list[str]:
    """Return the last lines of a run: how it ended, where its report is, how to go on.

    A run that stopped or failed raises its reason as an error, which is printed there and not here.
    """
    said = f" ({reason})" if reason and status in ("finished", "interrupted") else ""
    lines = [labelled(status, f"{run_dir}{said}")]
    if (run_dir / REPORT).exists():
        lines.append(labelled("report", str(run_dir / REPORT)))
    if status != "finished" and any(run_dir.glob("checkpoints/step_*")):
        lines.append(labelled("go on", f"kleash train --resume {run_dir}"))
    return lines
