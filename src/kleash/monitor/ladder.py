"""The ladder of actions: which one an alarm leads to, and when the next. Decides only; `kleash.training.acting` acts.

One rung at a time, from the bottom. After a rung at least `patience` steps pass before the next, so that it can show
what it does. The ladder is back at its bottom after `patience` steps without an alarm. At its top nothing is left to
do: the last rung is not repeated.

After a roll back the rules have no history, and find nothing for a while whatever happens. So the ladder does not start
over before the run has trained again what it gave up, and `patience` steps more: a failure that returns leads on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kleash.monitor.actions import Action, Kind
from kleash.runs.records import SEVERITIES, Event, Severity


class Ladder:
    """Decides for one run. Ask it once a step.

    Args:
        rungs: what to do, in order; none for nothing but telling.
        act_on: the lowest severity that leads to an action.
        patience: steps between two rungs, and without an alarm until the ladder starts over.
    """

    def __init__(self, rungs: Sequence[Kind], *, act_on: Severity, patience: int) -> None:
        self._rungs, self._act_on, self._patience = tuple(rungs), act_on, patience
        self._climbed = 0
        self._last_rung: int | None = None
        self._last_alarm: int | None = None
        self._not_before = 0

    def decide(self, alarms: Iterable[Event], step: int) -> Action | None:
        """Return what to do after `step`, or None.

        Args:
            alarms: those that were found in the step, as severe as they were there.
            step: the step; later than the one before.
        """
        worst = self._worst(alarms)
        if worst is None:
            quiet = self._last_alarm is not None and step - self._last_alarm >= self._patience
            if quiet and step >= self._not_before:
                self._climbed, self._last_rung, self._last_alarm = 0, None, None
            return None
        self._last_alarm = step
        if self._last_rung is not None and step - self._last_rung < self._patience:
            return None
        return self._climb(worst, step)

    def skip(self, action: Action, step: int) -> Action | None:
        """Return the rung after one that could not be done, at the same step; None at the top."""
        return self._climb(action.alarm, step)

    def rolled_back(self, step: int, to: int) -> None:
        """Take note that the weights went back to those of step `to` after `step`: do not start over too soon."""
        self._not_before = step + (step - to) + self._patience

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next decision depends on, as plain JSON types."""
        return {
            "climbed": self._climbed,
            "last_rung": self._last_rung,
            "last_alarm": self._last_alarm,
            "not_before": self._not_before,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; one of an earlier version knows of no roll back."""
        self._climbed, self._last_rung = state["climbed"], state["last_rung"]
        self._last_alarm, self._not_before = state["last_alarm"], state.get("not_before", 0)

    def _worst(self, alarms: Iterable[Event]) -> Event | None:
        """Return the worst alarm to act on, of equal ones the first."""
        serious = [alarm for alarm in alarms if _rank(alarm.severity) >= _rank(self._act_on)]
        return max(serious, key=lambda alarm: _rank(alarm.severity), default=None)

    def _climb(self, alarm: Event, step: int) -> Action | None:
        if self._climbed == len(self._rungs):
            return None
        kind = self._rungs[self._climbed]
        self._climbed += 1
        self._last_rung = step
        return Action(kind, self._climbed, len(self._rungs), alarm)


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
