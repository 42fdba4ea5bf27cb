"""The comparison of a dialled run with trained ones: KLs are matched, and what cannot be is left out of the mean."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import dial
from kleash.gauge.dial_search import Point
from kleash.gauge.records import Estimate


def at(scale, power=2.0):
    kl = Estimate(8 * scale**power, 0.0, 16.0, 128, 32)
    return Point(scale, kl, kl, kl, Estimate(scale, scale - 0.196, scale + 0.196, 128, 32), None)


def comparison(seed, dialled_kl, dialled_reward):
    return dial.Comparison(seed, 3.0, 0.6, 3.0, dialled_kl, 0.1, 0.5, dialled_reward, 0.02, None, None)


@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_the_scale_is_found_where_the_kls_agree(power):
    asked = []

    def measure(scale):
        asked.append(scale)
        return at(scale, power)

    found = dial.matched(measure, [at(s, power) for s in dial.GRID], 1.5)
    assert found.kl.value == pytest.approx(1.5, rel=0.03)
    assert len(asked) <= dial.MOST_MATCHES


def test_a_kl_out_of_reach_ends_with_the_nearest():
    assert dial.matched(lambda _: pytest.fail("nothing is left to try"), [at(s) for s in dial.GRID], 9.0).scale == 1.0


def test_the_mean_over_seeds_is_of_those_that_were_matched():
    lines = dial.table([comparison(0, 3.05, 0.45), comparison(1, 2.95, 0.35), comparison(2, 2.0, 0.9)])
    assert [line.endswith("the KLs could not be matched") for line in lines] == [False, False, False, True, False]
    assert lines[1].endswith("-0.050 ± 0.020")
    assert lines[-1].split()[:3] == ["3", "2", "seeds"]
    assert lines[-1].endswith("-0.100 ± 0.050")  # of -0.05 and -0.15


def test_one_seed_has_no_error_between_seeds():
    assert dial.table([comparison(0, 3.0, 0.5)])[-1].endswith("0.000 ± nan")
