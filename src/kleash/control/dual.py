"""The multiplier of the constraint KL <= target, found by dual ascent.

log beta <- log beta + step_size (KL / target - 1), kept within [beta_min, beta_max]

This is the log form, not the projected one (beta <- max(0, beta + step_size (KL - target))): beta stays above
0, and the step does not depend on the scale of the reward. beta is the only state, and it is kept within its
bounds, so nothing can wind up behind a bound. Like every pure integrator of the error it swings where beta
sets the speed of the KL: prefer `Target` to hold a KL, and this to reproduce constrained optimisation.
"""

from __future__ import annotations

import math
from typing import Any

from kleash.control.checks import (
    at_least_one,
    beta_range,
    checked_state,
    exact_kl,
    multiplicative_beta,
    one_target,
    positive,
    sequence_count,
    shortening,
)
from kleash.control.controller import Tightened
from kleash.errors import RunStopped


class Dual:
    """Raise beta while the KL is above the target, lower it while the KL is below.

    At the floor with the KL under the target the constraint is slack: it does not bind, and that is no fault.
    At the ceiling with the KL above the target no beta in reach meets the constraint: after ``patience`` such
    updates in a row the run stops. ``saturated`` counts the updates in which a bound cut beta.

    Args:
        beta: starting beta, above 0.
        target_nats_per_sequence: the constraint, if KL is measured per sequence.
        target_nats_per_token: the constraint, if KL is measured per token.
        step_size: change of log beta for an error of one target.
        beta_min: floor of beta; by default a thousandth of the starting beta.
        beta_max: ceiling of beta; by default a thousand times the starting beta.
        patience: updates in a row at the ceiling, KL above the target, before the target is called
            infeasible.

    Raises:
        ConfigError: a setting that cannot work, by value and reason.

    Reference: dual ascent on a Lagrange multiplier, as in Stooke et al. 2020, arXiv:2007.03964, without its
        proportional and derivative terms and in log beta.
    """

    def __init__(
        self,
        *,
        beta: float,
        target_nats_per_sequence: float | None = None,
        target_nats_per_token: float | None = None,
        step_size: float = 0.05,
        beta_min: float | None = None,
        beta_max: float | None = None,
        patience: int = 20,
    ) -> None:
        self.beta = multiplicative_beta(beta)
        self._target, self._unit = one_target(target_nats_per_sequence, target_nats_per_token)
        self._step_size = positive("step_size", step_size, "a step of 0 freezes beta and a negative one pays for drift")
        self._beta_min, self._beta_max = beta_range(self.beta, beta_min, beta_max)
        self._patience = at_least_one("patience", patience, "a target is found infeasible by updates")
        self._updates_at_ceiling = 0
        self.saturated = 0
        self.reason = f"beta starts at {self.beta:.4g}."

    @property
    def target(self) -> float:
        """The largest KL allowed, in the unit of the constructor argument."""
        return self._target

    def update(self, kl: float, num_sequences: int) -> float:
        """Return beta after one step of ascent.

        Args:
            kl: mean exact KL of the batch, in the unit of the target.
            num_sequences: sequences in the batch; checked, the step does not depend on it.

        Raises:
            RunStopped: the KL is not finite or negative, or the target is infeasible.
        """
        sequence_count(num_sequences)
        error = exact_kl(kl) / self._target - 1
        asked = math.log(self.beta) + self._step_size * error
        low, high = math.log(self._beta_min), math.log(self._beta_max)
        before, self.beta = self.beta, math.exp(min(max(asked, low), high))
        self.reason = (
            f"KL {kl:.4g} against at most {self._target:.4g} {self._unit}: relative error {error:+.3g}, "
            f"beta {before:.4g} -> {self.beta:.4g}"
        )
        if asked < low:
            self.reason += "; held at beta_min, the constraint is slack"
        elif asked > high:
            self.reason += "; held at beta_max"
        self.reason += "."
        self.saturated += not low <= asked <= high
        self._updates_at_ceiling = self._updates_at_ceiling + 1 if asked > high else 0
        if self._updates_at_ceiling >= self._patience:
            raise RunStopped(
                f"The target of {self._target:g} {self._unit} is infeasible here: KL is still {kl:.4g} after "
                f"{self._updates_at_ceiling} updates in a row with beta at beta_max = {self._beta_max:g}. "
                "Raise the target or beta_max, or lower the learning rate."
            )
        return self.beta

    def tighten(self, factor: float) -> Tightened:
        """Multiply the target by ``factor``.

        Raises:
            ConfigError: the factor is not between 0 and 1.
        """
        before, self._target = self._target, self._target * shortening(factor)
        return Tightened("target", before, self._target, self._unit)

    def state_dict(self) -> dict[str, Any]:
        """Return beta, the target and the counts, as plain JSON types."""
        return {
            "controller": "dual",
            "beta": self.beta,
            "target": self._target,
            "updates_at_ceiling": self._updates_at_ceiling,
            "saturated": self.saturated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved beta and target; a state from before targets could move has no target of its own.

        Raises:
            RunDirError: the state is another controller's, or a key is missing, unknown or not finite.
        """
        state = {"target": self._target} | state
        checked_state(state, "dual", {"beta", "updates_at_ceiling", "saturated", "target"})
        self._target = float(state["target"])
        self.beta, self.saturated = float(state["beta"]), int(state["saturated"])
        self._updates_at_ceiling = int(state["updates_at_ceiling"])
