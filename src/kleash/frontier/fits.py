"""Fits a form to the points of one method, and says where it peaks, as an interval that admits what it cannot know.

Weighted least squares, with a level of its own for each start: rewards are counted from the fitted start, so the error
of the measured one is in every interval. Errors in KL count too, by the effective variance: a point weighs

    1 / (stderr(R)^2 + (R'(d) stderr(d))^2),    stderr(d) = stderr(KL) / (2 d),

with the slope R'(d) of the fit itself, repeated until it stands. The two errors of a point are taken as independent.

Alpha and beta have a joint normal error, and the peak's interval is the range that it takes on the border of their
ellipse: the profile-likelihood set, which for the peak's KL is Fieller's set for a ratio. It covers exactly where
errors are normal, also for a flat top or a peak beyond the data, where its end is infinite; a delta method does not.

Where the points scatter more than their errors say (chi squared above its degrees of freedom), errors are inflated to
the scatter and Student's t takes the place of the normal distribution.

Source: Fieller 1954, J. R. Stat. Soc. B 16; Orear 1982, Am. J. Phys. 50, for the effective variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy import stats

from kleash.frontier.curves import Curve
from kleash.frontier.forms import Array, Form

CONFIDENCE = 0.95
LEAST_FREEDOM = 2
ROUNDS, SETTLED = 100, 1e-10
DIRECTIONS = 2880
"""Of the ellipse's border; ends of intervals are then exact to about a millionth of their width."""


@dataclass(frozen=True)
class Range:
    """An estimate and the ends of its 95 % interval; infinity is "without an end"."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Peak:
    """Where a curve is largest.

    Attributes:
        kl: nats per sequence; infinite where the curve rises for ever.
        gain: reward there over the start.
        reach: the largest KL that was measured.
    """

    kl: Range
    gain: Range
    reach: float

    @property
    def reached(self) -> bool:
        """Whether all of the interval lies within what was measured."""
        return self.kl.high <= self.reach


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted form.

    Attributes:
        form: what was fitted.
        curve: to what.
        alpha: reward per root of a nat.
        beta: the same.
        covariance: of alpha and beta, after inflation.
        levels: reward at each start, as fitted.
        residuals: (reward - fit) / error of each point, before inflation.
        chi_squared: of the residuals.
        freedom: points less what was fitted.
        width: half an interval's width in standard errors, Student's t where errors are inflated.
    """

    form: Form
    curve: Curve
    alpha: float
    beta: float
    covariance: Float[Array, "2 2"]
    levels: Float[Array, " S"]
    residuals: Float[Array, " K"]
    chi_squared: float
    freedom: int
    width: float

    @property
    def inflation(self) -> float:
        """What the errors were multiplied by; at least 1."""
        return _inflation(self.chi_squared, self.freedom)

    @property
    def p_value(self) -> float:
        """Probability of a chi squared as large where form and errors are right."""
        return float(stats.chi2.sf(self.chi_squared, self.freedom))

    @property
    def alpha_range(self) -> Range:
        """Alpha with its interval."""
        return self._of(self.alpha, 0)

    @property
    def beta_range(self) -> Range:
        """Beta with its interval."""
        return self._of(self.beta, 1)

    @cached_property
    def peak(self) -> Peak:
        """Where the form peaks, and what is gained there."""
        places, gains = self._peaks(*self._border())
        (place,), (gain,) = self._peaks(np.array([self.alpha]), np.array([self.beta]))
        kl = Range(float(place**2), float(places.min() ** 2), float(places.max() ** 2))
        return Peak(kl, Range(float(gain), float(gains.min()), float(gains.max())), self.curve.reach)

    def value(self, d: Float[Array, " K"]) -> Float[Array, " K"]:
        """The reward that the fit has at each d."""
        return float(self.levels.mean()) + self.form.value(self.alpha, self.beta, d)

    def _of(self, value: float, index: int) -> Range:
        arm = self.width * math.sqrt(self.covariance[index, index])
        return Range(value, value - arm, value + arm)

    def _border(self) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
        """Alpha and beta around the border of their ellipse."""
        angle = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False)
        unit = np.stack([np.cos(angle), np.sin(angle)])
        offset = self.width * np.linalg.cholesky(self.covariance) @ unit
        return self.alpha + offset[0], self.beta + offset[1]

    def _peaks(self, alpha: Float[Array, " D"], beta: Float[Array, " D"]) -> tuple[Array, Array]:
        """Place and height of the peak for each pair; both infinite where there is none."""
        place = self.form.peak_place(alpha, beta)
        finite = np.where(np.isfinite(place), place, 0.0)
        height = alpha * finite - beta * self.form.bend(finite)
        return place, np.where(np.isfinite(place), height, np.inf)


def fit(form: Form, curve: Curve) -> Fit | None:
    """Fit a form to a curve; None where fewer than 2 degrees of freedom are left to check the fit by.

    Raises:
        ValueError: a standard error that is not positive.
    """
    starts = int(curve.start.max()) + 1
    freedom = len(curve.d) - starts - 2
    if freedom < LEAST_FREEDOM:
        return None
    if not (curve.stderr > 0).all():
        raise ValueError("a reward with a standard error of 0 would outweigh all others: leave it out")
    levels = np.eye(starts)[curve.start]
    design = np.column_stack([levels, curve.d, -form.bend(curve.d)])
    solution, precision = _settle(form, curve, design)
    residuals = (curve.reward - design @ solution) * np.sqrt(precision)
    chi_squared = float(residuals @ residuals)
    inflation = _inflation(chi_squared, freedom)
    tail = (1 + CONFIDENCE) / 2
    covariance = np.linalg.inv(design.T @ (precision[:, None] * design))[-2:, -2:]
    return Fit(
        form=form,
        curve=curve,
        alpha=float(solution[-2]),
        beta=float(solution[-1]),
        covariance=covariance * inflation**2,
        levels=solution[:-2],
        residuals=residuals,
        chi_squared=chi_squared,
        freedom=freedom,
        width=float(stats.t.ppf(tail, freedom) if inflation > 1 else stats.norm.ppf(tail)),
    )


def _settle(form: Form, curve: Curve, design: Float[Array, "K S+2"]) -> tuple[Array, Array]:
    """Solve until the weights, which take the slope from the solution, no longer move it."""
    moved = curve.d > 0
    slope = np.zeros(len(curve.d))
    solution = np.full(design.shape[1], np.inf)
    for _ in range(ROUNDS):
        precision = 1 / (curve.stderr**2 + (slope * curve.d_stderr) ** 2)
        root = np.sqrt(precision)
        before, (solution, *_) = solution, np.linalg.lstsq(design * root[:, None], curve.reward * root)
        if np.abs(solution - before).max() <= SETTLED * np.abs(solution).max():
            break
        slope[moved] = form.slope(solution[-2], solution[-1], curve.d[moved])
    return solution, precision


def _inflation(chi_squared: float, freedom: int) -> float:
    return max(1.0, math.sqrt(chi_squared / freedom))
