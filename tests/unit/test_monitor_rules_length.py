import numpy as np
import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rules.length import BlowUp, Collapse, StopRate


def length(*pieces):
    return rows(length__mean=np.concatenate(pieces))


@pytest.mark.parametrize(("tokens", "severity"), [(195, None), (210, "warning"), (590, "warning"), (610, "critical")])
def test_replies_that_grow_are_told_of_from_twice_their_first_length(tokens, severity):
    assert loudest(findings(BlowUp(), length([100.0] * 10, [tokens] * 5))) == severity


def test_a_blow_up_says_how_long_replies_are_and_were():
    found = findings(BlowUp(), length([100.0] * 10, [250.0] * 5))[-1]
    assert found.message == (
        "Replies are 250 tokens long, 2.5 times the 100 of its first 5 steps (fixed limit: fewer than 230 measurements "
        "so far, so the run's own noise is not known)."
    )
    assert found.values == {"length/mean": pytest.approx(250.0), "level": pytest.approx(100.0)}
    assert found.began == 10


@pytest.mark.parametrize(("tokens", "severity"), [(146, None), (154, "warning"), (256, "critical"), (20, None)])
def test_against_a_baseline_half_as_long_again_warns(tokens, severity):
    assert loudest(findings(BlowUp(), length(wobbling(100.0, 300), wobbling(tokens, 10)))) == severity


@pytest.mark.parametrize(("tokens", "severity"), [(52, None), (48, "warning"), (24, "critical"), (300, None)])
def test_replies_that_shrink_are_told_of_from_half_their_first_length(tokens, severity):
    assert loudest(findings(Collapse(), length([100.0] * 10, [tokens] * 5))) == severity


@pytest.mark.parametrize(("tokens", "severity"), [(62, None), (58, "warning"), (33, "critical")])
def test_against_a_baseline_three_fifths_warn(tokens, severity):
    assert loudest(findings(Collapse(), length(wobbling(100.0, 300), wobbling(tokens, 10)))) == severity


@pytest.mark.parametrize(("share", "severity"), [(0.62, None), (0.58, "warning"), (0.28, "critical")])
def test_a_stop_rate_that_falls_by_three_tenths_warns(share, severity):
    found = findings(StopRate(), rows(length__stop_rate=[0.9] * 10 + [share] * 5))
    assert loudest(found) == severity
    if severity == "warning":
        assert found[-1].message == (
            "58% of the replies stop by themselves; it was 90% of its first 5 steps (fixed limit: fewer than 230 "
            "measurements so far, so the run's own noise is not known)."
        )


def test_replies_that_never_stopped_can_not_stop_less():
    assert loudest(findings(StopRate(), rows(length__stop_rate=[0.03] * 10 + [0.0] * 300))) is None


def test_a_stop_rate_a_fifth_under_its_baseline_warns():
    assert loudest(findings(StopRate(), rows(length__stop_rate=[*wobbling(0.8, 300), *[0.57] * 5]))) == "warning"
