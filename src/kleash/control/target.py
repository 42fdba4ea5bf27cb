"""Hold a KL: a proportional-integral-derivative controller in position form on log beta.

e        = clip(log(KL / target_t), +-error_limit)
log beta = I + proportional e + derivative (e - e_previous)
I       += integral e

The plant integrates: beta sets how fast sqrt(KL) moves, not where it is. So the proportional term is the
damping, and a controller without one swings. The derivative term makes up for the lag of the optimiser's
momentum. The integral starts at the log of the starting beta and finds the beta that holds the target; it
rests while the target is still rising, for the beta that lets the KL rise is not the one that holds it.
target_t rises so that sqrt(target_t) is linear in steps.
"""

from __future__ import annotations

import math
from typing import Any

from kleash.control.checks import (
    beta_range,
    checked_state,
    exact_kl,
    multiplicative_beta,
    not_negative,
    one_target,
    positive,
    sequence_count,
    shortening,
)
from kleash.control.controller import Tightened
from kleash.control.schedule import ramped_target
from kleash.errors import ConfigError


class Target:
    """Hold the KL at a target by moving beta; the default controller.

    The KL passed to `update` is exact and in the unit of the target. ``saturated`` counts the updates in
    which a bound cut beta, ``limited`` those in which ``error_limit`` cut the error, ``floored`` those that
    read a KL of (almost) 0 as its floor, because log 0 is no number.

    Args:
        beta: starting beta, above 0; a factor of 3 off is corrected, see docs/control.md.
        target_nats_per_sequence: the KL to hold, if KL is measured per sequence.
        target_nats_per_token: the KL to hold, if KL is measured per token.
        proportional: change of log beta per unit of error. Larger damps harder, until noise and lag make it
            swing.
        integral: change of the integral per unit of error and step. Larger corrects a wrong starting beta
            sooner and overshoots more.
        derivative: change of log beta per unit of change of the error; 0 leaves it out.
        error_limit: largest error that counts, in log KL, so that one step moves beta by a bounded factor.
        ramp_steps: steps in which the target rises to its final value; 0 for none.
        beta_min: floor of beta; by default a thousandth of the starting beta.
        beta_max: ceiling of beta; by default a thousand times the starting beta.
        kl_floor: smallest KL told from 0, as a share of the scheduled target.

    Raises:
        ConfigError: a setting that cannot work, by value and reason.

    Reference: textbook PID (Åström and Murray, Feedback Systems, chapter 11), anti-windup by conditional
        integration; for multipliers Stooke et al. 2020, arXiv:2007.03964. Differs from the latter: log beta
        against log KL, target ramped.
    """

    def __init__(
        self,
        *,
        beta: float,
        target_nats_per_sequence: float | None = None,
        target_nats_per_token: float | None = None,
        proportional: float = 2.0,
        integral: float = 0.08,
        derivative: float = 1.5,
        error_limit: float = 1.0,
        ramp_steps: int = 12,
        beta_min: float | None = None,
        beta_max: float | None = None,
        kl_floor: float = 1e-3,
    ) -> None:
        self.beta = multiplicative_beta(beta)
        self._final_target, self._unit = one_target(target_nats_per_sequence, target_nats_per_token)
        self._proportional = positive("proportional", proportional, "it is the only damping: without it the KL swings")
        self._integral_gain = not_negative("integral", integral, "a negative gain drives beta away from the target")
        self._derivative = not_negative("derivative", derivative, "a negative gain amplifies every swing")
        self._error_limit = positive("error_limit", error_limit, "an error cut to 0 freezes beta")
        if ramp_steps < 0:
            raise ConfigError(f"ramp_steps = {ramp_steps!r} cannot work: it is a number of steps. Give 0 for no ramp.")
        self._ramp_steps = ramp_steps
        self._beta_min, self._beta_max = beta_range(self.beta, beta_min, beta_max)
        self._kl_floor = positive("kl_floor", kl_floor, "the log of a KL of 0 needs a floor")
        if kl_floor >= 1:
            raise ConfigError(
                f"kl_floor = {kl_floor!r} cannot work: it is a share of the target, and a KL below the "
                "target could never be seen. Give a number well below 1, such as 0.001."
            )
        self._integral = math.log(self.beta)
        self._previous_error: float | None = None
        self._step = 0
        self._target = ramped_target(self._final_target, 0, ramp_steps)
        self.saturated = self.limited = self.floored = 0
        self.reason = f"beta starts at {self.beta:.4g}."

    @property
    def target(self) -> float:
        """The scheduled target of the last update, in the unit of the constructor argument."""
        return self._target

    @property
    def final_target(self) -> float:
        """The target after the ramp, in the unit of the constructor argument."""
        return self._final_target

    @property
    def at_floor(self) -> bool:
        """Whether beta is at its lower bound."""
        return self.beta <= self._beta_min

    def retarget(self, final_target: float) -> None:
        """Hold another KL from the next update on, in the same unit; the ramp does not start again.

        Raises:
            ConfigError: the target is not a finite number above 0.
        """
        self._final_target = positive("final_target", final_target, "KL is measured relative to its target")

    def tighten(self, factor: float) -> Tightened:
        """Hold the final target times ``factor`` from the next update on.

        Raises:
            ConfigError: the factor is not between 0 and 1.
        """
        before = self._final_target
        self.retarget(before * shortening(factor))
        return Tightened("target", before, self._final_target, self._unit)

    def update(self, kl: float, num_sequences: int) -> float:
        """Return the next beta.

        Args:
            kl: mean exact KL of the batch, in the unit of the target.
            num_sequences: sequences in the batch; checked, the gains are per step and do not depend on it.

        Raises:
            RunStopped: the KL is not finite or negative, or ``num_sequences`` is below 1.
        """
        sequence_count(num_sequences)
        notes: list[str] = []
        error = self._error(exact_kl(kl), notes)
        change = 0.0 if self._previous_error is None else error - self._previous_error
        proportional, derivative = self._proportional * error, self._derivative * change
        integral_step = self._integral_gain * error if self._step + 2 >= self._ramp_steps else 0.0
        before = self.beta
        asked = self._integral + integral_step + proportional + derivative
        self.beta, pushed_out = self._bounded(asked, error, notes)
        self._integral += 0.0 if pushed_out else integral_step
        self._previous_error = error
        self._step += 1
        self.reason = (
            f"KL {kl:.4g} against target {self._target:.4g} {self._unit}: error {error:+.3g}, "
            f"beta {before:.4g} -> {self.beta:.4g} (proportional {proportional:+.3g}, "
            f"derivative {derivative:+.3g}, integral at beta {math.exp(self._integral):.4g})"
            + "".join(f"; {note}" for note in notes)
            + "."
        )
        return self.beta

    def _error(self, kl: float, notes: list[str]) -> float:
        """Log of KL over the scheduled target, its floor and its limit applied, counted and noted."""
        self._target = ramped_target(self._final_target, self._step, self._ramp_steps)
        if self._step + 2 < self._ramp_steps:
            notes.append(f"ramp to {self._final_target:.4g}, integral rests")
        floor = self._kl_floor * self._target
        if kl < floor:
            self.floored += 1
            notes.append(f"KL read as its floor {floor:.3g}")
        asked = math.log(max(kl, floor) / self._target)
        error = min(max(asked, -self._error_limit), self._error_limit)
        if error != asked:
            self.limited += 1
            notes.append(f"error {asked:+.3g} limited")
        return error

    def _bounded(self, asked: float, error: float, notes: list[str]) -> tuple[float, bool]:
        """Beta within its bounds, and whether the error pushes further out, so that the integral holds."""
        low, high = math.log(self._beta_min), math.log(self._beta_max)
        if low <= asked <= high:
            return math.exp(asked), False
        self.saturated += 1
        bound, beta = ("beta_min", self._beta_min) if asked < low else ("beta_max", self._beta_max)
        pushed_out = error < 0 if asked < low else error > 0
        notes.append(f"held at {bound}" + (", integral holds" if pushed_out else ""))
        return beta, pushed_out

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next update depends on, as plain JSON types."""
        return {
            "controller": "target",
            "beta": self.beta,
            "integral": self._integral,
            "previous_error": self._previous_error,
            "step": self._step,
            "final_target": self._final_target,
            "target": self._target,
            "saturated": self.saturated,
            "limited": self.limited,
            "floored": self.floored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state: schedule position, integral and last error included.

        Raises:
            RunDirError: the state is another controller's, or a key is missing, unknown or not finite.
        """
        checked_state(state, "target", self.state_dict().keys() - {"controller"})
        previous = state["previous_error"]
        self.beta, self._integral = float(state["beta"]), float(state["integral"])
        self._previous_error = None if previous is None else float(previous)
        self._step = int(state["step"])
        self._final_target, self._target = float(state["final_target"]), float(state["target"])
        self.saturated, self.limited = int(state["saturated"]), int(state["limited"])
        self.floored = int(state["floored"])
