"""The numbers of a reward model's health report, by hand."""

import math

import numpy as np
import pytest

from kleash.training.reward_health import (
    accuracy,
    agreement,
    calibration,
    correlation,
    longer_wins,
    mean_of,
    tail_index,
    wilson,
)


def test_accuracy_counts_equal_scores_half():
    found = accuracy(np.array([1.0, -0.5, 0.0, 2.0]))
    assert found["value"] == 2.5 / 4
    assert (found["low"], found["high"]) == pytest.approx((0.21943, 0.90810), abs=1e-5)
    assert accuracy(np.array([])) is None


@pytest.mark.parametrize(
    ("successes", "count", "interval"),
    [
        # Newcombe 1998, Statistics in Medicine 17: 857, table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0000, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (29, 29, (0.8830, 1.0000)),
    ],
)
def test_wilson_interval(successes, count, interval):
    assert wilson(successes, count) == pytest.approx(interval, abs=5e-5)


def test_agreement_is_the_mean_over_pairs_of_members():
    """Preferences 1100, 1010 and 1111 on four comparisons: pairs agree on 2, 2 and 2 of four."""
    prefers = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]], dtype=float)
    scores = np.stack([prefers, 1 - prefers], axis=2)
    assert agreement(scores) == 0.5
    assert agreement(scores[[0, 0]]) == 1.0
    assert agreement(np.stack([scores[0], scores[0][:, ::-1]])) == 0.0


def test_calibration_of_one_bin():
    (found,) = calibration(np.array([math.log(3), -math.log(3), math.log(9), 0.0]))
    assert found["count"] == 4
    assert found["stated"] == pytest.approx((0.75 + 0.75 + 0.9 + 0.5) / 4)
    assert found["observed"] == 2.5 / 4
    assert (found["low"], found["high"]) == pytest.approx((0.21943, 0.90810), abs=1e-5)
    assert calibration(np.array([])) == []


def test_calibration_cuts_bins_of_equal_count_by_what_is_stated():
    """Fifteen timid margins, all right, and fifteen bold ones, of which five are wrong: three bins of ten."""
    bold = np.array([2.0] * 10 + [-2.0] * 5)
    bins = calibration(np.concatenate([bold, np.linspace(0.01, 0.15, 15)]))
    assert [found["count"] for found in bins] == [10, 10, 10]
    assert bins[0]["stated"] < 0.53 < bins[1]["stated"] < bins[2]["stated"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert bins[0]["observed"] == 1.0
    assert sum(found["observed"] * found["count"] for found in bins) == pytest.approx(25)
    assert len(calibration(np.linspace(-1, 1, 1000))) == 10


def test_correlation():
    first = np.array([1.0, 2.0, 3.0])
    assert correlation(first, 5 - 2 * first) == pytest.approx(-1.0)
    assert correlation(first, np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)
    assert correlation(first, np.ones(3)) is None
    assert correlation(np.ones(3), first) is None
    assert correlation(first[:1], first[:1]) is None


def test_longer_wins_leaves_equal_lengths_out_and_counts_equal_scores_half():
    margin = np.array([1.0, -1.0, 1.0, -1.0, 0.0, 5.0])
    longer = np.array([2.0, -3.0, -1.0, 1.0, 4.0, 0.0])
    assert longer_wins(margin, longer) == pytest.approx(2.5 / 5)
    assert longer_wins(margin, np.zeros(6)) is None
    assert longer_wins(np.array([1.0, -1.0]), np.array([1.0, -1.0])) == 1.0


def test_a_mean_has_its_standard_error():
    assert mean_of(np.array([1.0, 2.0, 6.0])) == pytest.approx({"mean": 3.0, "stderr": math.sqrt(7 / 3)})
    assert mean_of(np.array([4.0])) == {"mean": 4.0, "stderr": 0.0}


def test_the_tail_index_of_known_laws():
    """Of an exponential law log(1 + E / log 5) has the mean 5 E1(log 5): that is where heavy tails begin, at 2.35."""
    places = (np.arange(100_000) + 0.5) / 100_000
    grid = np.linspace(math.log(5), 40, 1_000_000)
    exponential = 1 / (5 * np.trapezoid(np.exp(-grid) / grid, grid))
    assert exponential == pytest.approx(2.349, abs=1e-3)
    assert tail_index(-np.log(1 - places)) == pytest.approx(exponential, rel=1e-3)
    pareto, square = tail_index((1 - places) ** (-1 / 2)), tail_index(places**2)
    assert pareto < exponential < square


def test_the_tail_index_by_hand():
    """The median is 0; of 200 scores the 20 largest are e times the 21st, so that the mean log-excess is 1."""
    top = np.full(20, 2 * math.e)
    scores = np.concatenate([-np.arange(1.0, 91), np.zeros(20), np.linspace(1, 2, 70), top])
    assert np.median(scores) == 0
    assert tail_index(scores) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "scores",
    [np.arange(199.0), np.zeros(1000), np.concatenate([np.zeros(990), np.ones(10)])],
    ids=["too few", "all equal", "a tail of fewer than a tenth"],
)
def test_no_tail_index_where_there_is_no_tail_to_read(scores):
    assert tail_index(scores) is None
