import math

import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rules.sampler import ABSOLUTE_DIFFERENCE, KL, LIMITS, Mismatch


@pytest.mark.parametrize(
    ("nats", "severity"), [(0.009, None), (0.012, "warning"), (0.12, "critical"), (-0.12, "critical")]
)
def test_a_kl_of_the_sampler_above_a_hundredth_warns(nats, severity):
    found = findings(Mismatch(), rows(sampler__kl_per_token=[nats] * 12))
    assert found[:9] == [None] * 9
    assert loudest(found) == severity
    if severity == "warning":
        assert found[9].began == 0
        assert found[9].values == {"sampler/kl_per_token": 0.012, "limit": 0.01}
        assert found[9].message == (
            "The mismatch of sampler and scorer is 0.012 nats per token (median of the last 10 steps); up to 0.01 is "
            "in order."
        )


def test_the_two_numbers_have_the_same_limits_for_normal_log_ratios():
    for kl, difference in zip(LIMITS[KL], LIMITS[ABSOLUTE_DIFFERENCE], strict=True):
        assert difference == pytest.approx(math.sqrt(2 * kl) * math.sqrt(2 / math.pi), rel=0.01)


def test_the_jump_as_the_weights_first_move_and_a_few_odd_batches_are_usual():
    steps = [0.009] + [0.045] * 60
    steps[20:24] = [0.5] * 4
    assert loudest(findings(Mismatch(), rows(sampler__mismatch_mean=steps))) is None


def test_a_mismatch_that_doubles_warns_before_it_does_harm():
    settled = wobbling(0.02, 300)
    found = findings(Mismatch(), rows(sampler__mismatch_mean=[*settled, *[0.05] * 5]))
    assert loudest(found) == "warning"
    assert found[-1].message == (
        "The mismatch of sampler and scorer has grown to 0.05 nats per token, 2.5 times the 0.02 of its baseline."
    )
    assert found[-1].began == 300
    assert loudest(findings(Mismatch(), rows(sampler__mismatch_mean=[*settled, *[0.036] * 5]))) is None


def test_an_infinite_mismatch_is_left_to_the_rule_for_it():
    assert loudest(findings(Mismatch(), rows(sampler__mismatch_mean=[0.02] * 9 + [math.nan, math.inf] * 3))) is None
