"""The run as a whole: numbers that are none."""

from __future__ import annotations

import math
from typing import NamedTuple

from kleash.metrics import FUNCTION_PREFIX
from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.runs.records import Cause

NAMED = 3
"""Keys named in the message; all are in the values."""


GRADIENT = "optim/grad_norm"
GRADIENT_STEPS = 5
"""Measurements in a row in which the gradient's norm alone is no number: float16 training skips such a step and halves
the scale of its loss, which mends it after one or a few."""


class _Wrong(NamedTuple):
    """A number that is none: its newest value, the steps of the first and of that, and how many there are in a row."""

    value: float
    first: int
    newest: int
    times: int


class NonFinite:
    """A number is NaN or infinite: what was computed with it is lost, the weights perhaps too.

    NaN is in order as the mean of a reward function that had nothing to say of a whole batch.
    """

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
        "Unless it is a lone step of float16 training, stop. Go back to the last checkpoint before it and lower the "
        "learning rate (in Kleash: training.learning_rate); do not clip it away, for the gradient behind it stays NaN."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._wrong: dict[str, _Wrong] = {}

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at every number of the step; their sum is finite where all of them are."""
        if self._wrong or not math.isfinite(sum(history.fresh.values())):
            self._take(history)
        if not self._wrong:
            return None
        wrong = list(self._wrong.items())
        named = ", ".join(f"{key} is {one.value}" for key, one in wrong[:NAMED])
        more = f", and {len(wrong) - NAMED} more numbers are not finite" if len(wrong) > NAMED else ""
        message = f"{named}{more} in step {max(one.newest for _, one in wrong):,}."
        skipped = list(self._wrong) == [GRADIENT] and self._wrong[GRADIENT].times < GRADIENT_STEPS
        if skipped:
            message += (
                " By itself that is no fault: float16 training skips such a step and lowers the scale of its loss. It "
                f"is one if it goes on for {GRADIENT_STEPS} measurements."
            )
        values: dict[str, float | None] = {key: one.value for key, one in wrong}
        return Finding("warning" if skipped else "critical", message, values, min(one.first for _, one in wrong))

    def _take(self, history: History) -> None:
        """Take the newest step in: each number stays wrong until it is measured again."""
        for key, value in history.fresh.items():
            if math.isfinite(value) or (math.isnan(value) and key.startswith(FUNCTION_PREFIX)):
                self._wrong.pop(key, None)
                continue
            before = self._wrong.get(key)
            first, times = (history.now, 1) if before is None else (before.first, before.times + 1)
            self._wrong[key] = _Wrong(value, first, history.now, times)
