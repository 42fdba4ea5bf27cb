"""Fixed, Ziegler and Dual against published and hand-computed numbers, and what they refuse."""

import math

import pytest

from kleash.control.dual import Dual
from kleash.control.fixed import Fixed
from kleash.control.ziegler import Ziegler
from kleash.errors import ConfigError, RunStopped


@pytest.mark.parametrize(("kl", "expected"), [(12, 0.102), (6.6, 0.101), (6, 0.1), (0, 0.098), (-1, 0.098)])
def test_ziegler_repeats_the_paper(kl, expected):
    controller = Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=10)
    assert controller.update(kl, 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("kl", "expected"), [(12, 0.100128), (6, 0.1), (0, 0.099872)])
def test_ziegler_repeats_the_released_code(kl, expected):
    controller = Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=10_000)
    assert controller.update(kl, 64) == pytest.approx(expected, rel=1e-12)


def test_ziegler_counts_its_horizon_in_sequences():
    assert Ziegler(beta=0.1, target_nats_per_token=1, horizon=100).update(2, 10) == pytest.approx(0.102)


@pytest.mark.parametrize(
    ("horizon", "num_sequences", "updates"), [(10, 1, 116), (10_000, 512, 226), (10_000, 256, 451)]
)
def test_ziegler_needs_the_published_number_of_updates_for_ten_times_beta(horizon, num_sequences, updates):
    controller = Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=horizon)
    betas = [controller.update(60, num_sequences) for _ in range(updates + 1)]
    assert betas[updates - 2] < 1.0 <= betas[updates]
    assert controller.saturated == updates + 1


def test_ziegler_tells_a_cut_error_from_a_whole_one():
    controller = Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=320)
    controller.update(6.6, 32)
    assert "relative error +0.1" in controller.reason
    assert controller.saturated == 0
    controller.update(12, 32)
    assert "cut to +0.2" in controller.reason
    assert controller.saturated == 1


@pytest.mark.parametrize(("horizon", "num_sequences"), [(100, 512), (10, 64), (64, 320)])
def test_ziegler_refuses_a_batch_that_could_turn_beta_negative(horizon, num_sequences):
    controller = Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=horizon)
    with pytest.raises(RunStopped, match=rf"{num_sequences} / {horizon} = .*beta must stay above 0.*Set horizon"):
        controller.update(6, num_sequences)
    assert controller.beta == 0.1


def test_ziegler_refuses_a_horizon_no_batch_can_use():
    with pytest.raises(ConfigError, match=r"horizon = 0\.2 sequences.*beta must stay above 0"):
        Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=0.2)


def test_fixed_keeps_beta_and_may_be_zero():
    controller = Fixed(beta=0)
    assert controller.update(123.0, 32) == 0
    assert "KL 123" in controller.reason
    assert controller.target is None


def test_dual_takes_one_step_of_log_ascent():
    controller = Dual(beta=0.1, target_nats_per_sequence=6, step_size=0.05)
    assert controller.update(9, 32) == pytest.approx(0.1 * math.exp(0.025))
    assert "relative error +0.5" in controller.reason


def test_dual_at_its_floor_is_slack_and_winds_nothing_up():
    controller = Dual(beta=0.1, target_nats_per_sequence=6, step_size=0.5, beta_min=0.09)
    for _ in range(50):
        controller.update(0, 32)
    assert controller.saturated == 50
    assert "the constraint is slack" in controller.reason
    assert controller.update(9, 32) == pytest.approx(0.09 * math.exp(0.25))


def test_dual_calls_a_target_infeasible_after_its_patience():
    controller = Dual(beta=0.1, target_nats_per_sequence=6, step_size=0.5, beta_max=0.11, patience=3)
    controller.update(12, 32)
    controller.update(12, 32)
    controller.update(6, 32)
    controller.update(12, 32)
    controller.update(12, 32)
    with pytest.raises(
        RunStopped, match=r"6 nats per sequence is infeasible.*KL is still 12 .*beta_max = 0\.11.*Raise"
    ):
        controller.update(12, 32)


def test_dual_settles_on_the_multiplier_of_a_known_constraint():
    # KL(beta) = 0.2 / beta^2 is 5 at beta = 0.2: the small-KL law, where beta sets the level of the KL.
    controller = Dual(beta=1.0, target_nats_per_sequence=5, step_size=0.2)
    for _ in range(100):
        controller.update(0.2 / controller.beta**2, 32)
    assert controller.beta == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize("kl", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "controller",
    [
        Fixed(beta=0.1),
        Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=1000),
        Dual(beta=0.1, target_nats_per_sequence=6),
    ],
    ids=["fixed", "ziegler", "dual"],
)
def test_a_kl_that_is_no_number_stops_the_run(controller, kl):
    with pytest.raises(RunStopped, match=rf"measured KL is {kl!r}.*no beta"):
        controller.update(kl, 32)
    assert controller.beta == 0.1


def test_dual_refuses_the_k1_estimate():
    with pytest.raises(RunStopped, match=r"-0\.3 nats.*never negative.*exact KL"):
        Dual(beta=0.1, target_nats_per_sequence=6).update(-0.3, 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 0}, r"beta = 0 .*stay 0 for ever.*Fixed"),
        ({"beta": -0.1}, r"beta = -0\.1 .*pays for drift.*above 0"),
        ({"beta": math.nan}, r"beta = nan"),
        ({"target_nats_per_sequence": 0}, r"target_nats_per_sequence = 0 "),
        ({"target_nats_per_sequence": -6}, r"target_nats_per_sequence = -6 "),
        ({"target_nats_per_sequence": None}, r"neither given.*exactly one"),
        ({"target_nats_per_token": 0.1}, r"both \(6 and 0\.1\) given.*exactly one"),
    ],
)
@pytest.mark.parametrize("controller", [Ziegler, Dual])
def test_settings_that_cannot_work_are_refused(controller, settings, message):
    own = {"horizon": 10_000} if controller is Ziegler else {}
    with pytest.raises(ConfigError, match=message):
        controller(**({"beta": 0.1, "target_nats_per_sequence": 6} | own | settings))


@pytest.mark.parametrize("horizon", [0, -5, math.inf, math.nan])
def test_ziegler_refuses_a_horizon_that_is_no_length(horizon):
    with pytest.raises(ConfigError, match=rf"horizon = {horizon!r} .*num_sequences / horizon"):
        Ziegler(beta=0.1, target_nats_per_sequence=6, horizon=horizon)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0}, r"step_size = 0 .*freezes beta"),
        ({"step_size": -1}, r"step_size = -1 "),
        ({"beta_min": 0.0}, r"beta_min = 0\.0 "),
        ({"beta_min": 0.2, "beta_max": 0.2}, r"no room to move"),
        ({"beta_min": 0.2}, r"beta = 0\.1 lies outside beta_min = 0\.2 to beta_max = 100"),
        ({"patience": 0}, r"patience = 0 "),
    ],
)
def test_dual_refuses_bounds_and_steps_that_cannot_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        Dual(beta=0.1, target_nats_per_sequence=6, **settings)


@pytest.mark.parametrize("beta", [-1e-9, math.nan, math.inf])
def test_fixed_refuses_a_beta_that_is_no_penalty(beta):
    with pytest.raises(ConfigError, match=rf"beta = {beta!r}"):
        Fixed(beta=beta)


def test_an_empty_batch_stops_the_run():
    with pytest.raises(RunStopped, match=r"num_sequences = 0 .*no measured KL"):
        Fixed(beta=0.1).update(1.0, 0)
