"""The update itself: importance ratios far from 1, gradients that blow up."""

from __future__ import annotations

from collections import deque

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import FACTORS, Limits, Watch, factors, fresh
from kleash.runs.records import Cause

RATIO = Limits(10.0, 100.0)
"""Policy / behavior. At a mean of 10 trainers have long skipped the batch; here the largest must reach it, and stay."""
CLIPPED = Limits(0.3, 0.6)
"""Shares whose gradient the clip cut. A tenth is usual; beyond a third most of what was sampled teaches nothing."""
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
            "training.num_epochs and training.num_minibatches: do the ratios grow from update to update?",
        ),
        Cause("the learning rate is too high", "training.learning_rate; the ratios after a single update"),
        Cause(
            "sampler and scorer disagree, so the ratios are not 1 before the first update",
            "sampler/mismatch_mean, and the ratios with a learning rate of 0",
        ),
    )
    advice = (
        "Lower training.num_epochs or training.learning_rate. With an exact penalty in later updates watch "
        "ratio/truncated_share as well."
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
        what = f"The largest ratio was {reached:.3g}" if key == "ratio/max" else f"The clip cut {reached:.0%}"
        message = f"{what} or more in each of the last {RATIO_STEPS} steps (absolute rule: {limit:g})."
        return Finding(severity, message, {key: reached, "limit": limit}, int(history[key].steps(RATIO_STEPS)[0]))


class Gradient:
    """The norm of the gradient jumps or blows up."""

    name = "optim/gradient"
    title = "gradient blow-up"
    looks_at = ("optim/grad_norm",)
    causes = (
        Cause(
            "the learning rate is too high and the policy has jumped", "the KL and training.learning_rate at that step"
        ),
        Cause(
            "a few replies have extreme log-ratios or rewards",
            "kl/token_max, the largest reward of the step and the sample that has it",
        ),
        Cause("the scale of the reward changed", "reward/proxy and reward/group_sd at that step; reward.rescale"),
        Cause("a k3 penalty in the loss: its gradient grows exponentially", "algorithm.kl.estimator; `exact` does not"),
    )
    advice = (
        "Clipping (training.max_grad_norm) has bounded the step. If it stays high, lower training.learning_rate and go "
        "back to a checkpoint before it began."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch(
            "optim/grad_norm", FACTORS, from_start=BLOWS_UP_FROM_START, from_baseline=BLOWS_UP_FROM_BASELINE
        )
        self._before: deque[float] = deque(maxlen=SPIKE_STEPS)

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest norms with the start, the baseline and the steps before."""
        shift = self._watch.look(history, facts)
        spike = self._spike(history)
        if shift is None:
            return spike
        message = (
            f"The gradient's norm is {shift.now:.3g}, {shift.now / shift.level:.3g} times the {shift.level:.3g} of "
            f"{shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)

    def _spike(self, history: History) -> Finding | None:
        norm = fresh(history, "optim/grad_norm")
        if norm is None:
            return None
        largest = max(self._before, default=0.0)
        full = len(self._before) == SPIKE_STEPS
        self._before.append(norm)
        if not full or largest == 0.0 or norm < SPIKE * largest:
            return None
        message = (
            f"The gradient's norm is {norm:.3g} in this step, {norm / largest:.3g} times the largest of the "
            f"{SPIKE_STEPS} steps before (absolute rule)."
        )
        return Finding("warning", message, {"optim/grad_norm": norm, "largest_before": largest}, history.now)
