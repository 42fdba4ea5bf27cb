"""The drift itself: the KL above its target, far out, jumping or climbing."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import NamedTuple

from kleash.metrics import METRICS
from kleash.monitor.baseline import Detector, Scores
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.causes import EXPLOIT, LOOSE, MISMATCH, SHIFTED, TOO_FAST
from kleash.monitor.rules.trends import fresh, span
from kleash.monitor.thresholds import KL_CRITICAL, KL_WARNING, beyond
from kleash.runs.records import Severity

DRIFT = (
    "kl/exact_per_sequence",
    "kl/exact_per_token",
    "kl/k3_per_sequence",
    "kl/k3_per_token",
    "kl/k2_per_token",
    "kl/unstated_per_sequence",
    "kl/unstated_per_token",
    "kl/k1_per_sequence",
    "kl/k1_per_token",
)
"""KL(policy ‖ reference), the most trusted estimate first."""
SIGNED = ("kl/k1_per_sequence", "kl/k1_per_token")
"""Those that may be below 0, and so have no logarithm."""
LEAST_CLIMB = {"nats per token": (0.05, 0.2), "nats per sequence": (2.0, 10.0)}
"""KL below which a climb is no warning, and not critical, where no target says what was agreed."""
PER_TOKEN = tuple(key for key in DRIFT if key.endswith("per_token"))
PER_SEQUENCE = tuple(key for key in DRIFT if key.endswith("per_sequence"))


class AboveTarget:
    """The KL of the newest steps lies well above the target that the controller holds."""

    name = "kl/above_target"
    title = "KL above its target"
    looks_at = (*DRIFT[:2], "control/target")
    causes = (TOO_FAST, LOOSE, EXPLOIT)
    advice = (
        "Lower the learning rate (in Kleash: training.learning_rate), or start from a larger beta (algorithm.kl.beta); "
        "go back to a checkpoint before it began."
    )
    SMOOTHED, SKIPPED = 10, 12
    WARNING, CRITICAL = 2.0, 3.0

    def __init__(self) -> None:
        """Start without a step."""
        self._ratios: deque[float] = deque(maxlen=self.SMOOTHED)
        self._seen = 0
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the mean of KL / target over the newest steps with 2 and 3; the target's ramp is left out."""
        key = facts.target_key
        value, target = (None, None) if key is None else (fresh(history, key), fresh(history, "control/target"))
        if key is None or value is None or not target:
            return self._last
        self._seen += 1
        self._ratios.append(value / target)
        self._last = self._judge(history, key, target) if self._seen > self.SKIPPED else None
        return self._last

    def _judge(self, history: History, key: str, target: float) -> Finding | None:
        times = statistics.fmean(self._ratios)
        if times < self.WARNING:
            return None
        mean = float(history[key].values(self.SMOOTHED).mean())
        return Finding(
            "critical" if times >= self.CRITICAL else "warning",
            f"KL is {mean:.3g} {METRICS[key].unit} (mean of {span(history[key], self.SMOOTHED)}), {times:.2g} times "
            f"its target, which is {target:.3g} now.",
            {"kl": mean, "target": target, "times_target": times},
            began=int(history[key].steps(self.SMOOTHED)[0]),
        )


class Far:
    """The policy is farther from the reference than fluent text of the reference can be, whatever was agreed."""

    name = "kl/far"
    title = "far from the reference"
    looks_at = (*PER_TOKEN, *PER_SEQUENCE)
    causes = (LOOSE, EXPLOIT, TOO_FAST)
    advice = (
        "Read the newest samples beside those of the first step. If they are worse, hold a KL target (in Kleash: "
        "algorithm.kl.target_nats_per_sequence) or raise beta and start again, or go back to an earlier checkpoint."
    )
    SMOOTHED = 3
    WARNING, CRITICAL = 0.7, 1.5
    """Nats per token: each token twice, or four and a half times as likely as under the reference, on average."""
    WARNING_PER_SEQUENCE, CRITICAL_PER_SEQUENCE = 60.0, 150.0
    """Nats per sequence, where no length is logged to tell what a token bears."""
    KEYS = (*PER_TOKEN, "eval/kl/exact_per_token")

    def __init__(self) -> None:
        """Start without a measurement."""
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest mean KL with fixed lines: per token, else per sequence over the length."""
        key = history.first_of(self.KEYS) or history.first_of(PER_SEQUENCE)
        if key is not None and fresh(history, key) is not None:
            self._last = self._judge(history, key)
        return self._last

    def _judge(self, history: History, key: str) -> Finding | None:
        mean = float(history[key].values(self.SMOOTHED).mean())
        length = history.latest("length/mean")
        if key in PER_SEQUENCE and not length:
            lines, what = (self.WARNING_PER_SEQUENCE, self.CRITICAL_PER_SEQUENCE), f"KL is {mean:.3g} nats per sequence"
        else:
            mean = mean / length if key in PER_SEQUENCE and length else mean
            lines = (self.WARNING, self.CRITICAL)
            what = (
                f"KL is {mean:.2f} nats per token: on average a token is {math.exp(mean):.1f} times as likely as under "
                "the reference"
            )
        if mean < lines[0]:
            return None
        return Finding(
            "critical" if mean >= lines[1] else "warning",
            f"{what} (mean of {span(history[key], self.SMOOTHED)}).",
            {"kl": mean},
            began=int(history[key].steps(self.SMOOTHED)[0]),
        )


class Measured(NamedTuple):
    """A KL and where it stands: `times` its baseline, once there is one."""

    key: str
    value: float
    times: float | None
    times_before: float | None
    """Its ratio to the median of the values before it; None for an estimate that may be below 0."""


class _Change:
    """The KL against its own past: log(KL / target), or the plain value of an estimate that may be below 0.

    Values under an alarm stay out of the baseline, but no more of them than a baseline has: later a new level counts.
    """

    BEFORE, FEWEST_BEFORE, LONGEST_ALARM = 20, 30, 200

    def __init__(self) -> None:
        self.detector = Detector()
        self._before: deque[float] = deque(maxlen=self.BEFORE)
        self._seen = self._alarmed = 0

    def push(self, history: History, facts: Facts) -> Measured | None:
        """Take the newest KL in; None where there is none in this step."""
        key = facts.target_key or history.first_of(DRIFT)
        value = None if key is None else fresh(history, key)
        if key is None or value is None:
            return None
        signed = key in SIGNED
        if value <= 0 and not signed:
            return None
        target = history.latest("control/target") if key == facts.target_key else None
        scaled = value if signed else math.log(value / target if target else value)
        jump = None
        if not signed and self._seen > self.FEWEST_BEFORE:
            jump = math.exp(scaled - statistics.median(self._before))
        self._seen += 1
        self._before.append(scaled)
        self.detector.push(scaled, under_alarm=0 < self._alarmed <= self.LONGEST_ALARM)
        return Measured(key, value, self._times(scaled, signed=signed), jump)

    def smoothed(self, key: str) -> float:
        """Times the baseline that the mean of the newest ten is."""
        times = self._times(self.detector.smoothed, signed=key in SIGNED)
        return 0.0 if times is None else times

    def mark(self, finding: Finding | None) -> Finding | None:
        """Count how long an alarm has gone on."""
        self._alarmed = 0 if finding is None else self._alarmed + 1
        return finding

    def _times(self, scaled: float, *, signed: bool) -> float | None:
        level = self.detector.level
        if self.detector.scores is None or level is None:
            return None
        if not signed:
            return math.exp(scaled - level)
        return scaled / level if level > 0 else math.inf


class Spike:
    """The KL of this very step is several times what it usually is."""

    name = "kl/spike"
    title = "KL spike"
    looks_at = DRIFT
    causes = (TOO_FAST, SHIFTED, MISMATCH)
    advice = (
        "One spike that comes back is a bad batch: clip the gradient harder (in Kleash: training.max_grad_norm). If it "
        "stays, lower the learning rate and go back to a checkpoint before it."
    )
    WARNING, CRITICAL = 2.0, 3.0
    EARLY = 5.0
    """Times the median of the steps before, while there is no baseline."""

    def __init__(self) -> None:
        """Start without a baseline."""
        self._change = _Change()
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Score the newest value; before there is a baseline, compare it with the median of the values before."""
        measured = self._change.push(history, facts)
        if measured is not None:
            scores = self._change.detector.scores
            found = self._early(history, measured) if scores is None else self._late(history, measured, scores)
            self._last = self._change.mark(found)
        return self._last

    def _late(self, history: History, measured: Measured, scores: Scores) -> Finding | None:
        key, value, times, _ = measured
        if times is None or times < self.WARNING or scores.value < KL_WARNING.value:
            return None
        severe = times >= self.CRITICAL and scores.value >= KL_CRITICAL.value
        return Finding(
            "critical" if severe else "warning",
            f"KL is {value:.3g} {METRICS[key].unit} in this step, {times:.2g} times its baseline "
            f"({scores.value:.1f} standard deviations above it).",
            {"kl": value, "times_baseline": times, "score": scores.value},
            began=history.now,
        )

    def _early(self, history: History, measured: Measured) -> Finding | None:
        key, value, _, times = measured
        if times is None or times < self.EARLY:
            return None
        return Finding(
            "warning",
            f"KL is {value:.3g} {METRICS[key].unit} in this step, {times:.2g} times the median of the "
            f"{_Change.BEFORE} measurements before (fixed limit: fewer than 200 measurements so far, so the run's own "
            "noise is not known).",
            {"kl": value, "times_median": times},
            began=history.now,
        )


class Ramp:
    """The KL climbs steadily away from its baseline."""

    name = "kl/ramp"
    title = "KL climbing"
    looks_at = DRIFT
    causes = (EXPLOIT, LOOSE, TOO_FAST)
    advice = (
        "Compare samples of before and now for the same prompt. If the reward rises and they read well, this may be "
        "wanted; else hold a KL target or raise beta, or go back to a checkpoint before it began."
    )
    WARNING, CRITICAL = 1.25, 2.0

    def __init__(self) -> None:
        """Start without a baseline."""
        self._change = _Change()
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Score the rise over the newest 30 and 100 measurements; its size is that of the newest 10."""
        measured = self._change.push(history, facts)
        if measured is not None:
            self._last = self._change.mark(self._judge(history, facts, measured))
        return self._last

    def _judge(self, history: History, facts: Facts, measured: Measured) -> Finding | None:
        scores, key, unit = self._change.detector.scores, measured.key, METRICS[measured.key].unit
        if scores is None:
            return None
        times, climbing = self._change.smoothed(key), scores._replace(value=0.0)
        least = (0.0, 0.0) if key == facts.target_key else LEAST_CLIMB[unit]
        if times < self.WARNING or measured.value < least[0] or not beyond(climbing, KL_WARNING):
            return None
        severe = times >= self.CRITICAL and measured.value >= least[1] and beyond(climbing, KL_CRITICAL)
        severity: Severity = "critical" if severe else "warning"
        window = _window(scores)
        return Finding(
            severity,
            f"KL has climbed to {times:.2g} times its baseline over {span(history[key], window)}; it is "
            f"{measured.value:.3g} {unit} now.",
            {"kl": measured.value, "times_baseline": times, "score_30": scores.rise_30, "score_100": scores.rise_100},
            began=int(history[key].steps(window)[0]),
        )


def _window(scores: Scores) -> int:
    """The window in which a rise stands out most from its line."""
    return 30 if scores.rise_30 / KL_WARNING.rise_30 > scores.rise_100 / KL_WARNING.rise_100 else 100
