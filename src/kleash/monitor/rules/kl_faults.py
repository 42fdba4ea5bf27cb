"""A KL that cannot be right: negative, not zero at the start, dead, or spent on tokens that say nothing."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import fmean

import numpy as np

from kleash.metrics import METRICS
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.causes import MISMATCH, REFERENCE
from kleash.monitor.rules.kl import DRIFT, SIGNED
from kleash.monitor.rules.trends import fresh, span
from kleash.runs.records import Cause

ROUNDING = {"nats per token": 1e-3, "nats per sequence": 0.05}
"""A negative KL that is nearer to 0 is no finding."""
START = {"nats per token": (1e-3, 0.05), "nats per sequence": (0.05, 1.0)}
"""KL before the first update that warns, and that is critical; rounding in bfloat16 stays below the first."""


class Negative:
    """The sampled KL estimate lies below what it can be by chance."""

    name = "kl/negative"
    title = "negative KL"
    looks_at = ("kl/k1_per_sequence", "kl/k1_per_token", "kl/exact_per_sequence", "kl/exact_per_token")
    causes = (
        MISMATCH,
        Cause(
            "samples are drawn with top-k, top-p or another temperature than they are scored with", "sampling settings"
        ),
        Cause("padding or prompt tokens are in the sum", "the response mask, and lengths against kl/k1"),
    )
    advice = (
        "Stop. With this estimate in the reward the policy is paid for moving away. Score one batch with sampler and "
        "trainer side by side; penalise the exact KL, which is never negative."
    )
    SMOOTHED, SPREAD_OVER, ERRORS = 10, 30, 4.5
    """Steps in the mean, steps whose differences tell the noise, and how many of its errors the mean must be below."""

    def __init__(self) -> None:
        """Start without a step."""
        self._values: deque[tuple[float, float | None]] = deque(maxlen=self.SPREAD_OVER)
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the mean of k1 with the exact KL of the same steps where there is one, else with 0."""
        key = history.first_of(SIGNED)
        value = None if key is None else fresh(history, key)
        if key is None or value is None:
            return self._last
        self._values.append((value, fresh(history, key.replace("k1", "exact"))))
        self._last = self._judge(history, key) if len(self._values) >= self.SMOOTHED else None
        return self._last

    def _judge(self, history: History, key: str) -> Finding | None:
        unit, newest = METRICS[key].unit, list(self._values)[-self.SMOOTHED :]
        exact = [expected for _, expected in newest if expected is not None]
        with_exact = len(exact) == self.SMOOTHED
        mean, expected = fmean(k1 for k1, _ in newest), fmean(exact) if with_exact else 0.0
        error = self._noise(with_exact=with_exact) / math.sqrt(self.SMOOTHED)
        if mean > -ROUNDING[unit] or mean - expected > -self.ERRORS * error:
            return None
        against = f"the exact KL is {expected:.3g}" if with_exact else "a KL is never below 0"
        return Finding(
            "critical",
            f"The sampled KL (k1) is {mean:.3g} {unit} (mean of {span(history[key], self.SMOOTHED)}); {against}, and "
            f"noise explains ±{2 * error:.2g}.",
            {"k1": mean, "difference": mean - expected, "error": error},
            began=int(history[key].steps(self.SMOOTHED)[0]),
        )

    def _noise(self, *, with_exact: bool) -> float:
        """Standard deviation of a step, from the differences of neighbours: sampling errs anew in every step.

        A shift of the level, which is what is looked for, hardly enters the differences.
        """
        gaps = [k1 - (exact or 0.0) if with_exact else k1 for k1, exact in self._values]
        return math.sqrt(fmean((after - before) ** 2 for before, after in pairwise(gaps)) / 2)


class NonzeroStart:
    """Before the first update the policy is the reference, so that any KL is a fault of the set-up."""

    name = "kl/nonzero_start"
    title = "KL not zero at the start"
    looks_at = tuple(key for key in DRIFT if key not in SIGNED)
    causes = (
        REFERENCE,
        Cause("prompts are rendered or cut differently for the two", "one rendered prompt, token by token"),
        MISMATCH,
        Cause("dropout is on in one of the two passes", "model.train() and the model's dropout settings"),
    )
    advice = (
        "Stop. Score one prompt with policy and reference before training: the two must agree. Until they do, every KL "
        "here is wrong by an unknown amount."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._found: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at the step before any update alone; what is found there stays true."""
        if history.now == facts.before_updates:
            key = history.first_of(self.looks_at)
            value = None if key is None else fresh(history, key)
            if key is not None and value is not None:
                self._found = self._judge(history, key, abs(value))
        return self._found

    def _judge(self, history: History, key: str, value: float) -> Finding | None:
        unit = METRICS[key].unit
        warning, critical = START[unit]
        if value <= warning:
            return None
        return Finding(
            "critical" if value > critical else "warning",
            f"KL is {value:.3g} {unit} before the first update, where policy and reference are the same model.",
            {"kl": value},
            began=history.now,
        )


class FlatAtZero:
    """The KL stays at zero although drift has a price: nothing is learned, or nothing is measured."""

    name = "kl/flat_at_zero"
    title = "KL flat at zero"
    looks_at = (*DRIFT, "control/beta")
    causes = (
        Cause(
            "the reference follows the policy, or is the policy itself", "how the reference is loaded; is it frozen?"
        ),
        Cause("nothing is trained", "optim/grad_norm and optim/learning_rate; which parameters require a gradient"),
        Cause("the reward never differs within a prompt", "reward/group_sd"),
    )
    advice = (
        "Stop. Check that parameters change from step to step (optim/grad_norm above 0), and that the reference is a "
        "separate, frozen model."
    )
    STEPS, LARGEST = 20, 1e-7

    def __init__(self) -> None:
        """Start without a measurement."""
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at the newest measurements, where beta is known to be above 0."""
        key, beta = history.first_of(DRIFT), history.latest("control/beta")
        beta = facts.beta if beta is None else beta
        if not (beta or facts.beta_above_zero) or key is None or fresh(history, key) is None:
            return self._last
        values = history[key].values(self.STEPS)
        self._last = None
        if len(values) == self.STEPS and float(np.abs(values).max()) <= self.LARGEST:
            price = "above 0" if beta is None else f"at {beta:.3g}"
            self._last = Finding(
                "warning",
                f"KL has been 0 in {span(history[key], self.STEPS)}, with beta {price}.",
                {"kl": float(values[-1]), "beta": beta},
                began=int(history[key].steps(self.STEPS)[0]),
            )
        return self._last


class Concentrated:
    """Most of the drift sits in tokens that carry no content."""

    name = "kl/concentrated"
    title = "KL in stop and template tokens"
    looks_at = ("kl/class_stop", "kl/class_special", "kl/exact_per_sequence")
    causes = (
        Cause(
            "the policy learns when to stop, not what to say: the reward pays for length",
            "length/mean, length/stop_rate",
        ),
        Cause("the chat template of training is not the one the model knows", "a rendered prompt, with special tokens"),
        Cause("template tokens are counted as the reply", "the response mask"),
    )
    advice = "Read the KL by token class before raising beta: a tighter leash would be spent on these tokens."
    SMOOTHED, SHARE, LEAST = 10, 0.6, 1.0
    """Measurements in the means, the share of the KL that warns, and the least KL (nats per sequence) for it."""

    def __init__(self) -> None:
        """Start without a measurement."""
        self._last: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the parts with the whole, over the newest measurements."""
        if fresh(history, "kl/class_stop") is not None:
            self._last = self._judge(history)
        return self._last

    def _judge(self, history: History) -> Finding | None:
        track = history["kl/exact_per_sequence"]
        whole = track.values(self.SMOOTHED)
        if len(whole) < self.SMOOTHED or whole.mean() < self.LEAST:
            return None
        part = sum(float(history[key].values(self.SMOOTHED).mean()) for key in self.looks_at[:2] if len(history[key]))
        share = part / float(whole.mean())
        if share < self.SHARE:
            return None
        return Finding(
            "warning",
            f"{share:.0%} of the KL falls on stop and template tokens (mean of {span(track, self.SMOOTHED)}).",
            {"share": share, "kl": float(whole.mean())},
            began=int(track.steps(self.SMOOTHED)[0]),
        )
