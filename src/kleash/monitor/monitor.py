"""The monitor: shows every step to every rule, and tells of an alarm once when it begins, grows and ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from kleash.errors import ConfigError, near_match
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding, Rule
from kleash.monitor.rules.table import make_rules
from kleash.runs.records import SEVERITIES, Event, Step

QUIET_STEPS = 20
"""Recorded steps without a finding after which an alarm is over: one that flickers is told once."""


@dataclass
class _Alarm:
    """An alarm that is open: the event that told of it, and what its rule found last, and when.

    Args:
        event: of its highest severity so far.
        last_found: the step.
        last_row: the same, counted in recorded steps.
        last: what it was.
    """

    event: Event
    last_found: int
    last_row: int
    last: Finding


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

    @property
    def pressing(self) -> Sequence[Event]:
        """The open alarms whose rule found something in the newest step, with what it found there."""
        return [
            replace(alarm.event, severity=alarm.last.severity, message=alarm.last.message, values=alarm.last.values)
            for alarm in self._alarms.values()
            if alarm.last_row == self._rows
        ]

    def observe(self, step: Step) -> list[Event]:
        """Take a step in and return what it begins, makes worse or ends."""
        self._history.push(step)
        self._rows += 1
        events = []
        for rule in self._rules:
            finding = rule(self._history, self._facts)
            events += self._told(rule, finding, step.step)
        return events

    def replay(self, steps: Iterable[Step]) -> list[Event]:
        """Take many steps in and return all their events: for a run that is resumed or over."""
        return [event for step in steps for event in self.observe(step)]

    def rolled_back(self, step: int) -> list[Event]:
        """Forget the history, after the weights that `step` measured were put back to older ones; all alarms end."""
        events = [
            _end(alarm.event, step, last=step, why="the weights went back to an earlier checkpoint")
            for alarm in self._alarms.values()
        ]
        self._start()
        return events

    def _start(self) -> None:
        self._history, self._rows = History(), 0
        self._rules = [rule for rule in make_rules() if rule.name not in self._ignore]
        self._alarms: dict[str, _Alarm] = {}

    def _told(self, rule: Rule, finding: Finding | None, step: int) -> list[Event]:
        alarm = self._alarms.get(rule.name)
        if finding is None:
            if alarm is None or self._rows - alarm.last_row < QUIET_STEPS:
                return []
            del self._alarms[rule.name]
            why = f"nothing was found in the {QUIET_STEPS} recorded steps since then"
            return [_end(alarm.event, step, last=alarm.last_found, why=why)]
        if alarm is not None:
            alarm.last_found, alarm.last_row, alarm.last = step, self._rows, finding
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
        self._alarms[rule.name] = _Alarm(event, step, self._rows, finding)
        return [event]


def check_names(names: Collection[str]) -> None:
    """See that every name is that of a rule.

    Raises:
        ConfigError: one is not; with near matches.
    """
    known = sorted(rule.name for rule in make_rules())
    for name in names:
        if name not in known:
            raise ConfigError(
                f"monitor.ignore names '{name}', and no rule is called so.{near_match(name, known)} "
                f"There are: {', '.join(known)}."
            )


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _end(event: Event, step: int, *, last: int, why: str) -> Event:
    """Return the event that says, at `step`, that an alarm is over: `last` is the last step in its window."""
    message = f"over since step {last + 1}: {why}."
    values: dict[str, float | None] = {"last": last}
    return Event(
        step=step, severity="info", name=event.name, message=message, values=values, began=event.began, ends=True
    )
