import math

import numpy as np
import pytest

from kleash.monitor.history import History
from kleash.monitor.rule import Facts
from kleash.monitor.rules.kl import AboveTarget, Far, Ramp, Spike
from kleash.monitor.rules.kl_faults import Concentrated, FlatAtZero, Negative, NonzeroStart
from kleash.runs.records import Step

EXACT, TOKEN, K1 = "kl/exact_per_sequence", "kl/exact_per_token", "kl/k1_per_sequence"
HELD = Facts(target_key=EXACT)


def findings(rule, rows, facts=HELD, first=0):
    history, found = History(), []
    for number, metrics in enumerate(rows, first):
        history.push(Step(number, metrics))
        found.append(rule(history, facts))
    return found


def noise(steps, seed=0, sd=0.2):
    return np.exp(sd * np.random.default_rng(seed).standard_normal(steps))


def controlled(values, target=6.0):
    return [{EXACT: float(value), "control/target": target} for value in values]


def test_a_kl_at_twice_its_target_warns_and_at_three_times_is_critical():
    assert findings(AboveTarget(), controlled([11.9] * 20))[-1] is None
    warned = findings(AboveTarget(), controlled([12.1] * 20))
    assert warned[11] is None
    assert warned[-1].severity == "warning"
    assert warned[-1].began == 10
    assert warned[-1].values == pytest.approx({"kl": 12.1, "target": 6.0, "times_target": 12.1 / 6})
    assert (
        "KL is 12.1 nats per sequence (mean of the last 10 steps), 2 times its target, which is 6 now"
        in warned[-1].message
    )
    assert findings(AboveTarget(), controlled([18.1] * 20))[-1].severity == "critical"


def test_a_kl_is_held_against_the_target_of_its_own_step():
    rows = [{EXACT: 1.9 * target, "control/target": target} for target in np.linspace(0.5, 6, 40)]
    assert findings(AboveTarget(), rows) == [None] * 40


def test_without_a_target_nothing_is_above_it():
    assert findings(AboveTarget(), [{EXACT: 99.0}] * 20, Facts())[-1] is None


def test_far_is_told_in_nats_per_token_whatever_the_target():
    found = findings(Far(), [{TOKEN: value} for value in (0.1, 0.6, 0.69, 0.9, 1.2, 3.0)])
    assert [finding and finding.severity for finding in found] == [None, None, None, "warning", "warning", "critical"]
    assert found[3].began == 1
    assert "KL is 0.73 nats per token: on average a token is 2.1 times as likely" in found[3].message


def test_far_divides_a_kl_per_sequence_by_the_length_where_that_is_logged():
    key = "kl/unstated_per_sequence"
    assert findings(Far(), [{key: 50.0, "length/mean": 100.0}] * 3)[-1] is None
    assert "KL is 0.80 nats per token" in findings(Far(), [{key: 80.0, "length/mean": 100.0}] * 3)[-1].message
    assert findings(Far(), [{key: 59.0}] * 3)[-1] is None
    assert "KL is 61 nats per sequence" in findings(Far(), [{key: 61.0}] * 3)[-1].message
    assert findings(Far(), [{key: 151.0}] * 3)[-1].severity == "critical"


def test_a_step_that_measures_no_kl_is_no_good_news():
    rows = [{TOKEN: 2.0} if number % 50 == 0 else {"reward/proxy": 0.0} for number in range(120)]
    assert [finding.severity for finding in findings(Far(), rows)] == ["critical"] * 120


def test_far_reads_held_out_numbers_where_training_measures_none():
    assert findings(Far(), [{"eval/" + TOKEN: 2.0}])[0].severity == "critical"


def test_a_spike_is_told_in_its_own_step():
    rows = controlled([*(6 * noise(300)), 26.0, 6.0])
    found = findings(Spike(), rows)
    assert found[:300] == [None] * 300
    assert found[300].severity == "critical"
    assert found[300].began == 300
    assert 3.8 < found[300].values["times_baseline"] < 4.9
    assert found[301] is None


def test_a_spike_before_the_baseline_is_told_by_an_absolute_rule():
    found = findings(Spike(), controlled([*(6 * noise(60)), 60.0]))
    assert found[-1].severity == "warning"
    assert "fixed limit: fewer than 200 measurements" in found[-1].message
    assert found[:60] == [None] * 60


def test_a_target_that_moves_is_no_spike_of_the_kl():
    values = 6 * noise(330)
    rows = controlled(values[:300]) + controlled(3 * values[300:], target=18.0)
    assert findings(Spike(), rows) == [None] * 330


@pytest.mark.parametrize("steps", [100, 200])
def test_a_climb_is_told_before_the_kl_has_doubled(steps):
    values = 6 * noise(400 + steps, seed=1)
    values[400:] *= 2 ** (np.arange(1, steps + 1) / steps)
    found = findings(Ramp(), controlled(values))
    assert found[:400] == [None] * 400
    first = next(number for number, finding in enumerate(found) if finding is not None)
    assert 400 < first < 400 + steps
    assert found[first].severity == "warning"
    assert found[first].began >= first - 100


def test_a_climb_that_goes_on_becomes_critical():
    values = 6 * noise(560, seed=2)
    values[400:] *= 2 ** (np.arange(1, 161) / 50)
    assert findings(Ramp(), controlled(values))[-1].severity == "critical"


def test_k1_far_below_the_exact_kl_is_critical_only_once_it_is_negative():
    rng = np.random.default_rng(3)
    healthy = [{EXACT: 6.0, K1: 6 + rng.normal(0, 0.6)} for _ in range(30)]
    low = [{EXACT: 6.0, K1: 2 + rng.normal(0, 0.6)} for _ in range(12)]
    negative = [{EXACT: 6.0, K1: -1 + rng.normal(0, 0.6)} for _ in range(12)]
    assert findings(Negative(), [*healthy, *low]) == [None] * 42
    found = findings(Negative(), [*healthy, *negative])
    assert found[-1].severity == "critical"
    assert "the exact KL is 6" in found[-1].message


def test_k1_alone_is_held_against_zero():
    rng = np.random.default_rng(4)
    around_zero = [{"kl/k1_per_token": rng.normal(0, 0.01)} for _ in range(300)]
    assert findings(Negative(), around_zero) == [None] * 300
    below = [{"kl/k1_per_token": -0.05 + rng.normal(0, 0.01)} for _ in range(10)]
    assert "a KL is never below 0" in findings(Negative(), below)[-1].message


def test_k1_is_compared_with_the_exact_kl_of_the_same_step_or_not_at_all():
    rng = np.random.default_rng(5)
    rows = [
        {"kl/k1_per_token": 0.01 * rng.normal(), **({TOKEN: 0.01} if number % 5 == 0 else {})} for number in range(60)
    ]
    assert findings(Negative(), rows) == [None] * 60


def test_rounding_below_zero_is_no_negative_kl():
    assert findings(Negative(), [{"kl/k1_per_token": -1e-9}] * 40) == [None] * 40


def test_a_noisy_signed_estimate_is_no_spike():
    rng = np.random.default_rng(6)
    rows = [{"kl/k1_per_token": min(i, 100) * 1e-5 + 0.004 * rng.normal()} for i in range(1000)]
    assert findings(Spike(), rows, Facts()) == [None] * 1000
    assert findings(Spike(), [*rows, {"kl/k1_per_token": 0.04}], Facts())[-1].severity == "critical"


def test_a_small_kl_may_grow_where_no_target_was_agreed():
    slow = [{"kl/k3_per_token": 0.001 * math.sqrt(i) * factor} for i, factor in enumerate(noise(1500, 7), 1)]
    assert findings(Ramp(), slow[:400], Facts()) == [None] * 400
    assert all(finding is None or finding.severity == "warning" for finding in findings(Ramp(), slow, Facts()))


def test_the_start_must_be_at_zero():
    assert findings(NonzeroStart(), [{TOKEN: 5e-4}]) == [None]
    assert findings(NonzeroStart(), [{TOKEN: 0.01}])[0].severity == "warning"
    assert findings(NonzeroStart(), [{"kl/k3_per_token": 0.2}])[0].severity == "critical"
    assert findings(NonzeroStart(), [{TOKEN: 0.2}], first=10) == [None]
    of_a_trainer = Facts(before_updates=1)
    assert findings(NonzeroStart(), [{TOKEN: 0.2}], of_a_trainer, first=1)[0].severity == "critical"
    assert findings(NonzeroStart(), [{TOKEN: 0.2}] * 2, of_a_trainer)[0] is None
    assert findings(NonzeroStart(), [{"kl/unstated_per_sequence": 0.5}])[0].severity == "warning"


def test_a_flat_kl_is_told_where_drift_has_a_price():
    flat = [{TOKEN: 0.0}] * 25
    assert findings(FlatAtZero(), flat, Facts(beta=0.1))[-1].severity == "warning"
    assert findings(FlatAtZero(), flat, Facts(beta=0.1))[18] is None
    assert findings(FlatAtZero(), flat, Facts(beta=0.0))[-1] is None
    assert findings(FlatAtZero(), flat, Facts())[-1] is None
    assert "with beta above 0" in findings(FlatAtZero(), flat, Facts(beta_above_zero=True))[-1].message
    assert findings(FlatAtZero(), [{TOKEN: 1e-4}] * 25, Facts(beta=0.1))[-1] is None


def test_drift_in_stop_tokens_is_told_from_60_percent():
    def rows(share):
        return [{EXACT: 4.0, "kl/class_stop": 4 * share, "kl/class_special": 0.0}] * 12

    assert findings(Concentrated(), rows(0.5))[-1] is None
    assert "70% of the KL" in findings(Concentrated(), rows(0.7))[-1].message
    small = [{EXACT: 0.5, "kl/class_stop": 0.5, "kl/class_special": 0.0}] * 12
    assert findings(Concentrated(), small)[-1] is None


def test_not_a_number_is_left_to_another_rule():
    rows = controlled([*(6 * noise(250)), math.nan, math.inf, 6.0])
    for rule in (AboveTarget(), Spike(), Ramp(), Far()):
        assert findings(rule, rows)[-3:] == [None] * 3
