import numpy as np
import pytest
from rule_findings import findings, loudest, rows

from kleash.monitor.rules.preference import BothFalling


def drifting(chosen, rejected, steps=25, noise=0.3):
    wobble = noise * np.where(np.arange(steps) % 2, -1.0, 1.0)
    return rows(
        preference__chosen_drift=chosen + wobble,
        preference__rejected_drift=rejected + wobble,
        preference__chosen_logprob=-80.0 + chosen + wobble,
        preference__rejected_logprob=-82.0 + rejected + wobble,
    )


def test_a_small_fall_of_both_is_a_note():
    found = findings(BothFalling(), drifting(-4.0, -5.0))
    assert found[:19] == [None] * 19
    assert found[19].severity == "info"
    assert found[19].began == 19
    assert found[19].values == {"chosen_change": pytest.approx(-4.0), "rejected_change": pytest.approx(-5.0)}
    assert found[19].message == (
        "Both sides became less likely over training: chosen by 4 nats per sequence, 5.0% of its log-probability, "
        "rejected by 5 (means of the last 20 steps)."
    )


@pytest.mark.parametrize(("chosen", "severity"), [(-11.0, "info"), (-13.0, "warning"), (-41.0, "critical")])
def test_it_is_judged_by_the_share_of_the_chosen_log_probability_that_is_lost(chosen, severity):
    assert loudest(findings(BothFalling(), drifting(chosen, 2 * chosen))) == severity


@pytest.mark.parametrize(("chosen", "rejected"), [(1.0, -5.0), (-0.1, -5.0), (-5.0, -0.1), (0.0, 0.0)])
def test_one_side_alone_and_what_noise_explains_is_not_told_of(chosen, rejected):
    assert loudest(findings(BothFalling(), drifting(chosen, rejected))) is None


@pytest.mark.parametrize("logprob", [-5.0, -4.0])
def test_a_log_probability_that_was_no_log_probability_is_judged_by_no_share(logprob):
    steps = [row | {"preference/chosen_logprob": logprob} for row in drifting(-5.0, -6.0, noise=0.0)]
    found = findings(BothFalling(), steps)[-1]
    assert found.severity == "info"
    assert "chosen by 5 nats per sequence, rejected by 6 (" in found.message


def test_without_drifts_log_probabilities_are_held_against_the_first_batches():
    def logprobs(fall):
        before_after = np.repeat([0.0, fall], 20) + np.tile([0.5, -0.5], 20)
        return rows(preference__chosen_logprob=-80 + before_after, preference__rejected_logprob=-90 + before_after)

    found = findings(BothFalling(), logprobs(-20.0))
    assert found[:39] == [None] * 39
    assert found[39].severity == "warning"
    assert "chosen by 20 nats per sequence, 25.0% of its log-probability" in found[39].message
    assert loudest(findings(BothFalling(), logprobs(-0.2))) is None
