"""A KL that cannot be right: negative, not zero at the start, dead, or spent on tokens that say nothing."""

from __future__ import annotations

import math

import numpy as np

from kleash.metrics import METRICS
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.kl import DRIFT, MISMATCH, PER_TOKEN
from kleash.runs.records import Cause

REFERENCE = Cause(
    "the reference is not the model that training started from", "the reference's name, revision, dtype and adapter"
)


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
        "A penalty on this estimate now pays for drift. Stop, score one batch with sampler and trainer side by side, "
        "and use the exact KL."
    )
    SMOOTHED, SPREAD_OVER, ERRORS = 10, 30, 4.5
    """Steps in the mean, steps whose differences tell the noise, and how many of its errors the mean must be below."""

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the mean of k1 with the exact KL where there is one, else with 0."""
        for key, exact in (
            ("kl/k1_per_sequence", "kl/exact_per_sequence"),
            ("kl/k1_per_token", "kl/exact_per_token"),
        ):
            if key in history.fresh and len(history[key]) >= self.SMOOTHED:
                return self._compare(history, key, exact)
        return None

    def _compare(self, history: History, key: str, exact: str) -> Finding | None:
        values, steps = history[key].values(self.SMOOTHED), history[key].steps(self.SMOOTHED)
        expected = history[exact].values(self.SMOOTHED) if exact in history.fresh else np.zeros(1)
        gap = values - expected
        error = self._noise(history, key, exact) / math.sqrt(len(values))
        difference, mean = float(gap.mean()), float(values.mean())
        if mean >= 0.0 or difference > -self.ERRORS * error:
            return None
        against = f"exact KL {float(expected.mean()):.3g}" if exact in history.fresh else "a KL is never below 0"
        return Finding(
            "critical",
            f"The sampled KL (k1) is {mean:.3g} {METRICS[key].unit} over the last {len(values)} steps ({against}); "
            f"noise explains +-{error:.2g}.",
            {"k1": mean, "difference": difference, "error": error},
            began=int(steps[0]),
        )

    def _noise(self, history: History, key: str, exact: str) -> float:
        """Standard deviation of a step, from the differences of neighbours: sampling errs anew in every step.

        A shift of the level, which is what is looked for, hardly enters the differences.
        """
        values = history[key].values(self.SPREAD_OVER)
        if exact in history.fresh and len(history[exact]) >= len(values):
            values = values - history[exact].values(len(values))
        return math.sqrt(float((np.diff(values) ** 2).mean()) / 2)


class NonzeroStart:
    """Before the first update the policy is the reference, so that any KL is a fault of the set-up."""

    name = "kl/nonzero_start"
    title = "KL not zero at the start"
    looks_at = DRIFT[:-2]
    causes = (
        REFERENCE,
        Cause("prompts are rendered or cut differently for the two", "one rendered prompt, token by token"),
        MISMATCH,
        Cause("dropout is on in one of the two passes", "model.train() and the model's dropout settings"),
    )
    advice = "Stop: every KL of this run is measured from a wrong origin."
    WARNING, CRITICAL = 1e-3, 0.05
    """Nats per token; rounding in bfloat16 stays below the first."""

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at step 0 alone: later ones have moved."""
        if history.now != 0:
            return None
        key = next((key for key in PER_TOKEN[:-1] if key in history.fresh), None)
        if key is None or not abs(history.fresh[key]) > self.WARNING:
            return None
        value = history.fresh[key]
        return Finding(
            "critical" if abs(value) > self.CRITICAL else "warning",
            f"KL is {value:.3g} nats per token before the first update, where policy and reference are the same model.",
            {"kl": value},
            began=0,
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
    advice = "Do not go on: the run is not doing what its settings say."
    STEPS, LARGEST = 20, 1e-7

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at the newest steps, where beta is known to be above 0."""
        key, beta = history.first_of(DRIFT), history.latest("control/beta")
        beta = facts.beta if beta is None else beta
        if not beta or key is None or key not in history.fresh or len(history[key]) < self.STEPS:
            return None
        values = history[key].values(self.STEPS)
        if float(np.abs(values).max()) > self.LARGEST:
            return None
        return Finding(
            "warning",
            f"KL has been 0 in the last {self.STEPS} steps, with beta at {beta:.3g}.",
            {"kl": float(values[-1]), "beta": beta},
            began=int(history[key].steps(self.STEPS)[0]),
        )


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

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the parts with the whole, over the newest steps."""
        whole = history["kl/exact_per_sequence"].values(self.SMOOTHED)
        if len(whole) < self.SMOOTHED or whole.mean() < self.LEAST or "kl/class_stop" not in history.fresh:
            return None
        part = sum(float(history[key].values(self.SMOOTHED).mean()) for key in self.looks_at[:2] if len(history[key]))
        share = part / float(whole.mean())
        if share < self.SHARE:
            return None
        return Finding(
            "warning",
            f"{share:.0%} of the KL of the last {self.SMOOTHED} steps falls on stop and template tokens.",
            {"share": share, "kl": float(whole.mean())},
            began=int(history["kl/exact_per_sequence"].steps(self.SMOOTHED)[0]),
        )
