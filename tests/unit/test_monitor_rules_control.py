import numpy as np
import pytest
from rule_findings import findings, loudest, rows

from kleash.monitor.rule import Facts
from kleash.monitor.rules.control import Saturated, Stalled, Unreachable

KL = "kl/exact_per_sequence"
HELD = Facts(target_key=KL)


def at_bound(steps, kl, free=10):
    count = np.concatenate([np.zeros(free), np.arange(1, steps + 1)])
    return rows(
        control__saturated=count,
        control__beta=[0.5] * len(count),
        control__target=[6.0] * len(count),
        kl__exact_per_sequence=[kl] * len(count),
    )


def test_beta_at_its_ceiling_for_twenty_steps_warns():
    found = findings(Saturated(), at_bound(20, kl=12.0), HELD)
    assert found[:29] == [None] * 29
    assert found[29].severity == "warning"
    assert found[29].began == 10
    assert found[29].values == {"control/beta": 0.5, "steps": 20.0, "kl_over_target": pytest.approx(2.0)}
    assert found[29].message == "beta has been at a bound (0.5) in the last 20 steps, and the KL at 2 times its target."


def test_a_slack_leash_is_worth_a_note_and_no_more():
    assert loudest(findings(Saturated(), at_bound(60, kl=3.0), HELD)) == "info"
    assert loudest(findings(Unreachable(), at_bound(60, kl=3.0), HELD)) == "info"


def test_a_bound_that_is_left_starts_the_count_again():
    steps = at_bound(19, kl=12.0) + at_bound(19, kl=12.0, free=0)
    assert loudest(findings(Saturated(), steps, HELD)) is None


def test_a_beta_that_was_saturated_long_ago_is_not_at_a_bound():
    steps = rows(control__saturated=[25.0] * 100, control__beta=[0.1] * 100)
    assert findings(Saturated(), steps, HELD) == [None] * 100


def test_a_target_that_no_beta_holds_warns_after_fifty_steps():
    found = findings(Unreachable(), at_bound(50, kl=9.0), HELD)
    assert found[:59] == [None] * 59
    assert found[59].severity == "warning"
    assert found[59].began == 10
    assert found[59].message == (
        "The KL stays above its target, at 1.5 times it on average, though beta has been at its bound in the last 50 "
        "steps."
    )


def test_a_bound_that_holds_the_target_is_reachable():
    assert loudest(findings(Unreachable(), at_bound(80, kl=6.5), HELD)) is None
    assert loudest(findings(Unreachable(), at_bound(80, kl=9.0), Facts())) is None, (
        "without a target nothing is out of reach"
    )


def standing_still(steps=100, kl=6.0, beta=0.05, rise=0.0, spread=0.3):
    noise = np.random.default_rng(0).standard_normal((2, steps))
    noise -= noise.reshape(2, -1, steps // 2).mean(axis=2).repeat(steps // 2, axis=1)
    return rows(
        reward__proxy=0.7 + 0.05 * noise[0] + rise * np.arange(steps),
        kl__exact_per_sequence=kl + 0.1 * noise[1],
        control__beta=[beta] * steps,
        control__target=[6.0] * steps,
        reward__group_sd=[spread] * steps,
    )


def test_a_flat_reward_at_the_target_is_told_of_as_a_note():
    found = findings(Stalled(), standing_still(), HELD)
    assert found[:99] == [None] * 99
    assert found[99].severity == "info"
    assert found[99].began == 0
    assert found[99].values["price"] == pytest.approx(0.05 * 6.0)
    assert found[99].message.startswith("The reward has stayed at 0.7 ± ")
    assert found[99].message.endswith("its price at 0.3 (beta 0.05). Loosening may be due.")


@pytest.mark.parametrize(
    "change",
    [{"rise": 0.001}, {"kl": 3.0}, {"beta": 0.0}, {"beta": 0.0005}],
    ids=["rises", "slack", "no leash", "cheap"],
)
def test_a_run_that_rises_or_is_not_held_back_has_not_stalled(change):
    assert findings(Stalled(), standing_still(**change), HELD)[99] is None


def test_with_a_fixed_beta_a_kl_that_stays_is_what_holds():
    steps = [{key: value for key, value in row.items() if not key.startswith("control/")} for row in standing_still()]
    assert findings(Stalled(), steps, Facts(beta=0.05))[99].severity == "info"
    assert findings(Stalled(), steps, Facts())[99] is None, "nobody said what drift costs"
