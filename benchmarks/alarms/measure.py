"""How often rules speak of a healthy run, and how soon of a faulty one.

What counts is the onset of an alarm, for all rules alike: a rule that speaks again within 20 steps, at the same
severity, has said nothing new. A false alarm is any onset in a healthy run. A fault is detected by the first onset
after its own; what was said before it is a false alarm and detects nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2

from benchmarks.alarms.nulls import healthy
from benchmarks.alarms.numbers import Numbers
from benchmarks.alarms.published import PUBLISHED, SILENT, Levels
from benchmarks.alarms.scenarios import LONGEST, SCENARIOS, Scenario, faulty
from kleash.monitor.baseline import BASELINE_STEPS
from kleash.monitor.monitor import QUIET_STEPS, Monitor
from kleash.monitor.rule import Facts
from kleash.runs.records import Event

KLEASH = "Kleash"
SEVERITIES = (None, "warning", "critical")
FACTS = Facts(target_key="kl/exact_per_sequence")
"""What the monitor knows of every run here: a controller holds this KL."""


@dataclass(frozen=True)
class Onset:
    """An alarm that begins or gets worse: in which step, how severe, and by which rule."""

    step: int
    severity: str
    rule: str


def kleash_onsets(events: Iterable[Event]) -> list[Onset]:
    """Return the warnings and critical alarms among the monitor's events; neither ends nor mere information."""
    return [
        Onset(event.step, event.severity, event.name)
        for event in events
        if not event.ends and event.severity in SEVERITIES
    ]


def published_onsets(name: str, levels: Levels) -> list[Onset]:
    """Return the onsets of a rule that gives a level for every step, as the monitor would tell of them."""
    onsets, told, last = [], SILENT, -math.inf
    for step in np.flatnonzero(levels).tolist():
        level = int(levels[step])
        if step - last > QUIET_STEPS:
            told = SILENT
        if level > told:
            onsets.append(Onset(step, str(SEVERITIES[level]), name))
            told = level
        last = step
    return onsets


@dataclass(frozen=True)
class Rate:
    """Events in so many steps."""

    count: int
    steps: int

    @property
    def per_thousand(self) -> float:
        """Events per 1,000 steps."""
        return 1000 * self.count / self.steps

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of a Poisson rate, per 1,000 steps (Garwood)."""
        low = chi2.ppf(0.025, 2 * self.count) / 2 if self.count else 0.0
        high = chi2.ppf(0.975, 2 * self.count + 2) / 2
        return 1000 * low / self.steps, 1000 * high / self.steps


@dataclass
class FalseAlarms:
    """What a set of rules said in healthy runs."""

    runs: int = 0
    steps: int = 0
    silent_runs: int = 0
    said: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By rule and severity."""
    early: int = 0
    """How many of them before a baseline existed."""

    def add(self, steps: int, onsets: Sequence[Onset]) -> None:
        """Take in another run."""
        self.runs += 1
        self.steps += steps
        self.silent_runs += not onsets
        self.early += sum(onset.step < BASELINE_STEPS for onset in onsets)
        self.said.update((onset.rule, onset.severity) for onset in onsets)

    def rate(self, severity: str) -> Rate:
        """Return how often alarms of this severity began."""
        return Rate(sum(count for (_, said), count in self.said.items() if said == severity), self.steps)


def false_alarms(
    kind: str, seeds: Sequence[int], steps: int, progress: Callable[[str], None]
) -> dict[str, FalseAlarms]:
    """Return what Kleash and each published rule said in healthy runs of one kind."""
    found = {name: FalseAlarms() for name in (KLEASH, *PUBLISHED)}
    for number, seed in enumerate(seeds):
        progress(f"healthy runs, {kind}: {number} of {len(seeds)}")
        for name, onsets in all_onsets(healthy(kind, steps, seed)).items():
            found[name].add(steps, onsets)
    return found


def all_onsets(numbers: Numbers) -> dict[str, list[Onset]]:
    """Return what Kleash and each published rule say of one run."""
    onsets = {name: published_onsets(name, rule.levels(numbers)) for name, rule in PUBLISHED.items()}
    return {KLEASH: kleash_onsets(Monitor(FACTS).replay(numbers.steps())), **onsets}


@dataclass(frozen=True)
class Detection:
    """How a set of rules took one fault: delays in steps from its onset (0: at once), infinite where it never did."""

    first: float
    critical: float
    speaker: tuple[str, str] | None
    """The rule and the severity of the first word."""


def detection(onsets: Iterable[Onset], scenario_onset: int, limit: int) -> Detection:
    """Return when a fault was spoken of, at all and as critical, within `limit` steps."""
    after = [onset for onset in onsets if scenario_onset <= onset.step < scenario_onset + limit]
    critical = [onset.step - scenario_onset for onset in after if onset.severity == "critical"]
    if not after:
        return Detection(math.inf, math.inf, None)
    return Detection(
        after[0].step - scenario_onset, min(critical, default=math.inf), (after[0].rule, after[0].severity)
    )


@dataclass
class Detections:
    """Repeats of one fault on one kind of noise.

    Attributes:
        each: how each was taken.
        blind: of a published rule: the fault leaves what it reads alone.
        anyway: of a published rule: in how many it speaks before the deadline without any fault.
    """

    each: list[Detection] = field(default_factory=list)
    blind: bool = False
    anyway: int = 0

    def caught_before(self, delay: float) -> float:
        """Return the share that was spoken of earlier than so many steps after the onset."""
        return sum(one.first < delay for one in self.each) / len(self.each)

    def delay(self, quantile: float) -> float:
        """Return a quantile of the delay of the first word; infinite where too many were never caught."""
        return _quantile([one.first for one in self.each], quantile)

    def critical_delay(self, quantile: float) -> float:
        """Return a quantile of the delay of the first critical alarm."""
        return _quantile([one.critical for one in self.each], quantile)

    def speakers(self) -> Counter[tuple[str, str]]:
        """Return who spoke first, and with which severity, by how often."""
        return Counter(one.speaker for one in self.each if one.speaker is not None)


def _quantile(delays: list[float], quantile: float) -> float:
    return sorted(delays)[max(0, math.ceil(quantile * len(delays)) - 1)]


def detections(kind: str, seeds: Sequence[int], progress: Callable[[str], None]) -> dict[str, dict[str, Detections]]:
    """Return by scenario and set of rules how faults on one kind of noise were detected."""
    found = {name: {rules: Detections() for rules in (KLEASH, *PUBLISHED)} for name in SCENARIOS}
    for number, seed in enumerate(seeds):
        progress(f"faulty runs, {kind}: {number} of {len(seeds)}")
        numbers = healthy(kind, LONGEST, seed)
        watching = _Watching(numbers)
        for name, scenario in sorted(SCENARIOS.items(), key=lambda item: item[1].onset(seed)):
            onset = scenario.onset(seed)
            fault, unharmed = faulty(scenario, numbers, onset), faulty(scenario, numbers, LONGEST)
            found[name][KLEASH].each.append(watching.detect(scenario, fault, onset))
            for rules in PUBLISHED:
                _try_published(found[name][rules], rules, scenario, unharmed, fault, onset)
    return found


def _try_published(
    found: Detections, name: str, scenario: Scenario, unharmed: Numbers, fault: Numbers, onset: int
) -> None:
    """Add how a published rule takes a fault, and what it says of the run without it."""
    rule, end = PUBLISHED[name], onset + scenario.limit
    with_fault, without = fault.until(end), unharmed.until(end)
    found.each.append(detection(published_onsets(name, rule.levels(with_fault)), onset, scenario.limit))
    said = detection(published_onsets(name, rule.levels(without)), onset, scenario.limit)
    found.anyway += said.first < scenario.deadline
    changed, unchanged = rule.reads(with_fault), rule.reads(without)
    found.blind = changed is None or unchanged is None or bool(np.array_equal(changed, unchanged))


class _Watching:
    """A monitor that has seen a healthy run so far; copies of it go on with faults from there."""

    def __init__(self, numbers: Numbers) -> None:
        """Start before the first step."""
        self._numbers = numbers
        self._monitor = Monitor(FACTS)
        self._seen = 0

    def detect(self, scenario: Scenario, fault: Numbers, onset: int) -> Detection:
        """Return how the monitor takes the fault; onsets must not go back from call to call."""
        if scenario.other_log:
            monitor = Monitor(FACTS)
            monitor.replay(fault.steps(0, onset))
        else:
            self._monitor.replay(self._numbers.steps(self._seen, onset))
            self._seen = onset
            monitor = deepcopy(self._monitor)
        onsets: list[Onset] = []
        for step in fault.steps(onset, onset + scenario.limit):
            onsets += kleash_onsets(monitor.observe(step))
            if any(one.severity == "critical" for one in onsets):
                break
        return detection(onsets, onset, scenario.limit)
