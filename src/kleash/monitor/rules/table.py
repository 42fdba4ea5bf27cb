"""All rules of the monitor."""

from __future__ import annotations

from kleash.monitor.rule import Rule
from kleash.monitor.rules import kl, kl_faults


def make_rules() -> list[Rule]:
    """Return a fresh instance of every rule, for one run."""
    return [
        kl.AboveTarget(),
        kl.Far(),
        kl.Spike(),
        kl.Ramp(),
        kl_faults.Negative(),
        kl_faults.NonzeroStart(),
        kl_faults.FlatAtZero(),
        kl_faults.Concentrated(),
    ]
