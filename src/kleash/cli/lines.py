"""What a run says of itself in words and numbers, the same on a live terminal and in a log file."""

from __future__ import annotations

from pathlib import Path

from kleash.metrics import lookup
from kleash.report.wording import number, percent, with_error
from kleash.runs.records import Step
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
    """Return a step's numbers by their short titles; what was not measured is a dash.

    Args:
        step: the step.
        kl_key: the KL that the target is about, such as `kl/exact_per_sequence`; its title carries the unit.
    """

    def value(key: str) -> str:
        return number(step.metrics.get(key))

    def mean(key: str) -> str:
        found = step.metrics.get(key)
        return number(None) if found is None else narrow(with_error(found, step.stderr.get(key)))

    stop_rate = step.metrics.get("length/stop_rate")
    return {
        "step": str(step.step),
        "reward": mean("reward/proxy"),
        f"KL {short_unit(kl_key)}": mean(kl_key),
        "target": value("control/target"),
        "beta": value("control/beta"),
        "entropy": value("entropy/per_token"),
        "length": value("length/mean"),
        "stop": number(None) if stop_rate is None else percent(stop_rate),
        "dist-2": value("text/distinct_2"),
        "s/step": value("time/total"),
    }


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
    """Return the line of a step's evaluation on held-out prompts, or None if it had none."""
    reward, kl = step.metrics.get("eval/reward/proxy"), step.metrics.get(f"eval/{kl_key}")
    if reward is None or kl is None:
        return None
    rewarded = with_error(reward, step.stderr.get("eval/reward/proxy"))
    drifted = with_error(kl, step.stderr.get(f"eval/{kl_key}"))
    return labelled("held out", f"after {step.step} steps: reward {rewarded}, KL {drifted} {lookup(kl_key).unit}")


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
