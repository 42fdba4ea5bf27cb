"""The monitor: shows every step to every rule, and tells of an alarm once when it begins, grows and ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding, Rule
from kleash.monitor.rules.table import make_rules
from kleash.runs.records import SEVERITIES, Event, Step

QUIET_STEPS = 20
"""Steps without a finding after which an alarm is over: one that flickers is told once."""


@dataclass
class _Alarm:
    """An alarm that is open: the event that told of it, and the last step in which its rule found something."""

    event: Event
    last_found: int


class Monitor:
    """Watches one run. Feed it the steps in order; it answers with the events that they cause.

    Args:
        facts: what is known of the run besides its numbers.
        ignore: names of rules that are left out.
    """

    def __init__(self, facts: Facts | None = None, *, ignore: Collection[str] = ()) -> None:
        self._facts = facts or Facts()
        self._ignore = frozenset(ignore)
        self._start()

    @property
    def open_alarms(self) -> Sequence[Event]:
        """The alarms that go on: of each, the event of its highest severity."""
        return [alarm.event for alarm in self._alarms.values()]

    def observe(self, step: Step) -> list[Event]:
        """Take a step in and return what it begins, makes worse or ends."""
        self._history.push(step)
        events = []
        for rule in self._rules:
            finding = rule(self._history, self._facts)
            events += self._told(rule, finding, step.step)
        return events

    def replay(self, steps: Iterable[Step]) -> list[Event]:
        """Take many steps in and return all their events: for a run that is resumed or over."""
        return [event for step in steps for event in self.observe(step)]

    def rolled_back(self, step: int) -> list[Event]:
        """Forget the history, after the weights went back to an older state: the alarms end with `step`."""
        events = [
            _end(alarm.event, step, "the weights went back to an earlier checkpoint") for alarm in self._alarms.values()
        ]
        self._start()
        return events

    def _start(self) -> None:
        self._history = History()
        self._rules = [rule for rule in make_rules() if rule.name not in self._ignore]
        self._alarms: dict[str, _Alarm] = {}

    def _told(self, rule: Rule, finding: Finding | None, step: int) -> list[Event]:
        alarm = self._alarms.get(rule.name)
        if finding is None:
            if alarm is None or step - alarm.last_found < QUIET_STEPS:
                return []
            del self._alarms[rule.name]
            return [_end(alarm.event, alarm.last_found + 1, f"nothing was found in the {QUIET_STEPS} steps since then")]
        if alarm is not None:
            alarm.last_found = step
            if _rank(finding) <= SEVERITIES.index(alarm.event.severity):
                return []
        began = finding.began if alarm is None or alarm.event.began is None else min(finding.began, alarm.event.began)
        event = Event(
            step=step,
            severity=finding.severity,
            name=rule.name,
            message=finding.message,
            values=finding.values,
            began=began,
            causes=finding.causes or rule.causes,
            advice=rule.advice,
        )
        self._alarms[rule.name] = _Alarm(event, step)
        return [event]


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _end(event: Event, step: int, why: str) -> Event:
    """Return the event that says an alarm is over: `step` is the first one outside its window."""
    message = f"over since step {step}: {why}."
    return Event(step=step, severity="info", name=event.name, message=message, began=event.began, ends=True)
