"""Sampler against scorer: the tokens come from another model than the one that is trained."""

from __future__ import annotations

import statistics
from collections import deque

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import POSITIVE_FACTORS, Watch, factors, fresh, span
from kleash.runs.records import Cause, Severity

KL, ABSOLUTE_DIFFERENCE = "sampler/kl_per_token", "sampler/mismatch_mean"
LIMITS = {KL: (0.01, 0.1), ABSOLUTE_DIFFERENCE: (0.113, 0.357)}
"""Nats per token. Trainers call a KL below 0.01 stable and 0.001 usual. Log-ratios with sd s have a KL of s^2 / 2 and a
mean absolute value of 0.8 s: 0.113 and 0.357 are the same two limits for that number."""
STEPS = 10
"""Newest values whose median is held against them: one long or odd batch is no mismatch."""
GROWS = factors(2.0, float("inf"))
"""Against the baseline; a warning however far it goes, since the limits above say when it does harm."""
NEVER = factors(float("inf"), float("inf"))
"""Against the start: the first step samples with fresh weights, and the mismatch jumps as soon as they move."""


class Mismatch:
    """The sampler gives drawn tokens other probabilities than the scorer: the gradient is another policy's."""

    name = "sampler/mismatch"
    title = "sampler mismatch"
    looks_at = (KL, ABSOLUTE_DIFFERENCE)
    causes = (
        Cause("the sampler has stale weights", "whether it is given the new weights after every update"),
        Cause(
            "temperature on one side only",
            "one batch scored by both at the sampling temperature; engines report log-probabilities at temperature 1",
        ),
        Cause("another dtype or kernel", "the dtype of both; the same batch scored by both in float32"),
        Cause("the sampler truncates (top-k, top-p, min-p)", "its generation settings"),
        Cause("a sharper policy makes the same rounding count for more", "entropy/per_token falling with it"),
    )
    advice = (
        "Score one batch with both and compare the worst tokens. Until they agree, KL and advantages are those of two "
        "different models: distrust the KL of sampled estimators first."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._newest: deque[float] = deque(maxlen=STEPS)
        self._watches = {
            key: Watch(key, POSITIVE_FACTORS, from_start=NEVER, from_baseline=GROWS)
            for key in (KL, ABSOLUTE_DIFFERENCE)
        }

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest values with fixed limits and with the baseline."""
        key = history.first_of((KL, ABSOLUTE_DIFFERENCE))
        if key is None:
            return None
        value = fresh(history, key)
        if value is not None:
            self._newest.append(abs(value))
        growing = self._growing(key, history, facts)
        return self._too_large(key, history) or growing

    def _too_large(self, key: str, history: History) -> Finding | None:
        warning, critical = LIMITS[key]
        if len(self._newest) < STEPS or max(self._newest) < warning:
            return None
        median = statistics.median(self._newest)
        if median < warning:
            return None
        severity: Severity = "critical" if median >= critical else "warning"
        message = (
            f"The mismatch of sampler and scorer is {median:.2g} nats per token (median of "
            f"{span(history[key], STEPS)}); up to {warning:.2g} is in order."
        )
        return Finding(severity, message, {key: median, "limit": warning}, int(history[key].steps(STEPS)[0]))

    def _growing(self, key: str, history: History, facts: Facts) -> Finding | None:
        shift = self._watches[key].look(history, facts)
        if shift is None:
            return None
        message = (
            f"The mismatch of sampler and scorer has grown to {shift.now:.2g} nats per token, "
            f"{shift.now / shift.level:.2g} times the {shift.level:.2g} of {shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)
