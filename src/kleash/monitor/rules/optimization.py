"""The update itself: importance ratios far from 1, gradients that blow up."""

from __future__ import annotations

from collections import deque

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import POSITIVE_FACTORS, Limits, Watch, factors, fresh, span
from kleash.runs.records import Cause

RATIO = Limits(10.0, 100.0)
"""Policy / behavior. At a mean of 10 trainers have long skipped the batch; here the largest must reach it, and stay."""
CLIPPED = Limits(0.3, 0.6)
"""Shares whose gradient the clip cut. A tenth is usual; beyond a third much of what was sampled teaches nothing."""
RATIO_STEPS = 3
"""Steps in a row: one odd sequence in one batch is no pattern."""
BLOWS_UP_FROM_START = factors(10.0, 100.0)
"""Gradient norms vary by a factor of 3 from batch to batch, and fall as the reward is learned."""
BLOWS_UP_FROM_BASELINE = factors(5.0, 50.0)
"""The same against what the run had settled on."""
SPIKE = 10.0
"""Times the largest norm of the steps before: far outside what any of them had."""
SPIKE_STEPS = 20


class LargeRatio:
    """The policy that is updated has moved far from the one that sampled, within one step."""

    name = "ratio/large"
    title = "importance ratios far from 1"
    looks_at = ("ratio/max", "ratio/clip_fraction")
    causes = (
        Cause(
            "too many updates on the same samples",
            "updates on a sample (in Kleash: training.num_epochs, training.num_minibatches): do the ratios grow from "
            "one to the next?",
        ),
        Cause("the learning rate is too high", "the learning rate; the ratios after a single update"),
        Cause(
            "sampler and scorer disagree, so the ratios are not 1 before the first update",
            "sampler/mismatch_mean, and the ratios with a learning rate of 0",
        ),
    )
    advice = (
        "Train less often on the same samples, or lower the learning rate (in Kleash: training.num_epochs, "
        "training.learning_rate). With an exact penalty in later updates watch ratio/truncated_share as well."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._newest: dict[str, deque[float]] = {key: deque(maxlen=RATIO_STEPS) for key in self.looks_at}

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare what all of the newest steps reach with fixed limits."""
        return self._reached("ratio/max", RATIO, history) or self._reached("ratio/clip_fraction", CLIPPED, history)

    def _reached(self, key: str, limits: Limits, history: History) -> Finding | None:
        newest = self._newest[key]
        value = fresh(history, key)
        if value is not None:
            newest.append(value)
        if len(newest) < RATIO_STEPS:
            return None
        reached = min(newest)
        severity = limits.exceeded(reached)
        if severity is None:
            return None
        limit = limits.critical if severity == "critical" else limits.warning
        track = history[key]
        message = f"In each of {span(track, RATIO_STEPS)} {_in_words(key, reached)}"
        return Finding(severity, message, {key: reached, "limit": limit}, int(track.steps(RATIO_STEPS)[0]))


def _in_words(key: str, reached: float) -> str:
    if key == "ratio/max":
        return (
            f"something was at least {reached:.3g} times as likely under the policy as when it was sampled; above "
            f"{RATIO.warning:g} times such a token or reply outweighs the rest of its batch."
        )
    return (
        f"the clip cut the gradient of at least {reached:.0%} of the tokens; above {CLIPPED.warning:.0%} much of a "
        "batch teaches nothing."
    )


class Gradient:
    """The norm of the gradient jumps or blows up."""

    name = "optim/gradient"
    title = "gradient blow-up"
    looks_at = ("optim/grad_norm",)
    causes = (
        Cause("the learning rate is too high and the policy has jumped", "the KL and the learning rate at that step"),
        Cause(
            "a few replies have extreme log-ratios or rewards",
            "kl/token_max, the largest reward of the step and the sample that has it",
        ),
        Cause(
            "the scale of the reward changed",
            "reward/proxy and reward/group_sd at that step (in Kleash: reward.rescale)",
        ),
        Cause(
            "a k3 penalty in the loss: its gradient grows exponentially",
            "the estimator of the penalty (in Kleash: algorithm.kl.estimator; that of `exact` does not)",
        ),
    )
    advice = (
        "Clipping has bounded the step, if it is on (in Kleash: training.max_grad_norm). If it stays high, lower the "
        "learning rate (in Kleash: training.learning_rate) and go back to a checkpoint before it began."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch(
            "optim/grad_norm", POSITIVE_FACTORS, from_start=BLOWS_UP_FROM_START, from_baseline=BLOWS_UP_FROM_BASELINE
        )
        self._before: deque[float] = deque(maxlen=SPIKE_STEPS)
        self._spiked: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest norms with the start, the baseline and the steps before; those of 0 are no norms.

        Where all rewards of a batch are equal and drift is free, nothing is learned and the norm is 0.
        """
        shift = self._watch.look(history, facts)
        norm = fresh(history, "optim/grad_norm")
        if norm is not None:
            self._spiked = self._spike(norm, history) if norm > 0.0 else None
        if shift is None:
            return self._spiked
        message = (
            f"The gradient's norm is {shift.now:.3g}, {shift.now / shift.level:.3g} times the {shift.level:.3g} of "
            f"{shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)

    def _spike(self, norm: float, history: History) -> Finding | None:
        largest = max(self._before, default=0.0)
        full = len(self._before) == SPIKE_STEPS
        self._before.append(norm)
        if not full or norm < SPIKE * largest:
            return None
        message = (
            f"The gradient's norm is {norm:.3g} in this step, {norm / largest:.3g} times the largest of the "
            f"{SPIKE_STEPS} before it."
        )
        return Finding("warning", message, {"optim/grad_norm": norm, "largest_before": largest}, history.now)
