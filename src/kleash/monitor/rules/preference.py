"""Learning from comparisons without sampling (DPO and its kin): where the chosen side's probability goes."""

from __future__ import annotations

import math
from typing import NamedTuple

from kleash.monitor.history import History, Track, Values
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import Limits, span
from kleash.runs.records import Cause

STEPS = 20
"""Newest batches whose mean is judged; the first as many say where log-probabilities began."""
CERTAIN = 3.0
"""Standard errors below 0 at which a log-probability is said to fall."""
LOST = Limits(-0.15, -0.5)
"""Fall of the chosen side over its log-probability under the reference, where that is known. Vetted runs lose a
twentieth."""


class _Fall(NamedTuple):
    """Mean change since the reference, nats per sequence, and its standard error."""

    change: float
    stderr: float

    @property
    def certain(self) -> bool:
        return self.change < -CERTAIN * self.stderr


class BothFalling:
    """Chosen and rejected completions both become less likely: the margin grows, and both are forgotten."""

    name = "preference/both_falling"
    title = "chosen and rejected both fall"
    looks_at = (
        "preference/chosen_drift",
        "preference/rejected_drift",
        "preference/chosen_logprob",
        "preference/rejected_logprob",
    )
    causes = (
        Cause(
            "the loss rewards the margin alone, and lowering both sides widens it too",
            "preference/chosen_drift and rejected_drift: a small fall is usual, one that goes on is not",
        ),
        Cause("the two sides are nearly the same text", "how many tokens chosen and rejected share"),
        Cause(
            "the leash is too loose",
            "beta (in Kleash: algorithm.beta): a larger one holds both sides nearer to the reference",
        ),
        Cause(
            "the chosen completions are unlikely under the reference to begin with",
            "preference/chosen_logprob at the start; SFT on the chosen side first",
        ),
        Cause("too many epochs or too high a learning rate", "how often each pair was seen; the learning rate"),
    )
    advice = (
        "Read samples: if they are worse, take an earlier checkpoint. Raise beta, lower the learning rate (in Kleash: "
        "algorithm.beta, training.learning_rate), or train on the chosen side (SFT) first."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._since: int | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest batches of both sides with the reference, or with the first batches."""
        chosen, rejected = _fall(history, "chosen"), _fall(history, "rejected")
        if chosen is None or rejected is None:
            return None
        if not (chosen.certain and rejected.certain):
            self._since = None
            return None
        if self._since is None:
            self._since = history.now
        logprobs = history["preference/chosen_logprob"].values(STEPS)
        reference = float(logprobs.mean()) - chosen.change if len(logprobs) else math.nan
        lost = chosen.change / -reference if reference < 0 else math.nan
        share = "" if math.isnan(lost) else f", {-lost:.1%} of its log-probability"
        return Finding(
            LOST.exceeded(lost) or "info",
            f"Both sides became less likely over training: chosen by {-chosen.change:.3g} nats per sequence{share}, "
            f"rejected by {-rejected.change:.3g} (means of {span(_measured(history), STEPS)}).",
            {"chosen_change": chosen.change, "rejected_change": rejected.change},
            self._since,
        )


def _fall(history: History, side: str) -> _Fall | None:
    """Return how far a side's log-probability moved: its drift where that is logged, else since the first batches."""
    drift, logprob = history[f"preference/{side}_drift"], history[f"preference/{side}_logprob"]
    if len(drift) >= STEPS:
        return _Fall(*_mean(drift.values(STEPS)))
    if len(drift) or len(logprob) < 2 * STEPS:
        return None
    return _since_start(logprob)


def _measured(history: History) -> Track:
    """Return the track that the chosen side is judged by."""
    drift = history["preference/chosen_drift"]
    return drift if len(drift) else history["preference/chosen_logprob"]


def _since_start(track: Track) -> _Fall:
    (first, first_stderr), (newest, stderr) = _mean(track.values()[:STEPS]), _mean(track.values(STEPS))
    return _Fall(newest - first, math.hypot(first_stderr, stderr))


def _mean(values: Values) -> tuple[float, float]:
    """Mean of independent batches and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
