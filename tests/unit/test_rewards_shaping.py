import math

import numpy as np
import pytest

from kleash.errors import ConfigError, DataError
from kleash.rewards.shaping import clip, length_penalty, missing_stop_penalty, rescale

REWARDS = np.array([-3.0, 0.5, 2.0])


def test_rescale():
    np.testing.assert_array_equal(rescale(REWARDS, mean=0.5, sd=0.5), [-7.0, 0.0, 3.0])


def test_rescale_by_a_constant_reward_is_refused():
    with pytest.raises(DataError) as caught:
        rescale(REWARDS, mean=0.5, sd=0.0)
    assert str(caught.value) == (
        "The reward is 0.5 for every sample of the reference (standard deviation 0), so it cannot be"
        " rescaled to standard deviation 1, and there is no difference to learn from. Check the reward"
        " function on these prompts, or measure on more samples."
    )


@pytest.mark.parametrize(("mean", "sd"), [(0.0, -1.0), (0.0, math.nan), (math.inf, 1.0), (0.0, math.inf)])
def test_rescale_by_nonsense_is_refused(mean, sd):
    with pytest.raises(DataError, match=f"Cannot rescale rewards by mean {mean:g} and standard deviation {sd:g}"):
        rescale(REWARDS, mean, sd)


def test_clip_reports_what_it_changed():
    clipped, count = clip(REWARDS, -1.0, 2.0)
    np.testing.assert_array_equal(clipped, [-1.0, 0.5, 2.0])
    assert count == 1


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0)])
def test_clip_bounds_out_of_order_are_refused(low, high):
    with pytest.raises(ConfigError) as caught:
        clip(REWARDS, low, high)
    assert str(caught.value) == (
        f"Reward clip bounds [{low:g}, {high:g}] leave no room for a difference. low must be below high."
    )


def test_missing_stop_penalty_leaves_finished_completions_alone():
    stopped = np.array([True, False, True])
    np.testing.assert_array_equal(missing_stop_penalty(REWARDS, stopped, 1.5), [-3.0, -1.0, 2.0])


def test_length_penalty_counts_tokens_beyond_the_target():
    lengths = np.array([4, 10, 12])
    np.testing.assert_array_equal(length_penalty(REWARDS, lengths, 10, 0.25), [-3.0, 0.5, 1.5])


def test_the_inputs_are_left_as_they_were():
    before = REWARDS.copy()
    clip(REWARDS, 0.0, 1.0)
    missing_stop_penalty(REWARDS, np.zeros(3, dtype=bool), 1.0)
    length_penalty(REWARDS, np.array([1, 2, 3]), 0, 1.0)
    np.testing.assert_array_equal(REWARDS, before)


def test_no_rewards_give_no_rewards():
    none = np.zeros(0)
    assert clip(none, 0.0, 1.0).num_clipped == 0
    assert missing_stop_penalty(none, np.zeros(0, dtype=bool), 1.0).shape == (0,)
    assert length_penalty(none, np.zeros(0, dtype=np.int64), 5, 1.0).shape == (0,)


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf])
def test_penalties_that_would_pay_are_refused(value):
    expected = (
        f" = {value:g}: a penalty is subtracted, so it must be finite and at least 0; a negative one would"
        " pay for what it is meant to cost."
    )
    with pytest.raises(ConfigError) as caught:
        missing_stop_penalty(REWARDS, np.ones(3, dtype=bool), value)
    assert str(caught.value) == "missing_stop_penalty" + expected
    with pytest.raises(ConfigError) as caught:
        length_penalty(REWARDS, np.ones(3, dtype=np.int64), 1, value)
    assert str(caught.value) == "per_token" + expected


def test_negative_target_length_is_refused():
    with pytest.raises(ConfigError) as caught:
        length_penalty(REWARDS, np.ones(3, dtype=np.int64), -1, 1.0)
    assert str(caught.value) == "target_length = -1: a length cannot be negative. Give 0 or more tokens."
