"""How the target moves: a ramp at the start, and a rule for loosening it later."""

from __future__ import annotations

from typing import Any

from kleash.control.checks import at_least_one, checked_state, exact_kl, not_negative, positive
from kleash.errors import RunStopped

NEAR_TARGET = 0.8
"""From this share of the target up, the leash is taut: the KL is held by it, not by the policy's slowness."""


def ramped_target(target: float, step: int, ramp_steps: int) -> float:
    """Return the target to steer at after step ``step``, on the way up to ``target``.

    target min(1, (step + 2) / ramp_steps)^2, so sqrt(target) is linear in steps, as the sqrt(KL) of an
    unpenalised run is. It looks two steps ahead: the beta returned after step t shapes the update of step t +
    1, whose KL is measured at step t + 2.

    Args:
        target: the final target, any unit of KL.
        step: 0 at the first step.
        ramp_steps: steps until the ramp is over; 2 or fewer is no ramp.

    Returns:
        The target of this step, in the unit of ``target``.
    """
    if step + 2 >= ramp_steps:
        return target
    return target * ((step + 2) / ramp_steps) ** 2


class Loosening:
    """Raise the target by a stated step, up to a stated limit, when the leash costs reward.

    Raises it for one of two reasons, each after ``patience`` updates in a row: the reward has stalled (has
    not beaten its best by ``min_gain``) while the KL is at 0.8 of the target or above; or the KL is under the
    target with beta at its floor, so that beta would pull the policy back as soon as it arrived.

    Args:
        raise_by: nats added at a time, in the unit of the target.
        limit: the target is never raised above this.
        patience: updates in a row that make a reason.
        min_gain: rise of the reward over its best that counts as progress. Batch rewards are noisy: pass a
            smoothed or a held-out one.

    Attributes:
        reason: one sentence on the last update.

    Raises:
        ConfigError: a setting that cannot work, by value and reason.
    """

    def __init__(self, *, raise_by: float, limit: float, patience: int = 20, min_gain: float = 0.01) -> None:
        self._raise_by = positive("raise_by", raise_by, "loosening adds it to the target")
        self._limit = positive("limit", limit, "it is the largest target allowed")
        self._min_gain = not_negative("min_gain", min_gain, "a fall of the reward is no progress")
        self._patience = at_least_one("patience", patience, "a reason is seen in updates")
        self._best_reward: float | None = None
        self._stalled = 0
        self._slack = 0
        self.reason = "no update yet."

    def update(self, *, target: float, kl: float, reward: float, beta_at_floor: bool) -> float:
        """Return the target, raised or not.

        Args:
            target: the target in force.
            kl: mean exact KL of the batch, in the unit of the target.
            reward: the reward that should still rise.
            beta_at_floor: whether the controller's beta is at its lower bound.

        Raises:
            RunStopped: the KL or the reward is not a finite number.
        """
        exact_kl(kl)
        self._count(reward, taut=kl >= NEAR_TARGET * target, slack=kl < target and beta_at_floor)
        if self._stalled >= self._patience:
            why = (
                f"reward has not risen above {self._best_reward:.4g} by {self._min_gain:g} "
                f"in {self._stalled} updates at KL {kl:.4g}"
            )
        elif self._slack >= self._patience:
            why = f"KL {kl:.4g} has sat under the target for {self._slack} updates with beta at its floor"
        else:
            self.reason = (
                f"target stays at {target:.4g}: stalled for {self._stalled} and slack for {self._slack} of "
                f"{self._patience} updates."
            )
            return target
        if target >= self._limit:
            self.reason = f"target stays at {target:.4g}, its limit is {self._limit:.4g}: {why}."
            return target
        raised = min(target + self._raise_by, self._limit)
        self._stalled = self._slack = 0
        self.reason = f"target raised {target:.4g} -> {raised:.4g}: {why}."
        return raised

    def _count(self, reward: float, *, taut: bool, slack: bool) -> None:
        if not abs(reward) < float("inf"):
            raise RunStopped(
                f"The reward is {reward!r}, and whether it has stalled cannot be told from it. "
                "Look at this step's rewards for the first non-finite one."
            )
        if self._best_reward is None or reward > self._best_reward + self._min_gain:
            self._best_reward = float(reward)
            self._stalled = 0
        else:
            self._stalled = self._stalled + 1 if taut else 0
        self._slack = self._slack + 1 if slack else 0

    def state_dict(self) -> dict[str, Any]:
        """Return the best reward and the counts, as plain JSON types."""
        return {
            "controller": "loosening",
            "best_reward": self._best_reward,
            "stalled": self._stalled,
            "slack": self._slack,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            RunDirError: the state is another rule's, or a key is missing, unknown or not finite.
        """
        checked_state(state, "loosening", {"best_reward", "stalled", "slack"})
        best = state["best_reward"]
        self._best_reward = None if best is None else float(best)
        self._stalled, self._slack = int(state["stalled"]), int(state["slack"])
