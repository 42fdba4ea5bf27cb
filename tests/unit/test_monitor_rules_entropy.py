import numpy as np
import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rule import Facts
from kleash.monitor.rules.entropy import Collapse


def entropy(*pieces):
    return rows(entropy__per_token=np.concatenate(pieces))


def test_entropy_at_57_percent_of_its_first_steps_warns_without_a_baseline():
    found = findings(Collapse(), entropy([3.0] * 10, [1.7] * 3))
    assert found[:11] == [None] * 11, "one low step does not move the median of three"
    assert found[11].severity == "warning"
    assert found[11].began == 10
    assert found[11].values == {"entropy/per_token": pytest.approx(1.7), "level": pytest.approx(3.0)}
    assert found[11].message == (
        "Entropy is 1.7 nats per token, 57% of the 3 of its first 5 steps (fixed limit: fewer than 230 measurements so "
        "far, so the run's own noise is not known)."
    )


def test_entropy_at_a_third_of_its_first_steps_is_critical_and_began_where_it_was_half_of_the_way_to_a_warning():
    falling = [3.0] * 6 + [2.8, 2.6, 2.4, 2.2, 2.0, 1.8, 1.5, 1.2, 1.0, 1.0]
    found = findings(Collapse(), entropy(falling))
    assert [one and one.severity for one in found[-4:]] == ["warning", "warning", "critical", "critical"]
    # Half of the way to 0.6 is its square root, 0.775: 2.32 of 3. The median of three lies one step behind the values,
    # but the checkpoint of the first low one is as bad as the others.
    assert found[-1].began == falling.index(2.2)


@pytest.mark.parametrize("left", [0.61, 0.9, 1.5])
def test_entropy_that_keeps_more_than_60_percent_is_not_told_of(left):
    assert findings(Collapse(), entropy([3.0] * 5, [3.0 * left] * 100)) == [None] * 105


def test_the_references_entropy_is_what_counts_where_it_is_known():
    facts = Facts(reference={"entropy/per_token": 4.0})
    assert loudest(findings(Collapse(), entropy([2.6] * 20))) is None
    found = findings(Collapse(), entropy([2.3] * 20), facts)
    assert found[-1].severity == "warning"
    assert "57% of the 4 of the reference (fixed limit: " in found[-1].message


def test_against_a_baseline_a_quarter_less_warns_and_half_is_critical():
    settled = wobbling(2.0, 300)
    assert loudest(findings(Collapse(), entropy(settled, wobbling(1.54, 20)))) is None
    warned = findings(Collapse(), entropy(settled, [1.46] * 20))
    assert warned[-1].severity == loudest(warned) == "warning"
    assert warned[-1].message.endswith("73% of the 2 of its baseline.")
    assert warned[-1].began == 300
    assert loudest(findings(Collapse(), entropy(settled, wobbling(0.96, 20)))) == "critical"


def test_a_large_change_that_is_usual_for_the_run_is_not_told_of():
    wild = 2.0 * np.exp(0.3 * np.random.default_rng(3).standard_normal(400))
    wild[-2:] = 1.4
    assert loudest(findings(Collapse(), entropy(wild))) is None


def test_entropy_that_creeps_down_is_told_of_against_its_start_though_the_baseline_creeps_along():
    found = findings(Collapse(), entropy(3.0 * np.exp(-np.arange(2000) / 1500)))
    told = next(one for one in found if one is not None and one.severity == "critical")
    assert told.message.endswith(("of its first 5 steps (fixed limit).", "of its baseline."))


def test_held_out_entropy_stands_in_where_only_it_is_measured_and_the_answer_holds_until_the_next_evaluation():
    steps = [{"eval/entropy/per_token": 3.0}] + [{}] * 9 + [{"eval/entropy/per_token": 1.5}] + [{}] * 30
    found = findings(Collapse(), steps)
    assert found[9] is None
    assert {one.severity for one in found[10:]} == {"warning"}
    assert "of its first value" in found[-1].message


def test_a_run_without_entropy_is_not_judged():
    assert findings(Collapse(), [{"reward/proxy": 1.0}] * 300) == [None] * 300
