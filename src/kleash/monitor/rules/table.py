"""All rules of the monitor, in the order in which they are listed."""

from __future__ import annotations

from kleash.monitor.rule import Rule
from kleash.monitor.rules import (
    control,
    entropy,
    hacking,
    kl,
    kl_faults,
    length,
    optimization,
    preference,
    reward,
    run,
    sampler,
    text,
)


def make_rules() -> list[Rule]:
    """Return a fresh instance of every rule, for one run."""
    return [
        run.NonFinite(),
        hacking.Signature(),
        hacking.GoldSplit(),
        hacking.FlatReward(),
        kl.AboveTarget(),
        kl.Far(),
        kl.Spike(),
        kl.Ramp(),
        kl_faults.Negative(),
        kl_faults.NonzeroStart(),
        kl_faults.FlatAtZero(),
        kl_faults.Concentrated(),
        entropy.Collapse(),
        text.Repetition(),
        text.Diversity(),
        text.SameAnswer(),
        length.BlowUp(),
        length.Collapse(),
        length.StopRate(),
        reward.NoSignal(),
        control.Saturated(),
        control.Unreachable(),
        control.Stalled(),
        sampler.Mismatch(),
        optimization.LargeRatio(),
        optimization.Gradient(),
        preference.BothFalling(),
    ]
