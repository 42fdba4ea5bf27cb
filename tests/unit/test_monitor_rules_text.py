import pytest
from rule_findings import findings, loudest, rows, wobbling

from kleash.monitor.rule import Facts
from kleash.monitor.rules.text import Diversity, Repetition, SameAnswer


@pytest.mark.parametrize(("share", "severity"), [(0.105, None), (0.12, "warning"), (0.27, "critical")])
def test_loops_are_told_of_when_a_tenth_more_of_the_4grams_repeats(share, severity):
    found = findings(Repetition(), rows(text__repeated_4gram=[0.01] * 10 + [share] * 5))
    assert loudest(found) == severity
    if severity == "warning":
        assert found[-1].message == (
            "12% of the 4-grams already occurred in the same reply; it was 1.0% of its first 5 steps (fixed limit: "
            "fewer than 230 measurements so far, so the run's own noise is not known)."
        )
        assert found[-1].began == 10


def test_loops_in_text_that_always_had_some_are_told_of_by_the_rise():
    settled = wobbling(0.15, 300)
    assert loudest(findings(Repetition(), rows(text__repeated_4gram=[*settled, *[0.2] * 10]))) is None
    found = findings(Repetition(), rows(text__repeated_4gram=[*settled, *[0.25] * 10]))
    assert loudest(found) == "warning"
    assert found[-1].message.endswith("it was 15.0% of its baseline.")


@pytest.mark.parametrize(("share", "severity"), [(0.75, None), (0.7, "warning"), (0.5, "critical")])
def test_diversity_is_held_against_the_first_steps_where_the_policy_is_the_reference(share, severity):
    of_fewer_replies = Facts(reference={"text/distinct_2": 0.99})
    found = findings(Diversity(), rows(text__distinct_2=[0.9] * 8 + [share] * 4), of_fewer_replies)
    assert loudest(found) == severity
    if severity == "warning":
        assert found[-1].message == (
            "70% of the bigrams are different ones, 78% of the 90% of its first 5 steps (fixed limit: fewer "
            "than 230 measurements so far, so the run's own noise is not known)."
        )


def test_text_that_was_never_varied_is_no_loss():
    assert loudest(findings(Diversity(), rows(text__distinct_2=[0.4] * 250))) is None


def test_replies_that_share_their_bigrams_without_loops_are_the_same_answer():
    found = findings(
        SameAnswer(), rows(text__distinct_2=[0.9] * 8 + [0.4] * 4, text__repeated_4gram=[0.0] * 8 + [0.02] * 4)
    )
    assert found[:9] == [None] * 9
    assert found[9].severity == "warning"
    assert found[9].began == 8
    assert found[9].values == {"text/distinct_2": 0.4, "text/repeated_4gram": 0.02, "level": 0.9}
    assert "44% of the 90% at the start, while only 2.0% of the 4-grams repeat within a reply" in found[9].message


def test_eight_equal_replies_are_critical():
    steps = rows(text__distinct_2=[0.9] * 8 + [0.9 / 8] * 4, text__repeated_4gram=[0.0] * 12)
    assert loudest(findings(SameAnswer(), steps)) == "critical"


@pytest.mark.parametrize(("distinct", "repeated"), [(0.3, 0.3), (0.5, 0.0)])
def test_loops_and_a_small_loss_are_not_the_same_answer(distinct, repeated):
    steps = rows(text__distinct_2=[0.9] * 8 + [distinct] * 8, text__repeated_4gram=[0.0] * 8 + [repeated] * 8)
    assert findings(SameAnswer(), steps) == [None] * 16
