"""The run as a whole: numbers that are none."""

from __future__ import annotations

import math

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.runs.records import Cause

NAMED = 3
"""Keys named in the message; all are in the values."""


class NonFinite:
    """A number is NaN or infinite: what was computed with it is lost, the weights perhaps too."""

    name = "run/non_finite"
    title = "NaN or infinity"
    looks_at = ("every number of the step",)
    causes = (
        Cause(
            "an exponential of a log-ratio overflowed (k3, importance weights)",
            "kl/token_max and ratio/max in the steps before; the estimator of the penalty",
        ),
        Cause(
            "the weights became NaN in an update", "optim/grad_norm of the step before; any tensor of the checkpoint"
        ),
        Cause("float16, or a product of a mask with -inf", "the dtype; masked positions of the log-probabilities"),
        Cause("a reply without a single token: a mean over nothing", "the shortest replies of the step"),
        Cause("the reward returned it", "the rewards of the step"),
    )
    advice = (
        "Stop. Go back to the last checkpoint before it and lower training.learning_rate; do not clip it away, for the "
        "gradient behind it stays NaN."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._since: int | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at every number of the step; their sum is finite where all of them are."""
        fresh = history.fresh
        if math.isfinite(sum(fresh.values())):
            self._since = None
            return None
        wrong = {key: value for key, value in fresh.items() if not math.isfinite(value)}
        if not wrong:
            return None
        if self._since is None:
            self._since = history.now
        named = ", ".join(f"{key} is {value}" for key, value in list(wrong.items())[:NAMED])
        more = f", and {len(wrong) - NAMED} more numbers are not finite" if len(wrong) > NAMED else ""
        return Finding("critical", f"{named}{more} in step {history.now}.", dict(wrong), self._since)
