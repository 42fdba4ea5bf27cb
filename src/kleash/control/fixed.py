"""A beta that moves by hand alone: for a known good beta, and as the control in a comparison."""

from __future__ import annotations

from typing import Any

from kleash.control.checks import checked_state, finite_kl, not_negative, sequence_count, shortening
from kleash.control.controller import Tightened
from kleash.errors import ConfigError


class Fixed:
    """Keep beta where it is; 0 is allowed, and the KL is measured all the same.

    Args:
        beta: reward given up per nat of KL, 0 or above.

    Raises:
        ConfigError: beta is negative or not finite.
    """

    target: float | None = None
    saturated = 0

    def __init__(self, *, beta: float) -> None:
        self.beta = not_negative("beta", beta, "a negative penalty pays for drift, and a non-finite one is no number")
        self.reason = f"beta is fixed at {self.beta:.4g}."

    def update(self, kl: float, num_sequences: int) -> float:
        """Return the same beta, after checking that the KL is a number; it may be an estimate below 0.

        Raises:
            RunStopped: the KL is not finite or ``num_sequences`` is below 1.
        """
        sequence_count(num_sequences)
        self.reason = f"KL {finite_kl(kl):.4g} nats; beta is fixed at {self.beta:.4g}, whatever the KL."
        return self.beta

    def tighten(self, factor: float) -> Tightened:
        """Divide beta by ``factor``.

        Raises:
            ConfigError: the factor is not between 0 and 1, or beta is 0.
        """
        if self.beta == 0:
            raise ConfigError("beta = 0 cannot be tightened: it stays 0 whatever it is divided by. Start above 0.")
        before, self.beta = self.beta, self.beta / shortening(factor)
        return Tightened("beta", before, self.beta, "reward per nat")

    def state_dict(self) -> dict[str, Any]:
        """Return the beta, as plain JSON types."""
        return {"controller": "fixed", "beta": self.beta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved beta.

        Raises:
            RunDirError: the state is another controller's, or a key is missing, unknown or not finite.
        """
        self.beta = float(checked_state(state, "fixed", {"beta"})["beta"])
