"""A rule that finds something in given steps, so that a test knows which alarms a run will have."""

from __future__ import annotations

from collections.abc import Mapping

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding, Rule
from kleash.runs.records import Cause, Severity


class Scripted:
    """Finds `severity` in each of some steps, with the same beginning or with the step itself as its beginning."""

    def __init__(self, steps: Mapping[int, Severity], name: str = "test/scripted", began: int | None = None) -> None:
        self.name, self._steps, self._began = name, steps, began
        self.title = "Scripted"
        self.looks_at = ("kl/exact_per_sequence",)
        self.causes = (Cause("the test says so", "the test"),)
        self.advice = "Read the test."

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look up the newest step."""
        severity = self._steps.get(history.now)
        if severity is None:
            return None
        began = history.now if self._began is None else self._began
        return Finding(severity, f"found at {history.now}.", {"at": float(history.now)}, began)


def rules(*made: tuple[Mapping[int, Severity], str, int | None]) -> list[Rule]:
    """Fresh rules: steps with their severity, name and beginning."""
    return [Scripted(steps, name, began) for steps, name, began in made]
