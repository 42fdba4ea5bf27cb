import math

import numpy as np
import pytest

from kleash.monitor.baseline import LAG, PRIOR_CORRELATION, PRIOR_STEPS, Detector, ratio, variance_of_mean


def autoregression(steps, correlation, seed, sd=1.0):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(steps)
    values = np.empty(steps)
    values[0] = noise[0]
    for t in range(1, steps):
        values[t] = correlation * values[t - 1] + math.sqrt(1 - correlation**2) * noise[t]
    return sd * values


def fed(values):
    detector = Detector()
    for value in values:
        detector.push(float(value))
    return detector


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_the_variance_of_a_mean_is_that_of_the_covariance_matrix(correlation, count):
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    expected = (correlation**lags).sum() / count**2
    assert variance_of_mean(count, correlation) == pytest.approx(expected, rel=1e-12)


def test_there_are_no_scores_before_the_baseline_has_200_values():
    values = autoregression(231, 0.5, 0)
    assert fed(values[:229]).scores is None
    assert fed(values[:230]).scores is not None


def test_scores_are_those_of_the_formulas_written_out():
    values = autoregression(700, 0.8, 2, sd=0.3) + 2.0
    detector = fed(values)
    baseline = values[30 : 700 - LAG]
    first = baseline[:200]
    assert np.abs(baseline - first.mean()).max() < 4 * first.std()
    count, mean, variance = len(baseline), baseline.mean(), baseline.var()
    shift = mean - baseline[0]
    products = (baseline[1:] - baseline[0]) @ (baseline[:-1] - baseline[0]) / (count - 1)
    raw = (products - shift**2) / variance
    rho = (count * raw + PRIOR_STEPS * PRIOR_CORRELATION) / (count + PRIOR_STEPS)
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    of_mean = (rho**lags).sum() / count**2
    sd = math.sqrt(variance / (1 - of_mean))
    assert detector.level == pytest.approx(mean)
    assert detector.scores.value == pytest.approx((values[-1] - mean) / (sd * math.sqrt(1 + of_mean)))
    for length, score in ((30, detector.scores.rise_30), (100, detector.scores.rise_100)):
        weights = (1 - rho) * np.arange(1, length + 1) + rho
        newest = values[-length - 1 :] - mean
        innovations = newest[1:] - rho * newest[:-1]
        spread = sd * math.sqrt((1 - rho**2) * weights @ weights + ((1 - rho) * weights.sum()) ** 2 * of_mean)
        assert score == pytest.approx(weights @ innovations / spread, abs=1e-9)
    assert detector.smoothed == pytest.approx(values[-10:].mean())


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_scores_of_noise_have_about_unit_spread(correlation):
    values, rises = [], []
    for seed in range(40):
        detector = Detector()
        for value in autoregression(1000, correlation, seed):
            detector.push(float(value))
            if detector.scores is not None:
                values.append(detector.scores.value)
                rises.append(detector.scores.rise_100)
    assert 0.9 < np.std(values) < 1.1
    assert 0.6 < np.std(rises) < 1.15
    assert abs(np.mean(values)) < 0.25


def test_a_ramp_is_scored_above_the_noise_that_hides_it():
    values = autoregression(500, 0.9, 3, sd=0.2)
    ramped = values.copy()
    ramped[400:] += math.log(2) / 100 * np.arange(1, 101)
    assert fed(ramped).scores.rise_100 > fed(values).scores.rise_100 + 3.5


def test_what_is_under_an_alarm_stays_out_of_the_baseline():
    detector = fed(autoregression(400, 0.0, 4))
    before = detector.level
    for _ in range(300):
        detector.push(50.0, under_alarm=True)
    assert abs(detector.level - before) < 0.3
    assert detector.scores.value > 30
    for _ in range(300):
        detector.push(50.0)
    assert detector.level > before + 1


def test_one_wild_value_hardly_moves_the_baseline():
    calm = autoregression(600, 0.0, 5)
    wild = calm.copy()
    wild[300] = 1e6
    assert fed(wild).level == pytest.approx(fed(calm).level, abs=0.05)


def test_a_series_that_never_moved_scores_any_move_as_infinite():
    detector = fed([1.0] * 300)
    assert detector.scores.value == 0.0
    detector.push(1.5)
    assert detector.scores.value == math.inf
    assert ratio(-2.0, 0.0) == -math.inf
