"""How a number of a run moves: away from where it began, away from its baseline, and between two windows.

Two rules apply to a move. Until there is a baseline of 200 steps an absolute one stands in: the newest values against
where the number began, which are the reference's where it was measured and the first steps' else. Later the change
against the baseline must be both unusual (`kleash.monitor.baseline`) and large; of the absolute rule only its critical
limit stays in force, for what creeps so slowly that the baseline goes along.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from kleash.monitor.baseline import LARGEST_CORRELATION, Detector, Scores, ratio, variance_of_mean
from kleash.monitor.history import History, Track, Values
from kleash.monitor.rule import Facts
from kleash.monitor.thresholds import OTHER, below, beyond

START_STEPS = 5
"""First values whose median says where a number began: the policy has hardly moved in them."""
RECENT_STEPS = 3
"""Newest values whose median is judged: one step is noisy, and a fast collapse leaves time for few."""
SMALLEST = 1e-6
"""A positive number below it is taken for it where its logarithm is needed: 0 has none."""

BY_AMOUNT = ("text/distinct_2",)
"""Numbers that depend on how much text they are taken over: the reference's, of another number of replies, is no start
for them, but the first steps are."""

NO_BASELINE = "absolute rule: no baseline yet"
HELD_OUT = "eval/"

Alarming = Literal["warning", "critical"]


class Scale(NamedTuple):
    """How the moves of a number are counted, and back: as differences, or as differences of logarithms."""

    into: Callable[[float], float]
    back: Callable[[float], float]


def _same(value: float) -> float:
    return value


def _log(value: float) -> float:
    return math.log(max(value, SMALLEST))


DIFFERENCES = Scale(_same, _same)
FACTORS = Scale(_log, math.exp)


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
        baseline: its mean, once there are scores.
        scores: against the baseline; None before there is one.
        start_is_reference: whether `start` was measured on the reference's own replies.
    """

    key: str
    now: float
    start: float
    baseline: float | None
    scores: Scores | None
    start_is_reference: bool


def beginning(history: History, facts: Facts, key: str) -> float | None:
    """Return where a number began: the reference's or the median of its first values; None while there are too few."""
    if _of_reference(facts, key):
        return facts.reference[key]
    steps = 1 if key.startswith(HELD_OUT) else START_STEPS
    first = history[key].values()[:steps].tolist()
    return statistics.median(first) if len(first) == steps else None


def _of_reference(facts: Facts, key: str) -> bool:
    return key in facts.reference and key not in BY_AMOUNT


def newest(history: History, key: str) -> float:
    """Return the median of the newest values of a number that was measured; of a held-out one the newest value."""
    values = sorted(history[key].values(1 if key.startswith(HELD_OUT) else RECENT_STEPS).tolist())
    return float(values[len(values) // 2])


class Follower:
    """Follows one number of the training samples, or the held-out one where only that is measured."""

    def __init__(self, key: str, scale: Scale) -> None:
        self._keys = (key, HELD_OUT + key)
        self._scale = scale
        self._starts: dict[str, float] = {}
        self._detectors = {key: Detector() for key in self._keys}

    def follow(self, history: History, facts: Facts, *, under_alarm: bool = False) -> Standing | None:
        """Take the newest step in; None where the number was not measured in it, or too seldom so far.

        Args:
            history: of the run.
            facts: the reference's numbers among them.
            under_alarm: whether this step is to stay out of the baseline.
        """
        key = history.first_of(self._keys)
        value = None if key is None else fresh(history, key)
        if key is None or value is None:
            return None
        detector = self._detectors[key]
        detector.push(self._scale.into(value), under_alarm=under_alarm)
        if key not in self._starts:
            start = beginning(history, facts, key)
            if start is None:
                return None
            self._starts[key] = self._scale.into(start)
        now = self._scale.into(newest(history, key))
        baseline = None if detector.scores is None else detector.level
        return Standing(key, now, self._starts[key], baseline, detector.scores, _of_reference(facts, key))


class Shift(NamedTuple):
    """A move that is too large.

    Args:
        severity: of the move.
        key: the number that moved.
        now: median of its newest values, in its own unit.
        level: what it is held against, in its own unit.
        against: the level in words, for a message: "its first 5 steps", with the rule where it is an absolute one.
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
        from_start: limits of the absolute rule.
        from_baseline: limits of the change against the baseline, which must be unusual as well.
    """

    def __init__(self, key: str, scale: Scale, *, from_start: Limits, from_baseline: Limits) -> None:
        self._follower = Follower(key, scale)
        self._back = scale.back
        self._from_start = from_start
        self._from_baseline = from_baseline
        self._since: int | None = None
        self._found: Shift | None = None

    def look(self, history: History, facts: Facts) -> Shift | None:
        """Look at the newest step; between two measurements the last one's answer stands."""
        standing = self._follower.follow(history, facts, under_alarm=self._found is not None)
        if standing is None:
            return self._found
        severity, level, against = self._judged(standing)
        limits = self._from_start if standing.baseline is None else self._from_baseline
        if not _reaches(standing.now - level, limits.warning / 2):
            self._since = None
        elif self._since is None:
            self._since = history.now
        if severity is None:
            self._found = None
        else:
            began = history.now if self._since is None else self._since
            now, level = self._back(standing.now), self._back(level)
            self._found = Shift(severity, standing.key, now, level, against, began)
        return self._found

    def _judged(self, standing: Standing) -> tuple[Alarming | None, float, str]:
        """Return the severity, the level it is judged against and that in words."""
        start = _start_in_words(standing)
        severity = self._from_start.exceeded(standing.now - standing.start)
        if standing.baseline is None or standing.scores is None:
            return severity, standing.start, f"{start} ({NO_BASELINE})"
        if severity == "critical":
            return severity, standing.start, f"{start} (absolute rule)"
        rises = self._from_baseline.warning > 0
        unusual = beyond(standing.scores, OTHER) if rises else below(standing.scores, OTHER)
        severity = self._from_baseline.exceeded(standing.now - standing.baseline) if unusual else None
        return severity, standing.baseline, "its baseline"


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


class Contrast(NamedTuple):
    """The newest window's mean minus that of the window before, and its standard error."""

    newest: float
    before: float
    stderr: float

    @property
    def score(self) -> float:
        """The difference in standard errors; of two windows without any spread 0 or an infinity."""
        return ratio(self.newest - self.before, self.stderr)


def contrast(track: Track, window: int) -> Contrast | None:
    """Compare the newest `window` values of a number with those before; None while there are too few.

    The noise is taken for a first-order autoregression. Its spread and correlation are those about the windows' means
    and the slope that both have on average, for a trend is what is looked for and no noise; the correlation has the
    first-order correction of its bias under a trend, (2 + 4 rho) / n (Kendall 1954). That the windows adjoin is left
    out, which makes the standard error of an autocorrelated series too large rather than too small.
    """
    if len(track) < 2 * window:
        return None
    values = track.values(2 * window).reshape(2, window)
    means = values.mean(axis=1)
    return Contrast(float(means[1]), float(means[0]), _stderr(values - means[:, None]))


def _stderr(deviations: Values) -> float:
    """Standard error of the difference of two windows' means, from deviations `[2, window]` from those means."""
    window = deviations.shape[1]
    steps = np.arange(window) - (window - 1) / 2
    noise = deviations - (deviations.sum(axis=0) @ steps) / (2.0 * (steps @ steps)) * steps
    flat = noise.ravel()
    variance = float(flat @ flat) / flat.size
    if variance == 0.0:
        return 0.0
    raw = float(np.vdot(noise[:, 1:], noise[:, :-1])) / (2 * (window - 1) * variance)
    correlation = min(max(raw + (2.0 + 4.0 * raw) / window, 0.0), LARGEST_CORRELATION)
    of_mean = variance_of_mean(window, correlation)
    return math.sqrt(2.0 * of_mean * variance / (1.0 - of_mean))


def _reaches(move: float, limit: float) -> bool:
    return move >= limit if limit > 0 else move <= limit


def _start_in_words(standing: Standing) -> str:
    if standing.start_is_reference:
        return "the reference"
    return "its first value" if standing.key.startswith(HELD_OUT) else f"its first {START_STEPS} steps"
