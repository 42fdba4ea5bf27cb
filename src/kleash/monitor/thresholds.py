"""The lines that change-point scores are held against; `benchmarks/alarms` chose and measured them.

A score is in standard deviations of what it scores (`baseline.Scores`). The lines hold for the baseline as it is
estimated in use, on independent noise and on noise with a correlation of 0.9 from step to step; docs/alarms.md has the
rates that follow. The KL has most of the family's false alarms to itself, since its drift must be caught early.
"""

from __future__ import annotations

from kleash.monitor.baseline import Scores

KL_WARNING = Scores(value=5.0, rise_30=4.1, rise_100=3.3)
KL_CRITICAL = Scores(value=6.0, rise_30=5.5, rise_100=5.5)
OTHER = Scores(value=5.5, rise_30=5.0, rise_100=4.75)
"""For every series but the KL; its rules also ask for a large change, which most of the noise never makes."""


def beyond(scores: Scores, lines: Scores) -> bool:
    """Whether any score lies above its line."""
    return scores.value > lines.value or scores.rise_30 > lines.rise_30 or scores.rise_100 > lines.rise_100


def below(scores: Scores, lines: Scores) -> bool:
    """Whether any score lies as far under the baseline as its line is above."""
    return scores.value < -lines.value or scores.rise_30 < -lines.rise_30 or scores.rise_100 < -lines.rise_100
