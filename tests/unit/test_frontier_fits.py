"""Fits on data whose answer is known: exact data, a ratio's interval by Fieller's quadratic, weights by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from kleash.frontier.curves import Curve
from kleash.frontier.fits import fit
from kleash.frontier.forms import BEST_OF_N, LEARNING

D = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])


def curve(reward, stderr=0.03, d=D, d_stderr=0.0, start=None):
    size = len(d)
    start = np.zeros(size, int) if start is None else start
    return Curve(d, np.where(d > 0, d_stderr, 0.0), np.asarray(reward), np.full(size, stderr), start, d == 0)


def noisy(rng, alpha, beta, stderr, d=D):
    return 0.2 + d * (alpha - beta * d) + rng.normal(0, stderr, len(d))


def fieller(alpha, beta, covariance, width):
    """Ends of alpha / beta, where (alpha - ratio beta)^2 = width^2 times its variance."""
    quadratic = [
        beta**2 - width**2 * covariance[1, 1],
        -2 * (alpha * beta - width**2 * covariance[0, 1]),
        alpha**2 - width**2 * covariance[0, 0],
    ]
    return sorted(np.roots(quadratic).real)


@pytest.mark.parametrize("form", [BEST_OF_N, LEARNING])
def test_exact_data_give_their_coefficients_back(form):
    found = fit(form, curve(0.2 + form.value(0.6, 0.25, D)))
    assert (found.alpha, found.beta, found.levels[0]) == pytest.approx((0.6, 0.25, 0.2))
    assert found.chi_squared == pytest.approx(0, abs=1e-20)
    assert (found.freedom, found.inflation) == (3, 1.0)
    assert found.width == pytest.approx(1.959964, abs=1e-6)
    d = {BEST_OF_N: 1.2, LEARNING: math.exp(1.4)}[form]
    assert found.peak.kl.value == pytest.approx(d**2)
    assert found.peak.gain.value == pytest.approx({BEST_OF_N: 0.36, LEARNING: 0.25 * d}[form])


def test_the_peaks_interval_is_fiellers_and_the_coefficients_are_least_squares():
    reward = noisy(np.random.default_rng(1), 0.65, 0.25, 0.02)
    found = fit(BEST_OF_N, curve(reward, 0.02))
    design = np.column_stack([np.ones(6), D, -(D**2)])
    solution, (squares,), *_ = np.linalg.lstsq(design, reward)
    assert (found.alpha, found.beta) == pytest.approx(tuple(solution[1:]))
    assert found.chi_squared == pytest.approx(squares / 0.02**2)
    assert found.p_value == pytest.approx(stats.chi2(3).sf(squares / 0.02**2))
    covariance = np.linalg.inv(design.T @ design)[1:, 1:] * 0.02**2 * found.inflation**2
    assert found.covariance == pytest.approx(covariance)
    low, high = fieller(*solution[1:], covariance, found.width)
    assert found.peak.kl.low == pytest.approx((low / 2) ** 2, rel=1e-5)
    assert found.peak.kl.high == pytest.approx((high / 2) ** 2, rel=1e-5)
    assert found.peak.reached


def test_a_straight_line_has_no_peak_and_a_lowest_place_for_one():
    d = np.linspace(0, 2.4, 8)
    rng = np.random.default_rng(0)
    found = fit(BEST_OF_N, curve(0.2 + 0.6 * d + rng.normal(0, 0.01, 8), 0.03, d))
    assert math.isinf(found.peak.kl.high)
    assert found.peak.kl.low > 2.4**2 / 2
    assert not found.peak.reached
    assert found.peak.reach == pytest.approx(2.4**2)


def test_noise_alone_says_nothing_of_a_peak():
    found = fit(BEST_OF_N, curve([0.2, 0.21, 0.19, 0.2, 0.21, 0.2], 0.05))
    assert found.peak.kl.low == pytest.approx(0, abs=1e-6)
    assert math.isinf(found.peak.kl.high)


def test_a_bad_fit_has_inflated_errors_and_students_width():
    reward = 0.2 + 0.6 * D - 0.2 * D**2 + np.array([0, 0.1, -0.1, 0.1, -0.1, 0.1])
    found, calm = fit(BEST_OF_N, curve(reward, 0.01)), fit(BEST_OF_N, curve(reward, 0.5))
    assert found.inflation == pytest.approx(math.sqrt(found.chi_squared / 3))
    assert found.inflation > 5
    assert found.width == pytest.approx(3.182446, abs=1e-5)  # Student's t with 3 degrees of freedom
    assert calm.inflation == 1
    assert found.beta_range.high - found.beta == pytest.approx(3.182446 * math.sqrt(found.covariance[1, 1]), rel=1e-5)


def test_errors_of_the_kl_weigh_by_the_slope():
    """The slope of a line is alpha everywhere: an error s in d is one of alpha s in the reward."""
    d = np.linspace(0, 3, 8)
    reward = 0.1 + 0.5 * d
    found = fit(BEST_OF_N, curve(reward, 0.03, d, d_stderr=0.08))
    stderr = np.where(d > 0, math.hypot(0.03, 0.5 * 0.08), 0.03)
    design = np.column_stack([np.ones(8), d, -(d**2)]) / stderr[:, None]
    assert found.covariance == pytest.approx(np.linalg.inv(design.T @ design)[1:, 1:], rel=1e-6)


def test_each_start_has_a_level_of_its_own():
    d = np.tile(D, 2)
    start = np.repeat([0, 1], 6)
    reward = np.where(start == 0, 0.2, 0.5) + 0.6 * d - 0.2 * d**2
    found = fit(BEST_OF_N, curve(reward, d=d, start=start))
    assert tuple(found.levels) == pytest.approx((0.2, 0.5))
    assert (found.alpha, found.beta, found.freedom) == pytest.approx((0.6, 0.2, 8))


def test_four_points_are_too_few_to_check_a_fit_by():
    assert fit(BEST_OF_N, curve([0.2, 0.4, 0.5, 0.5], d=D[:4])) is None
    assert fit(BEST_OF_N, curve([0.2, 0.4, 0.5, 0.5, 0.4], d=D[:5])) is not None


def test_an_error_of_zero_is_refused():
    with pytest.raises(ValueError, match="standard error of 0 would outweigh all others"):
        fit(BEST_OF_N, curve(D, stderr=0.0))
