"""A curve without a form, and where it may peak: every KL at which it is not significantly below its best.

A local quadratic in d = sqrt(KL): at each place a parabola is fitted to the points around it, weighted by a Gaussian of
their distance and by their errors. The width is the one that predicts left-out points best, of widths that are narrow
beside the axis: reward rises steeply at the start, and a parabola that reaches from there to the top shifts the top.

The peak is a set, not a place, since a top may be flat. A place belongs to it unless the curve is significantly higher
somewhere else: the largest t statistic of "higher there than here", over all places, is held against the 95 % quantile
of its own distribution, drawn under equal heights (comparisons with the best, Hsu 1981). So picking the best place
from noise is allowed for. The bias that smoothing has is not.

Errors are those of the rewards, and of the KL by the slope as in `fits.py`; inflated where the points scatter more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from kleash.frontier.curves import Array, Curve
from kleash.frontier.fits import CONFIDENCE

PLACES = 81
"""On the axis of d, from the start to the largest measured."""
WIDTHS = (0.1, 0.15, 0.2, 0.3)
"""Of the Gaussian, as fractions of the axis."""
FEWEST_POINTS = 5
ROUNDS = 3
DRAWS = 1000
SEED = 0
SAME = 1e-9
"""A difference whose variance is less than this fraction of the curve's is rounding: the two places are one."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """The curve over places from the start to the largest measured KL.

    Attributes:
        d: sqrt(KL) of each place.
        reward: height of the curve.
        stderr: its standard error, inflated.
        in_peak: whether the curve may be highest there, at 95 %.
        inflation: what the errors were multiplied by; at least 1.
    """

    d: Float[Array, " G"]
    reward: Float[Array, " G"]
    stderr: Float[Array, " G"]
    in_peak: Array
    inflation: float

    @property
    def best_kl(self) -> float:
        """KL of the highest place, nats per sequence."""
        return float(self.d[np.argmax(self.reward)] ** 2)

    @property
    def peak_kl(self) -> tuple[float, float]:
        """Ends of the peak's 95 % interval, nats per sequence; the upper one infinite where the data end in it.

        They are the nearest places that do not belong to it, so that it is never narrower than the grid.
        """
        inside = np.flatnonzero(self.in_peak)
        low = float(self.d[max(inside[0] - 1, 0)] ** 2)
        return low, float(self.d[inside[-1] + 1] ** 2) if self.turns_over else math.inf

    @property
    def turns_over(self) -> bool:
        """Whether the curve is significantly below its best at the largest KL measured."""
        return not self.in_peak[-1]


def smooth(curve: Curve) -> Smooth | None:
    """Smooth a curve; None where there are fewer than 5 different KLs."""
    if len(np.unique(curve.d)) < FEWEST_POINTS:
        return None
    places = np.linspace(0, float(curve.d.max()), PLACES)
    slope = np.zeros(len(curve.d))
    for _ in range(ROUNDS):
        variance = curve.stderr**2 + (slope * curve.d_stderr) ** 2
        width = _best_width(curve, variance)
        weights = _smoother(places, curve.d, variance, width)
        height = weights @ curve.reward
        slope = np.interp(curve.d, places, np.gradient(height, places))
    inflation, freedom = _inflation(curve, variance, width)
    covariance = _covariance(curve, variance) * inflation**2
    shape = weights @ covariance @ weights.T
    return Smooth(
        d=places,
        reward=height,
        stderr=np.sqrt(np.maximum(np.diag(shape), 0)),
        in_peak=_not_below_the_best(height, shape, freedom if inflation > 1 else math.inf),
        inflation=inflation,
    )


def _smoother(
    places: Float[Array, " G"], d: Float[Array, " K"], variance: Float[Array, " K"], width: float
) -> Float[Array, "G K"]:
    """Weights of the points in the curve's height at each place; a row sums to 1."""
    scale = float(d.max())
    rows = []
    for place in places:
        root = np.sqrt(np.exp(-0.5 * ((d - place) / (width * scale)) ** 2) / variance)
        away = (d - place) / scale
        design = np.stack([np.ones_like(d), away, away**2], axis=1) * root[:, None]
        rows.append(np.linalg.pinv(design)[0] * root)
    return np.array(rows)


def _best_width(curve: Curve, variance: Float[Array, " K"]) -> float:
    """The width whose curve without a point predicts that point best."""

    def error(width: float) -> float:
        hat = _smoother(curve.d, curve.d, variance, width)
        left = 1 - np.diag(hat)
        if left.min() < 1e-3:
            return math.inf
        return float((((curve.reward - hat @ curve.reward) / left) ** 2 / variance).sum())

    return min(reversed(WIDTHS), key=error)


def _inflation(curve: Curve, variance: Float[Array, " K"], width: float) -> tuple[float, float]:
    """How much more the points scatter about the curve than their errors say, and the degrees of freedom left."""
    hat = _smoother(curve.d, curve.d, variance, width)
    residuals = curve.reward - hat @ curve.reward
    freedom = len(residuals) - float(np.trace(2 * hat - hat @ hat.T))
    if freedom <= 0:
        return 1.0, freedom
    return max(1.0, math.sqrt(float((residuals**2 / variance).sum()) / freedom)), freedom


def _covariance(curve: Curve, variance: Float[Array, " K"]) -> Float[Array, "K K"]:
    """Of the rewards after the starts were moved onto the first one."""
    points = len(curve.d)
    move = np.eye(points)
    first = int(np.flatnonzero(curve.is_start & (curve.start == 0))[0])
    for own in np.flatnonzero(curve.is_start & (curve.start > 0)):
        others = curve.start == curve.start[own]
        move[others, own] -= 1
        move[others, first] += 1
    return move @ np.diag(variance) @ move.T


def _not_below_the_best(height: Float[Array, " G"], shape: Float[Array, "G G"], freedom: float) -> Array:
    """Return where no other place is significantly higher."""
    scale = np.sqrt(np.maximum(np.diag(shape), 0))
    spread = np.maximum(scale**2 + scale[:, None] ** 2 - 2 * shape, 0)
    spread = np.sqrt(np.where(spread > SAME * scale.max() ** 2, spread, np.inf))
    generator = np.random.default_rng(SEED)
    values, vectors = np.linalg.eigh(shape)
    draws = generator.standard_normal((DRAWS, len(height))) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    if math.isfinite(freedom):
        draws *= np.sqrt(freedom / stats.chi2.rvs(freedom, size=(DRAWS, 1), random_state=generator))
    kept = []
    for here in range(len(height)):
        limit = np.quantile(((draws - draws[:, [here]]) / spread[here]).max(axis=1), CONFIDENCE)
        kept.append(float(((height - height[here]) / spread[here]).max()) <= limit)
    return np.array(kept)
