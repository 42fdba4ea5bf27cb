"""How often a score prefers the text that people preferred, with its interval, and what simple scores reach.

Held-out comparisons share no snippet, so they are independent and a binomial interval holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ratings import Vote

from kleash.demo import sentiment

Z = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Accuracy:
    """A share of comparisons, a tie counted half, and its 95 % interval (Wilson's)."""

    value: float
    low: float
    high: float
    comparisons: int
    ties: int

    def as_dict(self) -> dict[str, float]:
        """Its fields, for JSON."""
        return asdict(self)


def accuracy(chosen: Sequence[float], rejected: Sequence[float]) -> Accuracy:
    """Return how often the chosen text has the higher score; equal scores count one half.

    Args:
        chosen: the score of each comparison's preferred text.
        rejected: the score of the other one, in the same order.
    """
    wins = sum(better > worse for better, worse in zip(chosen, rejected, strict=True))
    ties = sum(better == worse for better, worse in zip(chosen, rejected, strict=True))
    share = (wins + ties / 2) / len(chosen)
    low, high = wilson(share, len(chosen))
    return Accuracy(share, low, high, len(chosen), ties)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` independent trials.

    Reference: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    spread = Z**2 / count
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return centre - half, centre + half


def baselines(votes: Sequence[Vote]) -> dict[str, Accuracy]:
    """Return what scores without a model reach on these votes.

    The mean rating gives the ceiling that the raters' own agreement sets, which lies between its two rows: without the
    two voters it is the noisier mean of fewer people, with them it has seen part of the answer.
    """
    chosen = [vote.chosen for vote in votes]
    rejected = [vote.rejected for vote in votes]
    return {
        "mean of the other raters": accuracy(
            [vote.chosen.mean_without(vote.chosen_rating) for vote in votes],
            [vote.rejected.mean_without(vote.rejected_rating) for vote in votes],
        ),
        "mean of all raters": accuracy([one.mean for one in chosen], [one.mean for one in rejected]),
        "lexicon (VADER)": accuracy(_lexicon([one.text for one in chosen]), _lexicon([one.text for one in rejected])),
        "longer text": accuracy([len(one.text) for one in chosen], [len(one.text) for one in rejected]),
    }


def table(measured: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return a Markdown table: a row a score, a column a domain.

    Args:
        measured: `Accuracy.as_dict()` by domain, then by score; every domain has the same scores.
    """
    domains = list(measured)
    scores = list(measured[domains[0]])
    head = [f"{domain} ({measured[domain][scores[0]]['comparisons']:,})" for domain in domains]
    lines = [f"| score | {' | '.join(head)} |", f"|---|{'---|' * len(domains)}"]
    for score in scores:
        lines.append(f"| {score} | {' | '.join(_cell(measured[domain][score]) for domain in domains)} |")
    return "\n".join(lines)


def _cell(made: Mapping[str, float]) -> str:
    return f"{made['value']:.3f} [{made['low']:.3f}, {made['high']:.3f}]"


def _lexicon(texts: list[str]) -> list[float]:
    return sentiment.positive([""] * len(texts), texts)
