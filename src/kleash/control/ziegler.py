"""The adaptive KL coefficient of Ziegler et al. 2019, for those who reproduce papers.

beta <- beta (1 + clip(KL / target - 1, -0.2, 0.2) num_sequences / horizon)

It integrates the error in log beta and has no damping term: where beta sets the *speed* of the KL, it swings.
"""

from __future__ import annotations

from typing import Any

from kleash.control.checks import (
    checked_state,
    finite_kl,
    multiplicative_beta,
    one_target,
    positive,
    sequence_count,
    shortening,
)
from kleash.control.controller import Tightened
from kleash.errors import ConfigError, RunStopped

ERROR_LIMIT = 0.2
"""The clip on KL / target - 1, as published."""


class Ziegler:
    """Multiply beta by up to 1 +- 0.2 num_sequences / horizon, towards the target.

    Takes an estimate of the KL that can be negative (the published runs fed k1). ``saturated`` counts the
    updates whose error the +-0.2 cut.

    Args:
        beta: starting beta, above 0.
        horizon: sequences over which beta changes by the error once; larger is slower. 10,000 in the released
            code; the paper's gain of 0.1 a step is ``horizon = 10 num_sequences``.
        target_nats_per_sequence: the KL to hold, if KL is measured per sequence.
        target_nats_per_token: the KL to hold, if KL is measured per token.

    Raises:
        ConfigError: a setting that cannot work, by value and reason.

    Reference: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, and the released lm-human-preferences.
        Differs from it: a step that could make beta 0 or negative, and a NaN, are refused.
    """

    def __init__(
        self,
        *,
        beta: float,
        horizon: float,
        target_nats_per_sequence: float | None = None,
        target_nats_per_token: float | None = None,
    ) -> None:
        self.beta = multiplicative_beta(beta)
        self._target, self._unit = one_target(target_nats_per_sequence, target_nats_per_token)
        self._horizon = positive("horizon", horizon, "the step is num_sequences / horizon")
        if ERROR_LIMIT / self._horizon >= 1:
            raise ConfigError(
                f"horizon = {horizon!r} sequences cannot work: one sequence at KL 0 would already multiply "
                f"beta by {1 - ERROR_LIMIT / self._horizon:.3g}, and beta must stay above 0. "
                "Give a horizon of several batches."
            )
        self.saturated = 0
        self.reason = f"beta starts at {self.beta:.4g}."

    @property
    def target(self) -> float:
        """The KL that is held, in the unit of the constructor argument."""
        return self._target

    def update(self, kl: float, num_sequences: int) -> float:
        """Return beta after one multiplication.

        Args:
            kl: mean KL of the batch, in the unit of the target.
            num_sequences: sequences in the batch.

        Raises:
            RunStopped: the KL is not finite, or the batch is so large beside the horizon that beta could turn
                negative.
        """
        share = sequence_count(num_sequences) / self._horizon
        if ERROR_LIMIT * share >= 1:
            raise RunStopped(
                f"num_sequences / horizon = {num_sequences} / {self._horizon:g} = {share:.3g}: at KL 0 this "
                f"would multiply beta by {1 - ERROR_LIMIT * share:.3g}, and beta must stay above 0. "
                f"Set horizon above {ERROR_LIMIT * num_sequences:g} sequences; 10 batches or more are usual."
            )
        asked = finite_kl(kl) / self._target - 1
        error = min(max(asked, -ERROR_LIMIT), ERROR_LIMIT)
        before, self.beta = self.beta, self.beta * (1 + error * share)
        self.reason = (
            f"KL {kl:.4g} against target {self._target:.4g} {self._unit}: relative error {asked:+.3g}, "
            f"beta {before:.4g} -> {self.beta:.4g} (x {1 + error * share:.4g})"
        )
        if error != asked:
            self.saturated += 1
            self.reason += f"; error cut to {error:+.1f}"
        self.reason += "."
        return self.beta

    def tighten(self, factor: float) -> Tightened:
        """Multiply the target by ``factor``.

        Raises:
            ConfigError: the factor is not between 0 and 1.
        """
        before, self._target = self._target, self._target * shortening(factor)
        return Tightened("target", before, self._target, self._unit)

    def state_dict(self) -> dict[str, Any]:
        """Return beta, the target and the count of cut errors, as plain JSON types."""
        return {
            "controller": "ziegler",
            "beta": self.beta,
            "target": self._target,
            "saturated": self.saturated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved beta and target; a state from before targets could move has no target of its own.

        Raises:
            RunDirError: the state is another controller's, or a key is missing, unknown or not finite.
        """
        state = {"target": self._target} | state
        checked_state(state, "ziegler", {"beta", "saturated", "target"})
        self._target = float(state["target"])
        self.beta, self.saturated = float(state["beta"]), int(state["saturated"])
