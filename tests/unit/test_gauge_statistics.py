"""Error bars and quantiles with answers worked out elsewhere."""

import math

import numpy as np
import pytest

from kleash.gauge import statistics
from kleash.gauge.records import Estimate


def test_a_ratio_of_totals_weighs_long_replies_by_their_length():
    found = statistics.estimate([1.0, 5.0], [1, 10], [0, 1])
    assert found.value == pytest.approx(6 / 11)
    assert (found.count, found.prompts) == (11, 2)


def test_the_interval_is_that_of_independent_prompts_and_not_of_their_samples():
    """20 prompts whose 50 samples are all alike: 20 numbers, not 1,000."""
    values = np.random.default_rng(1).normal(size=20)
    found = statistics.mean(np.repeat(values, 50), np.repeat(np.arange(20), 50))
    assert found.half_width == pytest.approx(2.093 * values.std(ddof=1) / math.sqrt(20), rel=0.1)
    assert (found.count, found.prompts) == (1000, 20)


@pytest.mark.parametrize("prompts", [5, 14, 100])
def test_the_interval_covers_normal_means_in_19_of_20_repeats(prompts):
    """Within three binomial errors of 95 %, however few prompts there are."""
    generator = np.random.default_rng(2)
    found = [statistics.mean(generator.normal(size=prompts), np.arange(prompts)) for _ in range(300)]
    covered = np.mean([estimate.low <= 0 <= estimate.high for estimate in found])
    assert abs(covered - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 300)


def test_two_prompts_that_happen_to_agree_prove_little():
    """Student's t with one degree of freedom: 12.7 standard errors."""
    found = statistics.mean([1.0, 1.1], [0, 1])
    assert found.half_width == pytest.approx(12.706 * 0.05 / 1.96 * math.sqrt(2), rel=0.01)


def test_equal_values_have_an_interval_of_no_width():
    assert statistics.mean([0.0] * 7, range(7)) == Estimate(0.0, 0.0, 0.0, 7, 7)


def test_one_prompt_has_no_interval_and_none_has_no_mean():
    one = statistics.mean([1.0, 3.0], [4, 4])
    assert one.value == 2.0
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    none = statistics.mean([], [])
    assert math.isnan(none.value)
    assert (none.count, none.prompts) == (0, 0)


def test_items_of_no_tokens_are_left_out():
    found = statistics.estimate([2.0, 0.0], [1, 0], [0, 1])
    assert (found.value, found.prompts) == (2.0, 1)


def test_quantiles_interpolate_linearly():
    found = statistics.distribution(np.arange(11.0), np.arange(11))
    assert (found.median, found.q90, found.q95, found.maximum) == (5.0, 9.0, 9.5, 10.0)
    assert found.q99 == pytest.approx(9.9)
    assert found.q999 == pytest.approx(9.99)
    assert found.mean.value == 5.0


def test_a_perplexity_is_the_exponential_of_value_and_interval():
    found = statistics.exponential(Estimate(1.0, 0.5, 1.5, 10, 5))
    assert found == Estimate(math.e, math.exp(0.5), math.exp(1.5), 10, 5)


@pytest.mark.parametrize(
    ("longest", "edges"),
    [
        (1, (0, 1)),
        (2, (0, 1, 2)),
        (3, (0, 1, 2, 3)),
        (4, (0, 1, 2, 4)),
        (64, (0, 1, 2, 4, 8, 16, 32, 64)),
        (65, (0, 1, 2, 4, 8, 16, 32, 64, 65)),
    ],
)
def test_position_bins_double_up_to_the_longest_reply(longest, edges):
    assert statistics.position_edges(longest) == edges


@pytest.mark.parametrize(
    ("token_ids", "stopped", "expected"),
    [
        ([5] * 12, False, True),
        ([5] * 11, False, False),
        ([5] * 12, True, False),
        ([9, 8, *[1, 2, 3, 4] * 3], False, True),
        ([9, 8, *[1, 2, 3, 4] * 3, 7], False, False),
        ([*range(7), *range(7), *range(7)], False, True),
        ([*range(7), *range(7), 9, *range(6)], False, False),
        (list(range(40)), False, False),
        ([], False, False),
    ],
)
def test_a_loop_is_a_cut_reply_that_ends_in_copies_of_itself(token_ids, stopped, expected):
    assert statistics.loops(token_ids, stopped) is expected
