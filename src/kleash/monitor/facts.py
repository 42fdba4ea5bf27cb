"""What the rules may know of a Kleash run besides its numbers: from its settings and its first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kleash.metrics import HELD_OUT
from kleash.monitor.rule import Facts
from kleash.runs.records import Step

TARGETS = {
    "target_nats_per_sequence": "kl/exact_per_sequence",
    "target_nats_per_token": "kl/exact_per_token",
}
"""Setting of the target, and the KL that it holds."""


def facts_of_run(settings: Mapping[str, Any], first: Step | None) -> Facts:
    """Return the facts of a run.

    Args:
        settings: resolved, as the run records them.
        first: the first recorded step; if it is step 0, its held-out numbers are the reference's.
    """
    algorithm = _table(settings, "algorithm")
    kl = _table(algorithm, "kl")
    return Facts(
        beta=algorithm.get("beta"),
        target_key=next((key for setting, key in TARGETS.items() if kl.get(setting) is not None), None),
        reference=_reference(first),
    )


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def _reference(first: Step | None) -> dict[str, float]:
    """Numbers of the evaluation before training, when policy and reference were one."""
    if first is None or first.step != 0:
        return {}
    return {
        key.removeprefix(HELD_OUT): value
        for key, value in first.metrics.items()
        if key.startswith(HELD_OUT) and value is not None
    }
