"""Combinations of members against values by hand."""

import numpy as np
import pytest

from kleash.rewards.ensemble import mean, mean_minus_sd, worst_case

SCORES = np.array([[1.0, 5.0, -2.0], [2.0, 5.0, 0.0], [6.0, 5.0, 2.0]])


def test_values_by_hand():
    assert mean(SCORES).tolist() == [3.0, 5.0, 0.0]
    assert worst_case(SCORES).tolist() == [1.0, 5.0, -2.0]
    sd = [(14 / 3) ** 0.5, 0.0, (8 / 3) ** 0.5]  # squares of -2, -1, 3 and of -2, 0, 2, over k = 3
    np.testing.assert_allclose(mean_minus_sd(SCORES, 0.5), [3 - sd[0] / 2, 5.0, -sd[2] / 2], rtol=1e-12)


def test_without_weight_the_deviation_costs_nothing():
    assert mean_minus_sd(SCORES, 0.0).tolist() == [3.0, 5.0, 0.0]


@pytest.mark.parametrize("combine", [mean, worst_case, lambda scores: mean_minus_sd(scores, 3.0)])
def test_one_member_speaks_for_itself(combine):
    assert combine(SCORES[:1]).tolist() == [1.0, 5.0, -2.0]


@pytest.mark.parametrize("combine", [mean, worst_case, lambda scores: mean_minus_sd(scores, 1.0)])
def test_nothing_to_score_gives_nothing_in_float64(combine):
    assert combine(np.zeros((3, 0))).shape == (0,)
    assert combine(SCORES).dtype == np.float64
