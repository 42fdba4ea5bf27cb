"""How a number of a run moves: away from where it began, and away from its baseline.

Two rules apply to a move. Until there is a baseline of 200 values a fixed limit stands in: the newest values against
where the number began, which are the reference's where it was measured and the first ones else. Later the change
against the baseline must be both unusual (`kleash.monitor.baseline`) and large; of the fixed limits only the critical
one stays in force, for what creeps so slowly that the baseline goes along.

What is measured under an alarm of the baseline stays out of it. Under one of the fixed limit all is taken in, so that
a run that settles at a new level gets its baseline there: a warning of the fixed limit that is open when the baseline
comes goes on until the number has been flat for 200 measurements at the baseline's level, and lapses then. A critical
one does not lapse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from kleash.monitor.baseline import BASELINE_STEPS, SKIPPED_STEPS, Detector, Scores
from kleash.monitor.history import History, Track
from kleash.monitor.rule import Facts
from kleash.monitor.thresholds import OTHER, below, beyond

START_STEPS = 5
"""First values whose median says where a number began: the policy has hardly moved in them."""
RECENT_STEPS = 3
"""Newest values whose median is judged: one step is noisy, and a fast collapse leaves time for few."""
SETTLED_STEPS = 200
"""Newest values that must be flat for a warning of the fixed limit to lapse."""
SMALLEST = 1e-6
"""A positive number below it is taken for it where its logarithm is needed: 0 has none."""

BY_AMOUNT = ("text/distinct_2",)
"""Numbers that depend on how much text they are taken over: the reference's, of another number of replies, is no start
for them, but the first steps are."""

FIXED = "fixed limit"
NO_BASELINE = (
    f"{FIXED}: fewer than {SKIPPED_STEPS + BASELINE_STEPS} measurements so far, so the run's own noise is not known"
)
UNSETTLED = f"{FIXED}: it has moved since and not settled"
HELD_OUT = "eval/"

Alarming = Literal["warning", "critical"]


class Scale(NamedTuple):
    """How the moves of a number are counted, and back: as differences, or as differences of logarithms.

    Args:
        into: from the number's own unit.
        back: into it.
        starts_above: only values above it say where the number began.
        takes_above: only values above it are taken in at all.
    """

    into: Callable[[float], float]
    back: Callable[[float], float]
    starts_above: float
    takes_above: float


def _same(value: float) -> float:
    return value


def _log(value: float) -> float:
    return math.log(max(value, SMALLEST))


DIFFERENCES = Scale(_same, _same, -math.inf, -math.inf)
FACTORS = Scale(_log, math.exp, 0.0, -math.inf)
POSITIVE_FACTORS = Scale(_log, math.exp, 0.0, 0.0)
"""For what is 0 where there was nothing to measure, as the gradient of a batch whose rewards are all equal."""


class Limits(NamedTuple):
    """Moves that warn and that are critical: above 0 for what must not rise, below 0 for what must not fall."""

    warning: float
    critical: float

    def exceeded(self, move: float) -> Alarming | None:
        """Return the severity of a move, or None within the limits."""
        if _reaches(move, self.critical):
            return "critical"
        return "warning" if _reaches(move, self.warning) else None


def factors(warning: float, critical: float) -> Limits:
    """Return limits of factors, for `FACTORS`; a critical factor of infinity or 0 is never reached."""
    return Limits(math.log(warning), math.log(critical) if critical > 0 else -math.inf)


class Standing(NamedTuple):
    """Where a number stands, in the units of its scale.

    Args:
        key: the one that was read.
        now: median of the newest `RECENT_STEPS` values; of a held-out number the newest value.
        start: where it began.
        origin: that in words: "the reference", "its first 5 steps".
        baseline: its mean, once there are scores.
        scores: against the baseline; None before there is one.
    """

    key: str
    now: float
    start: float
    origin: str
    baseline: float | None
    scores: Scores | None


def beginning(track: Track, facts: Facts, key: str, *, above: float = -math.inf) -> float | None:
    """Return where a number began: the reference's or the median of its first values; None while there are too few.

    Args:
        track: of the number.
        facts: the reference's numbers among them.
        key: of the number.
        above: only values above it count.
    """
    if _of_reference(facts, key):
        return facts.reference[key]
    values = track.values()
    first = values[values > above][: _start_steps(key)].tolist()
    return statistics.median(first) if len(first) == _start_steps(key) else None


def _start_steps(key: str) -> int:
    return 1 if key.startswith(HELD_OUT) else START_STEPS


def _of_reference(facts: Facts, key: str) -> bool:
    return key in facts.reference and key not in BY_AMOUNT and math.isfinite(facts.reference[key])


def newest(track: Track, key: str) -> float:
    """Return the median of the newest values of a number that was measured; of a held-out one the newest value."""
    values = sorted(track.values(1 if key.startswith(HELD_OUT) else RECENT_STEPS).tolist())
    return float(values[len(values) // 2])


class Follower:
    """Follows one number of the training samples, or the held-out one where only that is measured.

    Attributes:
        standing: where it stood when it was last measured; None while that was too seldom.
    """

    def __init__(self, key: str, scale: Scale) -> None:
        self.standing: Standing | None = None
        self._keys = (key, HELD_OUT + key)
        self._scale = scale
        self._starts: dict[str, tuple[float, str]] = {}
        self._detectors = {key: Detector() for key in self._keys}
        self._tracks = {key: Track() for key in self._keys}

    def track(self, key: str) -> Track:
        """Return the values of a key that were taken in."""
        return self._tracks[key]

    def follow(self, history: History, facts: Facts, *, under_alarm: bool = False) -> Standing | None:
        """Take the newest step in; None where the number was not measured in it, or too seldom so far.

        Args:
            history: of the run.
            facts: the reference's numbers among them.
            under_alarm: whether this step is to stay out of the baseline.
        """
        key = history.first_of(self._keys)
        value = None if key is None else fresh(history, key)
        if key is None or value is None or value <= self._scale.takes_above:
            return None
        track, detector, into = self._tracks[key], self._detectors[key], self._scale.into
        track.append(history.now, value, math.nan)
        detector.push(into(value), under_alarm=under_alarm)
        start = self._starts.get(key) or self._start(history, facts, key)
        if start is None:
            return None
        baseline = None if detector.scores is None else detector.level
        self.standing = Standing(key, into(newest(track, key)), *start, baseline, detector.scores)
        return self.standing

    def _start(self, history: History, facts: Facts, key: str) -> tuple[float, str] | None:
        """Return where a number began, in units of the scale, and that in words; None while it is not known."""
        track, above = self._tracks[key], self._scale.starts_above
        start = beginning(track, facts, key, above=above)
        if start is None:
            return None
        origin = "the reference" if _of_reference(facts, key) else _first_in_words(history[key], track, key, above)
        self._starts[key] = (self._scale.into(start), origin)
        return self._starts[key]


def _first_in_words(measured: Track, taken: Track, key: str, above: float) -> str:
    """Say which measurements a number's start was taken from."""
    if key.startswith(HELD_OUT):
        return "its first value"
    steps = taken.steps()[taken.values() > above][:START_STEPS]
    first, last = int(steps[0]), int(steps[-1])
    none_left_out = int(measured.steps()[START_STEPS - 1]) == last
    if none_left_out and last - first == START_STEPS - 1:
        return f"its first {START_STEPS} steps"
    return f"its first {START_STEPS} measurements{'' if none_left_out else ' above 0'} (steps {first:,} to {last:,})"


class Shift(NamedTuple):
    """A move that is too large.

    Args:
        severity: of the move.
        key: the number that moved.
        now: median of its newest values, in its own unit.
        level: what it is held against, in its own unit.
        against: the level in words, for a message: "its first 5 steps", with the rule where it is a fixed limit.
        began: the step in which it was half of the way to a warning.
    """

    severity: Alarming
    key: str
    now: float
    level: float
    against: str
    began: int

    @property
    def values(self) -> dict[str, float | None]:
        """The numbers of the move, for a finding."""
        return {self.key: self.now, "level": self.level}


class Watch:
    """Looks for one number's move away from where it began or from its baseline.

    Args:
        key: of the catalogue; the held-out number stands in where it is the only one.
        scale: of the moves.
        from_start: fixed limits.
        from_baseline: limits of the change against the baseline, which must be unusual as well.
    """

    def __init__(self, key: str, scale: Scale, *, from_start: Limits, from_baseline: Limits) -> None:
        self._follower = Follower(key, scale)
        self._scale = scale
        self._from_start = from_start
        self._from_baseline = from_baseline
        self._found: Shift | None = None
        self._off_baseline = False
        self._baseline_judges = False

    def look(self, history: History, facts: Facts) -> Shift | None:
        """Look at the newest step; between two measurements the last one's answer stands."""
        standing = self._follower.follow(history, facts, under_alarm=self._off_baseline)
        if standing is None:
            return self._found
        severity, level, against, warning = self._judged(standing)
        if severity is None:
            self._found = None
            return None
        began = self._began(standing.key, level, warning / 2) if self._found is None else self._found.began
        now, level = self._scale.back(standing.now), self._scale.back(level)
        self._found = Shift(severity, standing.key, now, level, against, began)
        return self._found

    def _judged(self, standing: Standing) -> tuple[Alarming | None, float, str, float]:
        """Return the severity, the level it is judged against, that in words, and the move from it that warns."""
        start, origin, limit = standing.start, standing.origin, self._from_start.warning
        fixed = self._from_start.exceeded(standing.now - start)
        if standing.baseline is None or standing.scores is None:
            return fixed, start, f"{origin} ({NO_BASELINE})", limit
        rises = self._from_baseline.warning > 0
        unusual = beyond(standing.scores, OTHER) if rises else below(standing.scores, OTHER)
        severity = self._from_baseline.exceeded(standing.now - standing.baseline) if unusual else None
        self._off_baseline = severity is not None
        if fixed == "critical":
            return fixed, start, f"{origin} ({FIXED})", limit
        if not self._baseline_judges:
            self._baseline_judges = fixed is None or self._settled(standing.key, standing.baseline)
        if fixed is not None and severity is None and not self._baseline_judges:
            return fixed, start, f"{origin} ({UNSETTLED})", limit
        return severity, standing.baseline, "its baseline", self._from_baseline.warning

    def _settled(self, key: str, baseline: float) -> bool:
        """Whether the number has been flat at its baseline's level, by a quarter and a half of what would warn."""
        values = self._follower.track(key).values(SETTLED_STEPS)
        if len(values) < SETTLED_STEPS:
            return False
        scaled = np.array([self._scale.into(value) for value in values.tolist()])
        before, now = scaled.reshape(2, -1).mean(axis=1)
        warning = abs(self._from_baseline.warning)
        return bool(abs(now - before) <= warning / 4 and abs(scaled.mean() - baseline) <= warning / 2)

    def _began(self, key: str, level: float, move: float) -> int:
        return began(self._follower.track(key), lambda value: _reaches(self._scale.into(value) - level, move))


def began(track: Track, is_past: Callable[[float], bool], last: int | None = None) -> int:
    """Return the step of the first value that a move has reached, going back from the newest one.

    A single value that it has not reached is odd and is passed over; two in a row end the search.

    Args:
        track: of the number; not empty.
        is_past: whether the move has reached a value.
        last: how many of the newest values may belong to the move; None: all.
    """
    steps, values = track.steps(last), track.values(last)
    first, odd = len(values) - 1, 0
    for index in range(len(values) - 1, -1, -1):
        if is_past(float(values[index])):
            first, odd = index, 0
        else:
            odd += 1
            if odd == 2:
                break
    return int(steps[first])


def span(track: Track, window: int) -> str:
    """Return the newest measurements of a number in words, for a message.

    "the last 10 steps" where they are one step apart, else "the last 10 measurements (steps 90 to 180)"; of a single
    one "step 90".

    Args:
        track: of the number; not empty.
        window: how many measurements are meant; all where there are fewer.
    """
    steps = track.steps(window)
    first, last, count = int(steps[0]), int(steps[-1]), len(steps)
    if count == 1:
        return f"step {last:,}"
    if last - first == count - 1:
        return f"the last {count} steps"
    return f"the last {count} measurements (steps {first:,} to {last:,})"


def fresh(history: History, key: str) -> float | None:
    """Return what the newest step measured; None where it did not, or where that is no finite number."""
    value = history.fresh.get(key)
    return value if value is not None and math.isfinite(value) else None


def _reaches(move: float, limit: float) -> bool:
    return move >= limit if limit > 0 else move <= limit
