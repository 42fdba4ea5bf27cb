"""The two shapes that reward has been found to follow over drift, in d = sqrt(KL), counted from the start.

    best-of-n:                R(d) = d (alpha - beta d)
    reinforcement learning:   R(d) = d (alpha - beta log d)

alpha is what the first drift gains, and beta how soon the gain is used up. Both are alpha d - beta h(d) with a known h:
linear in alpha and beta, which is what `fits.py` makes use of. The second one's slope at d = 0 is infinite; its authors
do not expect it to hold there.

Source: Gao, Schulman and Hilton 2022, arXiv 2210.10760, equations 1 and 2, there for gold and proxy reward models.
Rafailov et al. 2024, arXiv 2406.02900, fit the second form to direct alignment (DPO and its kin).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from jaxtyping import Float

LARGEST_EXPONENT = 300.0
"""exp of more is no KL that anything could have: counted as no peak at all."""

Array = np.ndarray


class Form(ABC):
    """R(d) = alpha d - beta h(d); d in square roots of nats, R in units of the reward."""

    formula: str

    @abstractmethod
    def bend(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """h(d)."""

    @abstractmethod
    def bend_slope(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """h'(d), for d > 0."""

    @abstractmethod
    def peak_place(self, alpha: Float[Array, " K"], beta: Float[Array, " K"]) -> Float[Array, " K"]:
        """The d >= 0 at which R is largest; infinity where R rises for ever."""

    @final
    def value(self, alpha: float, beta: float, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """R(d)."""
        return alpha * d - beta * self.bend(d)

    @final
    def slope(self, alpha: float, beta: float, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """R'(d), for d > 0."""
        return alpha - beta * self.bend_slope(d)


@final
class BestOfNForm(Form):
    """R(d) = d (alpha - beta d), largest at alpha / (2 beta)."""

    formula = "d (α − β d)"

    def bend(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """Return d squared."""
        return d**2

    def bend_slope(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """2 d."""
        return 2 * d

    def peak_place(self, alpha: Float[Array, " K"], beta: Float[Array, " K"]) -> Float[Array, " K"]:
        """Alpha / (2 beta), or 0 where R falls from the start."""
        inside = np.maximum(alpha, 0) / (2 * np.where(beta > 0, beta, np.inf))
        return np.where(beta > 0, inside, _without_bend(alpha, beta))


@final
class LearningForm(Form):
    """R(d) = d (alpha - beta log d), largest at exp(alpha / beta - 1), where it is beta times that."""

    formula = "d (α − β log d)"

    def bend(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """Return d log d, 0 at 0."""
        return d * np.log(np.where(d > 0, d, 1.0))

    def bend_slope(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """1 + log d."""
        slope: Array = 1 + np.log(d)
        return slope

    def peak_place(self, alpha: Float[Array, " K"], beta: Float[Array, " K"]) -> Float[Array, " K"]:
        """exp(alpha / beta - 1)."""
        exponent = alpha / np.where(beta > 0, beta, np.inf) - 1
        inside = np.where(exponent < LARGEST_EXPONENT, np.exp(np.minimum(exponent, LARGEST_EXPONENT)), np.inf)
        return np.where(beta > 0, inside, _without_bend(alpha, beta))


BEST_OF_N, LEARNING = BestOfNForm(), LearningForm()


def _without_bend(alpha: Float[Array, " K"], beta: Float[Array, " K"]) -> Float[Array, " K"]:
    """Where a straight line, or one that bends up, is largest: at the start if it falls for ever."""
    return np.where((beta == 0) & (alpha <= 0), 0.0, np.inf)
