"""What the training loop may ask of any controller of beta.

A controller sees one number a step, the mean exact KL(policy || reference) of the batch, and answers with the
beta of the next step. The KL is in the unit of the controller's target: nats per sequence or nats per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Tightened:
    """What a shorter leash moved.

    Args:
        what: "target" or "beta".
        before: its value until now.
        after: its value from the next update on.
        unit: of both.
    """

    what: str
    before: float
    after: float
    unit: str

    def __str__(self) -> str:
        """As in a message: "target 6 -> 4.2 nats per sequence"."""
        return f"{self.what} {self.before:.4g} -> {self.after:.4g} {self.unit}"


class Controller(Protocol):
    """A rule that sets beta, the reward given up per nat of KL.

    Attributes:
        beta: the beta in force; before the first update, the starting one.
        reason: one sentence on the last update: measured KL, target, error, what moved, which limit cut it.
        saturated: updates in which a limit cut what the rule asked for; each class says which limit.
    """

    beta: float
    reason: str
    saturated: int

    @property
    def target(self) -> float | None:
        """The KL steered at by the last update, in its unit; None for a controller that holds none."""
        ...

    def update(self, kl: float, num_sequences: int) -> float:
        """Return the next beta.

        Args:
            kl: mean exact KL of the batch, in the unit of the target.
            num_sequences: sequences that the mean is over.

        Raises:
            RunStopped: the KL is not finite, or no beta can answer it; the reason is in the text.
        """
        ...

    def tighten(self, factor: float) -> Tightened:
        """Shorten the leash from the next update on: a target times ``factor``, or a fixed beta divided by it.

        Args:
            factor: between 0 and 1.

        Raises:
            ConfigError: it is not.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next update depends on, as plain JSON types."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state, so that the next update is the one the saved run would have made.

        Raises:
            RunDirError: the state is another controller's, or a key is missing, unknown or not finite.
        """
        ...
