import numpy as np
import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rules.reward import NoSignal


@pytest.mark.parametrize(("spread", "severity"), [(0.07, None), (0.05, "warning"), (0.0001, "warning")])
def test_a_spread_below_a_fifth_of_the_first_steps_is_no_signal(spread, severity):
    found = findings(NoSignal(), rows(reward__group_sd=[0.3] * 10 + [spread] * 5))
    assert loudest(found) == severity
    if spread == 0.05:
        assert found[-1].began == 10
        assert found[-1].message == (
            "The reward's spread is 0.05 (reward/group_sd), 16.7% of the 0.3 of its first 5 steps (fixed limit: "
            "fewer than 230 measurements so far, so the run's own noise is not known)."
        )


def test_single_steps_without_a_spread_are_usual_with_rewards_of_0_and_1():
    spread = np.where(np.arange(300) % 4 == 0, 0.0, 0.4)
    assert loudest(findings(NoSignal(), rows(reward__group_sd=spread))) is None


def test_a_reward_that_never_differs_is_told_of_after_ten_steps():
    found = findings(NoSignal(), rows(reward__group_sd=[0.0] * 12))
    assert found[:9] == [None] * 9
    assert found[9].severity == "warning"
    assert found[9].began == 0
    assert found[9].values == {"steps": 10.0}
    assert found[9].message.startswith("In each of the last 10 steps (nearly) all prompts had replies with one and the")


def test_where_most_steps_have_no_signal_by_chance_a_few_in_a_row_are_usual():
    rng = np.random.default_rng(0)
    for share in (0.3, 0.5, 0.7):
        spread = np.where(rng.random(2000) < share, 0.0, 0.4 + 0.02 * rng.standard_normal(2000))
        assert loudest(findings(NoSignal(), rows(reward__group_sd=spread))) is None
        assert loudest(findings(NoSignal(), rows(reward__group_sd=[*spread, *[0.0] * 60]))) == "warning"


def test_a_spread_that_is_0_in_the_first_steps_is_no_start():
    steps = [0.0] * 6 + [0.4] * 200
    assert loudest(findings(NoSignal(), rows(reward__group_sd=steps))) is None
    assert loudest(findings(NoSignal(), rows(reward__group_sd=[*steps, *[0.07] * 3]))) == "warning"


def test_other_trainers_share_of_flat_groups_and_spread_count_too():
    flat = [0.2] * 10 + [0.97] * 10
    assert loudest(findings(NoSignal(), rows(reward__flat_groups=flat))) == "warning"
    assert loudest(findings(NoSignal(), rows(reward__flat_groups=[0.9] * 50))) is None
    assert loudest(findings(NoSignal(), rows(reward__sd=[1.0] * 10 + [0.1] * 5))) == "warning"


def test_against_a_baseline_three_tenths_warn():
    settled = wobbling(0.2, 300)
    assert loudest(findings(NoSignal(), rows(reward__group_sd=[*settled, *[0.07] * 5]))) is None
    assert loudest(findings(NoSignal(), rows(reward__group_sd=[*settled, *[0.05] * 5]))) == "warning"
