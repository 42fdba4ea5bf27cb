"""The two forms against a fine grid, and against the printed coefficients of the paper."""

import math

import numpy as np
import pytest

from kleash.frontier.forms import BEST_OF_N, LEARNING

GRID = np.linspace(0, 12, 120_001)


def best_of_n(alpha, beta, d):
    return d * (alpha - beta * d)


def learning(alpha, beta, d):
    return d * (alpha - beta * np.log(np.where(d > 0, d, 1.0)))


FORMULAS = [(BEST_OF_N, best_of_n), (LEARNING, learning)]


def place(form, alpha, beta):
    return float(form.peak_place(np.array([alpha]), np.array([beta]))[0])


@pytest.mark.parametrize(("form", "formula"), FORMULAS)
def test_value_slope_and_peak_are_those_of_the_formula(form, formula):
    heights = formula(0.5, 0.2, GRID)
    assert form.value(0.5, 0.2, GRID) == pytest.approx(heights, abs=1e-12)
    assert place(form, 0.5, 0.2) == pytest.approx(GRID[heights.argmax()], abs=2e-4)
    inside = GRID[100:-1]
    assert form.slope(0.5, 0.2, inside) == pytest.approx(np.gradient(heights, GRID)[100:-1], abs=2e-3)


@pytest.mark.parametrize(
    ("form", "alpha", "beta", "kl", "gain"),
    [(BEST_OF_N, 0.490, 0.120, 4.17, 0.500), (LEARNING, 0.35, 0.154, 12.7, 0.550)],
)
def test_the_peaks_of_the_papers_smallest_reward_model(form, alpha, beta, kl, gain):
    d = place(form, alpha, beta)
    assert d**2 == pytest.approx(kl, abs=0.06)
    assert float(form.value(alpha, beta, np.array([d]))[0]) == pytest.approx(gain, abs=0.001)


@pytest.mark.parametrize(
    ("form", "alpha", "beta", "d"),
    [
        (BEST_OF_N, -0.5, 0.2, 0.0),  # falls from the start
        (BEST_OF_N, 0.5, 0.0, math.inf),  # a straight line up
        (BEST_OF_N, 0.5, -0.1, math.inf),
        (BEST_OF_N, -0.5, -0.1, math.inf),  # falls first, and then rises for ever
        (BEST_OF_N, -0.5, 0.0, 0.0),
        (LEARNING, -0.5, 0.2, math.exp(-3.5)),
        (LEARNING, 0.5, 0.0, math.inf),
        (LEARNING, 0.5, 1e-6, math.inf),  # a KL that nothing has
        (LEARNING, -0.5, 0.0, 0.0),
    ],
)
def test_where_there_is_no_peak_inside(form, alpha, beta, d):
    assert place(form, alpha, beta) == pytest.approx(d)
