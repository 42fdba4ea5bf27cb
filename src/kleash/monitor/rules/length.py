"""Length: replies grow or shrink without need, or no longer end by themselves."""

from __future__ import annotations

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import DIFFERENCES, FACTORS, Limits, Shift, Watch, factors
from kleash.runs.records import Cause

GROWS_FROM_START = factors(2.0, 6.0)
"""Reasoning grows replies severalfold in the long run; twice the length before 200 steps is a reward for length."""
GROWS_FROM_BASELINE = factors(1.5, 2.5)
"""Half as long again as what the run had settled on."""
SHRINKS_FROM_START = factors(0.5, 0.25)
"""Half the length loses content; a quarter is seldom a reply."""
SHRINKS_FROM_BASELINE = factors(0.6, 0.35)
"""The same against what the run had settled on, which swings less than the start."""
STOPS_FROM_START = Limits(-0.3, -0.6)
"""Shares: three replies of ten more are cut off. A run whose replies never stopped can not fall by that."""
STOPS_FROM_BASELINE = Limits(-0.2, -0.4)
"""The same against what the run had settled on."""


class BlowUp:
    """Replies grow far beyond what they were."""

    name = "length/blow_up"
    title = "length blow-up"
    looks_at = ("length/mean",)
    causes = (
        Cause(
            "the reward pays for length",
            "reward against length among the samples of one step: is the longer reply of a prompt the better paid?",
        ),
        Cause("replies no longer stop", "length/stop_rate, and what samples end with"),
        Cause("replies loop", "text/repeated_4gram, and the end of the longest samples"),
        Cause(
            "the loss favours long replies (GRPO)",
            "how it is averaged: by reply, a long bad one costs less per token than a short one (in Kleash: "
            "algorithm.loss_normalization)",
        ),
    )
    advice = (
        "Take length out of the reward (in Kleash: reward.length_penalty, reward.missing_stop_penalty), or shorten the "
        "leash: raise beta, or hold a KL per sequence (in Kleash: algorithm.kl.target_nats_per_sequence), which makes "
        "long replies dear as one per token does not."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch("length/mean", FACTORS, from_start=GROWS_FROM_START, from_baseline=GROWS_FROM_BASELINE)

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest length with the start, later with the baseline."""
        return _of_length(self._watch.look(history, facts))


class Collapse:
    """Replies shrink to a part of what they were."""

    name = "length/collapse"
    title = "length collapse"
    looks_at = ("length/mean",)
    causes = (
        Cause(
            "short replies are the cheapest way to keep a KL per sequence",
            "kl/exact_per_token: if it rises while the KL per sequence stays, the drift is hidden in fewer tokens",
        ),
        Cause(
            "the reward pays for brevity, or for an early stop", "reward against length among the samples of one step"
        ),
        Cause(
            "the policy learned to stop at once",
            "kl/class_stop, length/stop_rate and the shortest samples; a stop token that the template adds twice",
        ),
    )
    advice = (
        "Hold the KL per token instead of per sequence (in Kleash: algorithm.kl.target_nats_per_token). Lower a length "
        "penalty where there is one (in Kleash: reward.length_penalty), and go back to a checkpoint before it began."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch("length/mean", FACTORS, from_start=SHRINKS_FROM_START, from_baseline=SHRINKS_FROM_BASELINE)

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest length with the start, later with the baseline."""
        return _of_length(self._watch.look(history, facts))


class StopRate:
    """Fewer replies end by themselves: more are cut off at the limit."""

    name = "length/stop_rate"
    title = "stop rate falling"
    looks_at = ("length/stop_rate",)
    causes = (
        Cause("replies have grown into the limit", "length/mean against the longest reply that is allowed"),
        Cause("the policy has unlearned the stop token", "kl/class_stop, and what the samples at the limit end with"),
        Cause("replies that are cut off are paid as if they were whole", "reward of the samples that did not stop"),
    )
    advice = (
        "Make stopping pay (in Kleash: reward.missing_stop_penalty), or allow longer replies (in Kleash: "
        "rollout.max_completion_length) where they are good and merely longer."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch(
            "length/stop_rate", DIFFERENCES, from_start=STOPS_FROM_START, from_baseline=STOPS_FROM_BASELINE
        )

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest share with the start, later with the baseline."""
        shift = self._watch.look(history, facts)
        if shift is None:
            return None
        message = f"{shift.now:.0%} of the replies stop by themselves; it was {shift.level:.0%} of {shift.against}."
        return Finding(shift.severity, message, shift.values, shift.began)


def _of_length(shift: Shift | None) -> Finding | None:
    if shift is None:
        return None
    message = (
        f"Replies are {shift.now:.4g} tokens long, {shift.now / shift.level:.2g} times the {shift.level:.4g} of "
        f"{shift.against}."
    )
    return Finding(shift.severity, message, shift.values, shift.began)
