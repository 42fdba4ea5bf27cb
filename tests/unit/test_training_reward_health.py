"""The numbers of a reward model's health, by hand."""

import math

import numpy as np
import pytest

from kleash.training import reward_health as health


def test_accuracy_counts_equal_scores_half():
    found = health.accuracy(np.array([1.0, -1.0, 0.0, 2.0]))
    assert found["value"] == 0.625
    assert health.accuracy(np.array([])) is None


def test_wilson_is_the_published_interval():
    # 8 of 10: Brown, Cai and DasGupta 2001 give the formula; computed by hand with z = 1.96: 0.490 to 0.943
    low, high = health.wilson(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=2e-4)


def test_agreement_is_over_pairs_of_members():
    first = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    second = first[:, ::-1]
    third = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert health.agreement(np.stack([first, first])) == 1.0
    assert health.agreement(np.stack([first, second])) == 0.0
    assert health.agreement(np.stack([first, second, third])) == pytest.approx((0.0 + 0.5 + 0.5) / 3)


def test_calibration_compares_what_is_stated_with_what_happens():
    margin = np.concatenate([np.full(10, math.log(3)), np.full(10, -math.log(3)), np.full(20, math.log(9))])
    bins = health.calibration(margin)
    assert [one["count"] for one in bins] == [10, 10, 10, 10]
    assert [one["stated"] for one in bins] == pytest.approx([0.75, 0.75, 0.9, 0.9])
    assert sum(one["observed"] * one["count"] for one in bins) == 30
    assert health.calibration(np.array([])) == []


def test_the_longer_side_and_the_correlation():
    margin, longer = np.array([1.0, 1.0, -1.0, -1.0]), np.array([3.0, -2.0, 5.0, 0.0])
    assert health.longer_wins(margin, longer) == pytest.approx(1 / 3)
    assert health.longer_wins(margin, np.zeros(4)) is None
    assert health.longer_wins(np.array([0.0, 0.0, 2.0]), np.array([1.0, -1.0, 3.0])) == pytest.approx(2 / 3)
    assert health.longer_wins(np.zeros(2), np.array([1.0, 4.0])) == 0.5
    assert health.correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert health.correlation(np.ones(3), np.arange(3.0)) is None


@pytest.mark.parametrize("index", [1.5, 3.0, 6.0])
def test_the_tail_index_of_a_pareto_is_its_exponent(index):
    uniform = (np.arange(20_000) + 0.5) / 20_000
    pareto = uniform ** (-1 / index)
    scores = np.concatenate([pareto, -pareto])  # symmetric around a median of 0
    assert health.tail_index(scores) == pytest.approx(index, rel=0.02)


def test_the_tail_of_few_or_equal_scores_is_not_known():
    assert health.tail_index(np.arange(100.0)) is None
    assert health.tail_index(np.zeros(1000)) is None
