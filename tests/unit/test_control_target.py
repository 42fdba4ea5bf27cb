"""Target: the arithmetic of one update, its limits and their counts, and what it refuses."""

import math

import pytest

from kleash.control.target import Target
from kleash.errors import ConfigError, RunStopped

GAINS = {"proportional": 1.5, "integral": 0.1, "derivative": 0.5, "error_limit": 2.0, "ramp_steps": 0}


def test_updates_equal_the_position_form_by_hand():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **GAINS)
    first, second = math.log(9 / 6), math.log(5 / 6)
    assert controller.update(9, 32) == pytest.approx(0.05 * math.exp(1.6 * first))
    expected = math.log(0.05) + 0.1 * (first + second) + 1.5 * second + 0.5 * (second - first)
    assert controller.update(5, 32) == pytest.approx(math.exp(expected))


def test_the_defaults_hold_beta_where_the_kl_is_on_target():
    controller = Target(beta=0.05, target_nats_per_token=0.25, ramp_steps=0)
    assert controller.update(0.25, 32) == pytest.approx(0.05)
    assert "0.25 nats per token: error +0" in controller.reason


def test_the_target_ramps_in_sqrt_and_the_integral_rests_meanwhile():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **(GAINS | {"ramp_steps": 12}))
    scheduled = []
    for _ in range(12):
        controller.update(1.0, 32)
        scheduled.append(controller.target)
        if len(scheduled) <= 10:
            assert controller.state_dict()["integral"] == pytest.approx(math.log(0.05))
            assert "ramp to 6, integral rests" in controller.reason
    assert scheduled[:3] == pytest.approx([6 * 4 / 144, 6 * 9 / 144, 6 * 16 / 144])
    assert scheduled[9:] == pytest.approx([6 * 121 / 144, 6, 6])
    assert controller.state_dict()["integral"] == pytest.approx(math.log(0.05) + 0.2 * math.log(1 / 6))


def test_a_kl_of_zero_is_read_as_its_floor_and_counted():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **(GAINS | {"error_limit": 100.0}), kl_floor=0.01)
    controller.update(0.0, 32)
    assert controller.floored == 1
    assert "KL read as its floor 0.06" in controller.reason
    assert f"error {math.log(0.01):+.3g}" in controller.reason
    controller.update(0.07, 32)
    assert controller.floored == 1


def test_an_error_beyond_its_limit_is_cut_and_counted():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **GAINS)
    assert controller.update(6 * math.exp(5), 32) == pytest.approx(0.05 * math.exp(1.6 * 2))
    assert controller.limited == 1
    assert "error +5 limited" in controller.reason


def test_the_integral_holds_at_a_bound_and_resumes_at_once():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **GAINS, beta_min=0.04)
    for _ in range(100):
        assert controller.update(1.0, 32) == 0.04
    assert controller.saturated == 100
    assert controller.at_floor
    assert "held at beta_min, integral holds" in controller.reason
    assert controller.state_dict()["integral"] == pytest.approx(math.log(0.05))
    back = math.log(7 / 6)
    expected = math.log(0.05) + 1.6 * back + 0.5 * (back - math.log(1 / 6))
    assert controller.update(7, 32) == pytest.approx(math.exp(expected))
    assert controller.saturated == 100


def test_the_ceiling_holds_the_integral_too():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **GAINS, beta_max=0.06)
    for _ in range(10):
        assert controller.update(20, 32) == 0.06
    assert "held at beta_max, integral holds" in controller.reason
    assert controller.state_dict()["integral"] == pytest.approx(math.log(0.05))


def test_retarget_counts_from_the_next_update():
    controller = Target(beta=0.05, target_nats_per_sequence=6, **GAINS)
    controller.update(6, 32)
    controller.retarget(8)
    assert controller.final_target == 8
    controller.update(8, 32)
    assert controller.target == 8
    assert controller.beta == pytest.approx(0.05)
    with pytest.raises(ConfigError, match=r"final_target = 0 "):
        controller.retarget(0)


@pytest.mark.parametrize(
    ("kl", "message"), [(math.nan, "nan.*no beta"), (math.inf, "inf.*no beta"), (-0.01, r"-0\.01 nats.*k1")]
)
def test_a_kl_that_cannot_be_is_refused_and_leaves_the_state_alone(kl, message):
    controller = Target(beta=0.05, target_nats_per_sequence=6)
    before = controller.state_dict()
    with pytest.raises(RunStopped, match=message):
        controller.update(kl, 32)
    assert controller.state_dict() == before


def test_a_kl_negative_by_rounding_alone_is_taken():
    controller = Target(beta=0.05, target_nats_per_sequence=6)
    controller.update(-1e-6, 32)
    assert controller.floored == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 0}, r"beta = 0 .*stay 0 for ever.*Fixed"),
        ({"beta": -0.05}, r"beta = -0\.05 "),
        ({"beta": math.inf}, r"beta = inf"),
        ({"target_nats_per_sequence": 0}, r"target_nats_per_sequence = 0 "),
        ({"target_nats_per_sequence": None}, r"neither given"),
        ({"target_nats_per_token": 0.2}, r"both \(6 and 0\.2\) given"),
        ({"proportional": 0}, r"proportional = 0 .*only damping"),
        ({"integral": -0.1}, r"integral = -0\.1 .*away from the target"),
        ({"derivative": math.nan}, r"derivative = nan"),
        ({"error_limit": 0}, r"error_limit = 0 .*freezes beta"),
        ({"ramp_steps": -1}, r"ramp_steps = -1 "),
        ({"kl_floor": 0}, r"kl_floor = 0 "),
        ({"kl_floor": 1.0}, r"kl_floor = 1\.0 .*share of the target"),
        ({"beta_min": 0.1, "beta_max": 0.01}, r"beta_min = 0\.1 and beta_max = 0\.01 .*no room"),
        ({"beta_max": 0.04}, r"beta = 0\.05 lies outside"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Target(**({"beta": 0.05, "target_nats_per_sequence": 6} | settings))
