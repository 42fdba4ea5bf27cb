"""Where a KL crosses its limit, which scales are tried, and how seldom the one that is taken lies above it."""

import json
import math

import numpy as np
import pytest

from kleash.gauge.dial_search import Dial, Point, climb, crossing, ladder, search
from kleash.gauge.records import Estimate
from kleash.gauge.statistics import mean


def point(scale, low, value, high):
    kl = Estimate(value, low, high, 32, 8)
    return Point(scale, kl, kl, kl, None, None)


def counted(curve):
    asked = []

    def kl_at(scale):
        asked.append(scale)
        return curve(scale)

    return asked, kl_at


def test_a_quadratic_kl_is_found_at_the_second_try():
    asked, kl_at = counted(lambda scale: 6 * scale**2)
    found = search(kl_at, 3.0)
    assert asked == [1.0, 0.707]  # the root of 3 / 6
    assert found == ((0.707, 6 * 0.707**2), (1.0, 6.0))


@pytest.mark.parametrize("power", [1.5, 4.0])
def test_another_power_is_found_within_a_tenth_of_the_limit(power):
    asked, kl_at = counted(lambda scale: 8 * scale**power)
    found = search(kl_at, 1.0)
    assert len(asked) <= 4
    assert min(abs(kl - 1.0) for _, kl in found) <= 0.1
    assert list(found) == sorted(found)


@pytest.mark.parametrize("whole", [0.0, 0.5])
def test_where_all_of_it_is_within_the_limit_nothing_else_is_searched(whole):
    asked, kl_at = counted(lambda scale: whole * scale**2)
    assert search(kl_at, 3.0) == ((1.0, whole),)
    assert asked == [1.0]


def test_a_crossing_lies_between_the_neighbours_in_logarithms_and_is_quadratic_beyond_them():
    points = [(0.25, 0.5), (1.0, 8.0)]
    assert crossing(points, 2.0) == pytest.approx(0.5)
    assert crossing(points, 0.125) == pytest.approx(0.125)
    assert crossing(points, 32.0) == pytest.approx(2.0)


def test_noise_that_makes_the_kl_fall_does_not_confuse_a_crossing():
    points = [(0.25, 1.0), (0.5, 0.9), (1.0, 4.0)]
    assert crossing(points, 2.0) == pytest.approx(math.sqrt(0.5))
    assert crossing([(1.0, 0.0)], 2.0) == math.inf


def test_the_scales_of_a_climb_ascend_to_beyond_the_limit():
    scales = ladder([(1.0, 12.0)], 3.0)
    assert scales == tuple(
        float(f"{math.sqrt(s * 3 / 12):.3g}") for s in (0.3, 0.5, 0.65, 0.78, 0.88, 0.95, 1, 1.1, 1.25)
    )
    assert 12 * scales[-1] ** 2 > 3


@pytest.mark.parametrize(("whole", "scales"), [(0.0, (1.0,)), (0.5, (1.0,)), (2.0, (0.671, 0.866, 0.987, 1.0))])
def test_where_the_limit_is_out_of_reach_the_climb_ends_with_the_whole_adapter(whole, scales):
    assert ladder([(1.0, whole)], 3.0) == scales


def test_a_climb_ends_at_its_first_failure_whatever_would_come_after():
    ends = {0.2: 1.0, 0.4: 1.9, 0.6: 2.1, 0.8: 1.5}
    measured, scale = climb(lambda s: point(s, 0, ends[s] / 2, ends[s]), tuple(ends), 2.0)
    assert scale == 0.4
    assert [one.scale for one in measured] == [0.2, 0.4, 0.6]


@pytest.mark.parametrize("high", [2.5, math.nan])
def test_a_first_scale_that_fails_leaves_none(high):
    measured, scale = climb(lambda s: point(s, 0, 1.0, high), (0.2, 0.4), 2.0)
    assert scale is None
    assert len(measured) == 1


def test_an_upper_end_at_the_limit_is_within():
    assert climb(lambda s: point(s, 0, 1.0, 2.0), (1.0,), 2.0)[1] == 1.0


def test_the_scale_that_is_taken_lies_above_the_limit_in_few_of_400_families():
    """32 prompts that drift very differently, the same at every scale; the true mean KL at scale s is 8 s^2."""
    random, limit, true = np.random.default_rng(0), 3.0, []
    clusters = np.repeat(np.arange(32), 4)

    def replies(prompts):
        return np.repeat(prompts, 4) * random.lognormal(-0.125, 0.5, 4 * len(prompts))  # of mean 1 for each prompt

    for _ in range(400):
        searching, held_out = random.lognormal(-0.125, 0.5, (2, 32))
        searched = search(lambda s, of=searching: 8 * s**2 * replies(of).mean(), limit)

        def measure(scale, held_out=held_out):
            kl = mean(8 * scale**2 * replies(held_out), clusters)
            return Point(scale, kl, kl, kl, None, None)

        _, scale = climb(measure, ladder(searched, limit), limit)
        true.append(0.0 if scale is None else 8 * scale**2)
    assert np.mean(np.array(true) > limit) <= 0.04  # nominal is 0.025, and 0.04 two standard errors above that
    assert np.mean(true) > 0.7 * limit  # and the limit is used


def test_a_result_is_json_and_what_is_not_finite_is_null():
    one = point(0.5, math.nan, 1.0, math.nan)
    dial = Dial("run", 4, 3.0, 0.5, (one,), ((1.0, 6.0),), 8, 16, {"seed": 0}, ("a note",))
    plain = json.loads(json.dumps(dial.to_dict(), allow_nan=False))
    assert next(iter(plain)) == "schema_version"
    assert plain["points"][0]["kl"] == {"value": 1.0, "low": None, "high": None, "count": 32, "prompts": 8}
    assert plain["searched"] == [[1.0, 6.0]]
    assert plain["points"][0]["reward"] is None
    assert dial.at(0.5) is one
