"""The drift itself: the KL above its target, far out, jumping or climbing."""

from __future__ import annotations

import math

import numpy as np

from kleash.metrics import METRICS
from kleash.monitor.baseline import Detector, Scores
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.thresholds import KL_CRITICAL, KL_WARNING, beyond
from kleash.runs.records import Cause, Severity

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
PER_TOKEN = tuple(key for key in DRIFT if key.endswith("per_token"))

TOO_FAST = Cause("the learning rate is too high for this batch", "optim/grad_norm around the first step of the rise")
LOOSE = Cause(
    "the leash is too loose for what the reward pays",
    "control/beta: at its floor, or fixed at a value that the reward outbids? Then hold a target",
)
EXPLOIT = Cause("the policy has found a hole in the reward", "samples with the highest reward and KL of these steps")
SHIFTED = Cause("the reward or the prompts changed", "reward functions and data at that step")
MISMATCH = Cause(
    "the sampler's probabilities are not the scorer's: another dtype, kernel, temperature or stale weights",
    "sampler/mismatch_mean, and one batch scored by both",
)


class AboveTarget:
    """The KL of the newest steps lies well above the target that the controller holds."""

    name = "kl/above_target"
    title = "KL above its target"
    looks_at = (*DRIFT[:2], "control/target")
    causes = (TOO_FAST, LOOSE, EXPLOIT)
    advice = "Lower training.learning_rate, or start from a larger algorithm.kl.beta; go back to an older checkpoint."
    SMOOTHED, FIRST_STEP = 10, 12
    WARNING, CRITICAL = 2.0, 3.0

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the mean of KL / target over the newest steps with 2 and 3."""
        key = facts.target_key
        if key is None or history.now < self.FIRST_STEP or key not in history.fresh:
            return None
        targets = history["control/target"].values(self.SMOOTHED)
        values = history[key].values(self.SMOOTHED)
        if len(values) != len(targets) or not targets.all():
            return None
        times = float((values / targets).mean())
        if times < self.WARNING:
            return None
        unit = METRICS[key].unit
        return Finding(
            "critical" if times >= self.CRITICAL else "warning",
            f"KL of the last {len(values)} steps is {values.mean():.3g} {unit}, {times:.2g} times its target of "
            f"{targets[-1]:.3g}.",
            {"kl": float(values.mean()), "target": float(targets[-1])},
            began=int(history[key].steps(self.SMOOTHED)[0]),
        )


class Far:
    """The policy is farther from the reference than fluent text of the reference can be, whatever was agreed."""

    name = "kl/far"
    title = "far from the reference"
    looks_at = PER_TOKEN
    causes = (LOOSE, EXPLOIT, TOO_FAST)
    advice = (
        "Read the newest samples beside those of the first step. If they are worse, hold a target "
        "(algorithm.kl.target_nats_per_sequence) and start again, or go back to an earlier checkpoint."
    )
    SMOOTHED = 3
    WARNING, CRITICAL = 0.7, 1.5
    """Nats per token: each token twice, or four and a half times as likely as under the reference, on average."""

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest mean KL per token with fixed lines."""
        key = history.first_of((*PER_TOKEN, "eval/kl/exact_per_token"))
        if key is None or key not in history.fresh:
            return None
        values = history[key].values(self.SMOOTHED)
        mean = float(values.mean())
        if mean < self.WARNING:
            return None
        return Finding(
            "critical" if mean >= self.CRITICAL else "warning",
            f"KL is {mean:.2f} nats per token over the last {len(values)} measurements: its tokens are on average "
            f"{math.exp(mean):.1f} times as likely as under the reference.",
            {"kl": mean},
            began=int(history[key].steps(self.SMOOTHED)[0]),
        )


class _Change:
    """The KL against its own baseline, shared by what jumps and what climbs: one detector, on log(KL / target)."""

    def __init__(self) -> None:
        self.detector = Detector()
        self.alarmed = False

    def push(self, history: History, facts: Facts) -> tuple[str, float, float] | None:
        """Take the newest KL in; returns its key, its value and its ratio to the baseline, once there is one."""
        key = facts.target_key or history.first_of(DRIFT)
        value = None if key is None else history.fresh.get(key)
        if key is None or value is None or not math.isfinite(value) or value <= 0:
            return None
        target = history.latest("control/target") if key == facts.target_key else None
        scaled = math.log(value / target if target else value)
        self.detector.push(scaled, under_alarm=self.alarmed)
        if self.detector.scores is None or self.detector.level is None:
            return None
        return key, value, math.exp(scaled - self.detector.level)


class Spike:
    """The KL of this very step is several times what it usually is."""

    name = "kl/spike"
    title = "KL spike"
    looks_at = DRIFT
    causes = (TOO_FAST, SHIFTED, MISMATCH)
    advice = (
        "One spike that comes back is a bad batch: lower training.max_grad_norm. If it stays, lower "
        "training.learning_rate and go back to a checkpoint before it."
    )
    WARNING, CRITICAL = 2.0, 3.0
    EARLY_WINDOW, EARLY_TIMES, EARLY_STEP = 20, 5.0, 30

    def __init__(self) -> None:
        """Start without a baseline."""
        self._change = _Change()

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Score the newest value; before there is a baseline, compare it with the median of the steps before."""
        found = self._change.push(history, facts)
        finding = self._early(history) if self._change.detector.scores is None else self._late(history, found)
        self._change.alarmed = finding is not None
        return finding

    def _late(self, history: History, found: tuple[str, float, float] | None) -> Finding | None:
        scores = self._change.detector.scores
        if found is None or scores is None:
            return None
        key, value, times = found
        if times < self.WARNING or scores.value < KL_WARNING.value:
            return None
        severe = times >= self.CRITICAL and scores.value >= KL_CRITICAL.value
        return Finding(
            "critical" if severe else "warning",
            f"KL is {value:.3g} {METRICS[key].unit} in this step, {times:.2g} times its baseline "
            f"({scores.value:.1f} standard deviations above it).",
            {"kl": value, "times_baseline": times, "score": scores.value},
            began=history.now,
        )

    def _early(self, history: History) -> Finding | None:
        key = history.first_of(DRIFT)
        if key is None or key not in history.fresh or len(history[key]) <= self.EARLY_STEP:
            return None
        *before, value = history[key].values(self.EARLY_WINDOW + 1)
        usual = float(np.median(before))
        if usual <= 0 or value < self.EARLY_TIMES * usual:
            return None
        return Finding(
            "warning",
            f"KL is {value:.3g} {METRICS[key].unit} in this step, {value / usual:.2g} times the median of the "
            f"{len(before)} steps before (absolute rule: there is no baseline yet).",
            {"kl": float(value), "times_median": float(value / usual)},
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
        "wanted; else hold a target, or go back to a checkpoint before it began."
    )
    WARNING, CRITICAL = 1.25, 2.0

    def __init__(self) -> None:
        """Start without a baseline."""
        self._change = _Change()

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Score the rise over the newest 30 and 100 steps; the size is that of the newest 10."""
        found = self._change.push(history, facts)
        detector, scores = self._change.detector, self._change.detector.scores
        self._change.alarmed = False
        if found is None or scores is None or detector.level is None:
            return None
        key, value, _ = found
        times = math.exp(detector.smoothed - detector.level)
        climbing = scores._replace(value=0.0)
        if times < self.WARNING or not beyond(climbing, KL_WARNING):
            return None
        self._change.alarmed = True
        severity: Severity = "critical" if times >= self.CRITICAL and beyond(climbing, KL_CRITICAL) else "warning"
        window = _window(scores)
        return Finding(
            severity,
            f"KL has climbed to {times:.2g} times its baseline over the last {window} steps; it is {value:.3g} "
            f"{METRICS[key].unit} now.",
            {"kl": value, "times_baseline": times, "score_30": scores.rise_30, "score_100": scores.rise_100},
            began=max(0, history.now - window),
        )


def _window(scores: Scores) -> int:
    """The window in which a rise stands out most from its line."""
    return 30 if scores.rise_30 / KL_WARNING.rise_30 > scores.rise_100 / KL_WARNING.rise_100 else 100
