import math

import numpy as np
import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rules.optimization import Gradient, LargeRatio


@pytest.mark.parametrize(("ratio", "severity"), [(9.0, None), (12.0, "warning"), (150.0, "critical")])
def test_ratios_of_ten_in_three_steps_in_a_row_warn(ratio, severity):
    found = findings(LargeRatio(), rows(ratio__max=[1.5] * 4 + [ratio] * 3))
    assert found[:6] == [None] * 6
    assert loudest(found) == severity
    if severity == "warning":
        assert found[6].began == 4
        assert found[6].values == {"ratio/max": 12.0, "limit": 10.0}
        assert found[6].message == (
            "In each of the last 3 steps something was at least 12 times as likely under the policy as when it was "
            "sampled; above 10 times such a token or reply outweighs the rest of its batch."
        )


def test_two_large_ratios_are_no_pattern():
    assert loudest(findings(LargeRatio(), rows(ratio__max=[1.5, 1e6, 1e6, 1.5] * 20))) is None


@pytest.mark.parametrize(("share", "severity"), [(0.28, None), (0.35, "warning"), (0.7, "critical")])
def test_a_clip_that_cuts_a_third_warns(share, severity):
    found = findings(LargeRatio(), rows(ratio__clip_fraction=[0.1] * 4 + [share] * 3))
    assert loudest(found) == severity
    if severity == "critical":
        assert found[-1].message == (
            "In each of the last 3 steps the clip cut the gradient of at least 70% of the tokens; above 30% much of a "
            "batch teaches nothing."
        )


@pytest.mark.parametrize(("norm", "severity"), [(19.0, None), (21.0, "warning"), (210.0, "critical"), (0.001, None)])
def test_a_gradient_ten_times_that_of_the_first_steps_warns(norm, severity):
    found = findings(Gradient(), rows(optim__grad_norm=[2.0] * 10 + [norm] * 4))
    assert loudest(found) == severity
    if severity == "warning":
        assert found[-1].began == 10
        assert found[-1].message == (
            "The gradient's norm is 21, 10.5 times the 2 of its first 5 steps (fixed limit: fewer than 230 "
            "measurements so far, so the run's own noise is not known)."
        )


def test_a_single_spike_is_held_against_the_largest_of_the_steps_before():
    usual = [*wobbling(2.0, 25, share=0.5)]
    found = findings(Gradient(), rows(optim__grad_norm=[*usual, 31.0, *usual]))
    assert [number for number, one in enumerate(found) if one] == [25]
    assert found[25].severity == "warning"
    assert found[25].began == 25
    assert found[25].values == {"optim/grad_norm": 31.0, "largest_before": 3.0}
    assert "31 in this step, 10.3 times the largest of the 20 before it" in found[25].message
    assert loudest(findings(Gradient(), rows(optim__grad_norm=[*usual, 29.0, *usual]))) is None


def test_against_a_baseline_five_times_the_norm_warns():
    settled = wobbling(1.0, 300)
    assert loudest(findings(Gradient(), rows(optim__grad_norm=[*settled, *[4.7] * 5]))) is None
    assert loudest(findings(Gradient(), rows(optim__grad_norm=[*settled, *[5.3] * 5]))) == "warning"


def test_norms_of_0_are_no_start_and_nothing_to_jump_from():
    rng = np.random.default_rng(0)
    usual = 0.3 * np.exp(0.3 * rng.standard_normal(3000))
    assert findings(Gradient(), rows(optim__grad_norm=[*[0.0] * 6, *usual])) == [None] * 3006
    seldom = np.where(rng.random(3000) < 0.7, 0.0, usual)
    assert findings(Gradient(), rows(optim__grad_norm=seldom)) == [None] * 3000
    found = findings(Gradient(), rows(optim__grad_norm=[*[0.0] * 6, *[0.3] * 20, *[0.0, 4.0] * 3]))[-1]
    assert found.severity == "warning"
    assert "13.3 times the 0.3 of its first 5 measurements above 0 (steps 6 to 10)" in found.message


def test_where_not_every_step_is_logged_the_steps_are_named():
    steps = [row for one in [0.1, 0.45, 0.5, 0.6] for row in ({"ratio/clip_fraction": one}, {}, {})]
    found = findings(LargeRatio(), steps)[9]
    assert found.message.startswith("In each of the last 3 measurements (steps 3 to 9) the clip cut the gradient of at")


def test_norms_that_are_no_numbers_are_left_to_the_rule_for_them():
    assert loudest(findings(Gradient(), rows(optim__grad_norm=[2.0] * 30 + [math.inf, math.nan] * 3))) is None
