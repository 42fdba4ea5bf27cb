"""Entropy: the policy stops trying anything."""

from __future__ import annotations

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import FACTORS, Watch, factors
from kleash.runs.records import Cause

FROM_START = factors(0.6, 0.4)
"""Healthy runs that learn under a leash keep 0.7 and more of their first entropy; without one 0.6 is soon passed."""
FROM_BASELINE = factors(0.75, 0.5)
"""A settled run swings by a tenth; a quarter less is a change of its samples that can be read in them."""


class Collapse:
    """The entropy of the next token falls: samples become alike, and there is nothing left to choose between."""

    name = "entropy/collapse"
    title = "entropy collapse"
    looks_at = ("entropy/per_token",)
    causes = (
        Cause(
            "the policy repeats the one kind of reply that the reward likes best",
            "samples of the newest step: are they alike, and is reward/group_sd falling too?",
        ),
        Cause(
            "the leash is too loose to keep the reference's variety",
            "control/beta and the KL: the entropy that is lost is paid for in KL",
        ),
        Cause("the learning rate is too high", "the learning rate; optim/grad_norm when the fall began"),
        Cause(
            "the clip holds rare tokens down (GRPO, PPO)",
            "ratio/clip_fraction; an upper clip of 0.28 lets rare tokens rise (in Kleash: algorithm.epsilon_high)",
        ),
    )
    advice = (
        "Go back to a checkpoint before it began. Then raise beta, hold a lower KL or lower the learning rate (in "
        "Kleash: algorithm.kl.beta, algorithm.kl.target_nats_per_sequence, training.learning_rate); more replies to a "
        "prompt (in Kleash: algorithm.num_generations) keep more to compare."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watch = Watch("entropy/per_token", FACTORS, from_start=FROM_START, from_baseline=FROM_BASELINE)

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest entropy with the start, later with the baseline."""
        shift = self._watch.look(history, facts)
        if shift is None:
            return None
        message = (
            f"Entropy is {shift.now:.3g} nats per token, {shift.now / shift.level:.0%} of the {shift.level:.3g} of "
            f"{shift.against}."
        )
        return Finding(shift.severity, message, shift.values, shift.began)
