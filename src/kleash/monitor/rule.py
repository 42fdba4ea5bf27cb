"""What a rule is: a look at the history that finds something wrong, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kleash.monitor.history import History
from kleash.runs.records import Cause, Severity


@dataclass(frozen=True)
class Finding:
    """What a rule says of the step at hand.

    Args:
        severity: "info", "warning" or "critical".
        message: one or two sentences with the numbers and their units.
        values: the numbers by name.
        began: the step in which it began; at or before the one at hand.
        causes: where this finding points elsewhere than the rule's own; the likeliest first.
    """

    severity: Severity
    message: str
    values: Mapping[str, float | None]
    began: int
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What rules may know of a run besides its numbers.

    Args:
        beta: of a leash that does not move; None where it is not known or is logged as `control/beta`.
        beta_above_zero: whether it is known to be above 0 though its value is not.
        target_key: which KL a controller holds at `control/target`; None where there is no target.
        before_updates: the step that was measured before any update; trainers that count updates write 1.
        reference: numbers of the reference's own replies (keys of `kleash.metrics`); empty: those of the first
            step that measures a key stand in.
    """

    beta: float | None = None
    beta_above_zero: bool = False
    target_key: str | None = None
    before_updates: int = 0
    reference: Mapping[str, float] = field(default_factory=dict)


class Rule(Protocol):
    """One thing that can go wrong. An instance belongs to one run, and remembers what it needs of it."""

    @property
    def name(self) -> str:
        """Of its events, `room/what`, such as `kl/spike`."""
        ...

    @property
    def title(self) -> str:
        """In words, for tables and pages."""
        ...

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The keys it reads."""
        ...

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Likely ones, the likeliest first, each with what to check."""
        ...

    @property
    def advice(self) -> str:
        """What to do."""
        ...

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Look at the newest step. Called once a step, in order.

        A rule that got no number to look at in this step answers as it did the last time: no news is not good news.
        """
        ...
