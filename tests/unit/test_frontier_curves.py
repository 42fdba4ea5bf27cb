"""Points as arrays, and the curve without a form on data whose answer is plain."""

import math

import numpy as np
import pytest

from kleash.frontier.curves import Curve, curve_of, shifts
from kleash.frontier.points import BEST_OF_N, EXACT, Mean, Point, Source
from kleash.frontier.smooth import smooth


def source(name, method="RLOO"):
    return Source(name, method, EXACT, "proxy", "gold")


def point(of, at, kl, gold, stderr=0.02, kl_stderr=0.1):
    return Point(of, at, Mean(kl, kl_stderr), None, None if gold is None else Mean(gold, stderr))


def test_points_become_roots_with_their_errors():
    run = source("a")
    found = curve_of([point(run, 0, 0.0, 0.2, 0.05, 0.0), point(run, 10, 4.0, 0.6, 0.02, 0.4)], "gold")
    assert found.d.tolist() == [0.0, 2.0]
    assert found.d_stderr.tolist() == [0.0, pytest.approx(0.4 / (2 * 2.0))]
    assert found.reward.tolist() == pytest.approx([0.2, 0.6])
    assert found.stderr.tolist() == [0.05, 0.02]
    assert found.is_start.tolist() == [True, False]
    assert found.reach == 4.0


def test_one_start_is_counted_once_and_another_is_moved_onto_it():
    a, b, c = source("a"), source("b"), source("c")
    points = [
        point(a, 0, 0.0, 0.2), point(a, 10, 1.0, 0.5),
        point(b, 0, 0.0, 0.2), point(b, 10, 4.0, 0.7),
        point(c, 0, 0.0, 0.3), point(c, 10, 9.0, 0.9),
    ]  # fmt: skip
    found = curve_of(points, "gold")
    assert found.d.tolist() == [0, 0, 1, 2, 3]
    assert found.start.tolist() == [0, 1, 0, 0, 1]
    assert found.reward.tolist() == pytest.approx([0.2, 0.2, 0.5, 0.7, 0.8])
    assert shifts(points, "gold") == {a: 0.0, b: 0.0, c: pytest.approx(-0.1)}


def test_what_cannot_be_used_is_left_out():
    a, late, exact = source("a"), source("late"), source("exact")
    points = [
        point(a, 0, 0.0, 0.2), point(a, 10, 1.0, 0.5), point(a, 20, 2.0, 0.5, stderr=None), point(a, 30, 3.0, None),
        point(late, 10, 1.0, 0.5), point(late, 20, 2.0, 0.5),
        point(exact, 0, 0.0, 0.2, stderr=0.0), point(exact, 10, 1.0, 0.5),
    ]  # fmt: skip
    assert curve_of(points, "gold").d.tolist() == [0.0, 1.0]
    assert curve_of(points, "proxy") is None
    assert curve_of(points[:1], "gold") is None


def test_the_start_of_best_of_n_is_one_sample():
    chosen = source("best.json", BEST_OF_N)
    assert [point(chosen, n, 0.0, 0.2).is_start for n in (1, 2)] == [True, False]
    run = source("a")
    assert not point(run, 0, 0.5, 0.2).is_start


def curve(reward, d, stderr=0.02):
    d = np.asarray(d, float)
    return Curve(d, np.zeros(len(d)), reward, np.full(len(d), stderr), np.zeros(len(d), int), d == 0)


def test_a_parabola_is_its_own_curve():
    d = np.linspace(0, 3, 9)
    found = smooth(curve(0.2 + d * (0.6 - 0.2 * d), d, 0.005))
    assert found.reward == pytest.approx(0.2 + found.d * (0.6 - 0.2 * found.d), abs=1e-9)
    assert found.best_kl == pytest.approx(1.5**2, abs=0.1)
    low, high = found.peak_kl
    assert (low, high) == pytest.approx(((1.5 - 3 / 80) ** 2, (1.5 + 3 / 80) ** 2))  # the grid's neighbours
    assert found.turns_over
    assert found.inflation == 1


def test_more_noise_leaves_more_room_for_the_peak():
    d = np.linspace(0, 3, 9)
    reward = 0.2 + d * (0.6 - 0.2 * d)
    ends = [smooth(curve(reward, d, stderr)).peak_kl for stderr in (0.02, 0.05, 0.1)]
    lows, highs = zip(*ends, strict=True)
    assert 0.5 < lows[2] < lows[1] < lows[0] < 2.25 < highs[0] < highs[1] < highs[2]


def test_a_rise_does_not_turn_over():
    d = np.linspace(0, 3, 9)
    found = smooth(curve(0.2 + 0.3 * d, d))
    assert not found.turns_over
    assert math.isinf(found.peak_kl[1])
    assert found.peak_kl[0] > 4


def test_a_flat_line_may_peak_anywhere():
    found = smooth(curve(np.full(9, 0.5), np.linspace(0, 3, 9)))
    assert found.peak_kl == (0.0, math.inf)


def test_more_scatter_than_the_errors_say_widens_the_band():
    d = np.linspace(0, 3, 13)
    reward = 0.2 + 0.3 * d + 0.1 * (-1.0) ** np.arange(13)
    found = smooth(curve(reward, d, 0.01))
    assert found.inflation > 3
    assert found.stderr.max() > 3 * smooth(curve(0.2 + 0.3 * d, d, 0.01)).stderr.max() / 2


def test_the_error_of_the_start_moves_with_its_run():
    """Two runs with starts of their own: the second's start adds its error to all its points."""
    d = np.array([0, 0, 1, 1.5, 2, 2.5, 3, 3.5])
    start = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    stderr = np.where(d == 0, 0.1, 0.02)
    alone = smooth(Curve(d, np.zeros(8), 0.2 + 0.1 * d, stderr, np.zeros(8, int), d == 0))
    apart = smooth(Curve(d, np.zeros(8), 0.2 + 0.1 * d, stderr, start, d == 0))
    assert apart.stderr[-1] > 2 * alone.stderr[-1]


def test_four_kls_are_too_few():
    assert smooth(curve(np.arange(6.0), [0, 1, 1, 2, 3, 3])) is None
