"""The ramp of the target, and the rule that loosens it."""

import math

import pytest

from kleash.control.schedule import Loosening, ramped_target
from kleash.errors import ConfigError, RunStopped


def test_the_root_of_the_ramped_target_is_linear_in_steps():
    roots = [math.sqrt(ramped_target(9.0, step, 12)) for step in range(11)]
    assert roots == pytest.approx([3 * (step + 2) / 12 for step in range(11)])
    assert ramped_target(9.0, 500, 12) == 9.0


@pytest.mark.parametrize("ramp_steps", [0, 1, 2])
def test_two_steps_or_fewer_are_no_ramp(ramp_steps):
    assert ramped_target(6.0, 0, ramp_steps) == 6.0


def update(rule, target, *, kl, reward, beta_at_floor=False):
    return rule.update(target=target, kl=kl, reward=reward, beta_at_floor=beta_at_floor)


def test_a_stalled_reward_on_a_taut_leash_raises_the_target_up_to_its_limit():
    rule = Loosening(raise_by=2, limit=9, patience=3, min_gain=0.01)
    target, seen = 6.0, []
    for _ in range(13):
        target = update(rule, target, kl=target, reward=0.5)
        seen.append(target)
    assert seen == [6, 6, 6, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9]
    assert "target stays at 9, its limit is 9: reward has not risen above 0.5 by 0.01" in rule.reason


def test_a_rising_reward_or_a_loose_leash_is_no_stall():
    rising = Loosening(raise_by=2, limit=9, patience=3, min_gain=0.01)
    assert [update(rising, 6.0, kl=6, reward=0.02 * step) for step in range(10)] == [6.0] * 10
    loose = Loosening(raise_by=2, limit=9, patience=3)
    assert [update(loose, 6.0, kl=4.7, reward=0.5) for _ in range(10)] == [6.0] * 10
    assert "stalled for 0 and slack for 0 of 3" in loose.reason


def test_a_kl_under_target_with_beta_at_its_floor_raises_the_target():
    rule = Loosening(raise_by=1, limit=9, patience=2)
    assert update(rule, 6.0, kl=1, reward=0.1, beta_at_floor=True) == 6
    assert update(rule, 6.0, kl=1, reward=0.2, beta_at_floor=True) == 7
    assert "target raised 6 -> 7: KL 1 has sat under the target for 2 updates" in rule.reason


def test_reasons_must_last_without_a_break():
    rule = Loosening(raise_by=1, limit=9, patience=2)
    floors = [True, False, True, False]
    assert [update(rule, 6.0, kl=1, reward=0.1, beta_at_floor=floor) for floor in floors] == [6.0] * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"raise_by": 0}, r"raise_by = 0 "),
        ({"limit": math.inf}, r"limit = inf "),
        ({"patience": 0}, r"patience = 0 "),
        ({"min_gain": -1}, r"min_gain = -1 "),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Loosening(**({"raise_by": 1, "limit": 9} | settings))


@pytest.mark.parametrize(("kl", "reward"), [(math.nan, 0.5), (6.0, math.nan), (6.0, math.inf)])
def test_numbers_that_are_none_stop_the_run(kl, reward):
    with pytest.raises(RunStopped, match=r"(nan|inf)"):
        update(Loosening(raise_by=1, limit=9), 6.0, kl=kl, reward=reward)
