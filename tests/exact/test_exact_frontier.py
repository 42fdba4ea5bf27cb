"""Do the peak's intervals cover? On drawn curves with a known peak, and on a family whose peak is enumerated.

Counts are held against their own binomial error: of 200 draws, fewer than 180 covered by a true 95 % interval happens
once in about 500 times, and the draws are fixed. An interval that never misses would be too wide, so that is asked too.

The tilted family is reference * exp(proxy / beta) / Z over the toy's 15 sequences: as beta falls, the KL and the
proxy rise together, and gold = proxy + error peaks where the error has been exploited far enough. The errors are
0.5 cos(1.9 i), whose gold peaks at 1.237 nats, and 0.5 cos(1.6 i), whose gold peaks at 2.086 nats and lies within 0.005
of that from 1.82 to 2.41; i is the sequence's index.
"""

import math

import enumeration as truth
import numpy as np
import pytest
from scipy import stats

from kleash.frontier.curves import Curve
from kleash.frontier.fits import fit
from kleash.frontier.forms import BEST_OF_N, LEARNING
from kleash.frontier.smooth import smooth

DRAWS = 200
FEWEST = max(0.9 * DRAWS, stats.binom.ppf(0.001, DRAWS, 0.95))
KL_ERROR = 0.04
"""Standard error of a measured KL, as a fraction of it."""

REFERENCE = truth.distribution(truth.REFERENCE)
INDEX = np.arange(15)
ERRORS = {"sharp": 0.5 * np.cos(1.9 * INDEX), "flat": 0.5 * np.cos(1.6 * INDEX)}
PEAKS = {"sharp": 1.237, "flat": 2.086}


def best_of_n(d):
    return d * (0.65 - 0.25 * d)


def learning(d):
    return d * (0.35 - 0.2 * np.log(np.where(d > 0, d, 1.0)))


def flat_learning(d):
    return d * (0.35 - 0.154 * np.log(np.where(d > 0, d, 1.0)))


# formula, form, where it peaks, largest d, points, standard error of the reward, factor by which points scatter more
CASES = {
    "best of n": (best_of_n, BEST_OF_N, 0.65 / 0.5, 2.4, 10, 0.03, 1.0),
    "learning": (learning, LEARNING, math.exp(0.75), 4.0, 12, 0.04, 1.0),
    "a flat top near the end of the data": (flat_learning, LEARNING, math.exp(0.35 / 0.154 - 1), 4.0, 12, 0.04, 1.0),
    "a peak beyond the data": (best_of_n, BEST_OF_N, 0.65 / 0.5, 0.9, 8, 0.02, 1.0),
    "six points": (learning, LEARNING, math.exp(0.75), 4.0, 6, 0.04, 1.0),
    "errors twice as large as they say": (learning, LEARNING, math.exp(0.75), 4.0, 12, 0.04, 2.0),
}


def measured(rng, kl, gold, stderr, scatter=1.0):
    """Points with noise on both axes; the first is the start."""
    seen = kl * (1 + rng.normal(0, KL_ERROR, len(kl)))
    d = np.sqrt(seen)
    rewards = gold + rng.normal(0, scatter * stderr, len(kl))
    return Curve(d, KL_ERROR * d / 2, rewards, np.full(len(kl), stderr), np.zeros(len(kl), int), kl == 0)


def tilted(error, betas):
    """KL and gold of each member of the family."""
    kl, gold = [], []
    for beta in betas:
        weights = REFERENCE * np.exp((truth.REWARDS - truth.REWARDS.max()) / beta)
        pmf = weights / weights.sum()
        kl.append(float((pmf * np.log(np.where(pmf > 0, pmf / REFERENCE, 1.0))).sum()))
        gold.append(float(pmf @ (truth.REWARDS + error)))
    return np.array(kl), np.array(gold)


@pytest.mark.parametrize("case", CASES)
def test_the_fitted_peak_is_covered(case):
    formula, form, place, furthest, points, stderr, scatter = CASES[case]
    rng = np.random.default_rng(20)
    kl = np.linspace(0, furthest, points) ** 2
    covered = gains = 0
    for _ in range(DRAWS):
        peak = fit(form, measured(rng, kl, 0.2 + formula(np.sqrt(kl)), stderr, scatter)).peak
        covered += peak.kl.low <= place**2 <= peak.kl.high
        gains += peak.gain.low <= formula(place) <= peak.gain.high
    assert FEWEST <= covered < DRAWS
    assert FEWEST <= gains < DRAWS


def test_little_noise_gives_a_narrow_interval():
    rng = np.random.default_rng(0)
    kl = np.linspace(0, 4, 20) ** 2
    peaks = [fit(LEARNING, measured(rng, kl, learning(np.sqrt(kl)), 0.01)).peak.kl for _ in range(20)]
    assert np.median([peak.high - peak.low for peak in peaks]) < 0.6  # of a peak at 4.48


@pytest.mark.parametrize("name", ERRORS)
def test_the_enumerated_peak_is_where_the_page_says(name):
    kl, gold = tilted(ERRORS[name], np.geomspace(30, 0.01, 4001))
    assert kl[gold.argmax()] == pytest.approx(PEAKS[name], abs=0.003)
    near = kl[gold > gold.max() - 0.005]
    assert (near[0], near[-1]) == pytest.approx({"sharp": (1.09, 1.38), "flat": (1.82, 2.41)}[name], abs=0.01)


@pytest.mark.parametrize(("name", "stderr"), [("sharp", 0.03), ("flat", 0.03), ("flat", 0.005)])
def test_the_curve_without_a_form_holds_the_enumerated_peak(name, stderr):
    kl, gold = tilted(ERRORS[name], [math.inf, *np.geomspace(10, 0.02, 13)])
    rng = np.random.default_rng(4)
    covered, draws = 0, 50
    for _ in range(draws):
        found = smooth(measured(rng, kl, gold, stderr))
        low, high = found.peak_kl
        covered += low <= PEAKS[name] <= high
    assert covered >= stats.binom.ppf(0.001, draws, 0.95)


def test_the_sharp_peak_is_narrowed_down_and_turns_over_and_the_flat_one_stays_open():
    found = {}
    for name in ERRORS:
        kl, gold = tilted(ERRORS[name], [math.inf, *np.geomspace(10, 0.02, 13)])
        found[name] = smooth(measured(np.random.default_rng(2), kl, gold, 0.015))
    assert found["sharp"].turns_over
    low, high = found["sharp"].peak_kl
    assert 0.7 < low < 1.237 < high < 2.0
    assert not found["flat"].turns_over
    assert found["flat"].peak_kl[0] <= 1.82
    assert math.isinf(found["flat"].peak_kl[1])


@pytest.mark.parametrize(("case", "draws"), [("best of n", 50), ("learning", 50)])
def test_the_curve_without_a_form_holds_the_peak_of_the_forms(case, draws):
    formula, _, place, furthest, points, stderr, scatter = CASES[case]
    kl = np.linspace(0, furthest, points) ** 2
    rng = np.random.default_rng(9)
    covered = 0
    for _ in range(draws):
        low, high = smooth(measured(rng, kl, formula(np.sqrt(kl)), stderr, scatter)).peak_kl
        covered += low <= place**2 <= high
    assert covered >= stats.binom.ppf(0.001, draws, 0.95)
