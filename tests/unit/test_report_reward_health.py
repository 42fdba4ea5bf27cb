import html
import re

import pytest

from kleash.report.reward_health import sections
from kleash.report.reward_verdicts import holes, signs, verdict


def answers(**means):
    """Scores with a standard error of 0.1 each."""
    found = {"chosen": 1.0, "rejected": 0.0, "empty": -1.0, "repeated": -1.0, "truncated": -1.0} | means
    return {kind: {"mean": mean, "stderr": 0.1} for kind, mean in found.items()}


def health(**more):
    return {
        "comparisons": 40,
        "ties": 3,
        "accuracy": {"value": 0.75, "low": 0.6, "high": 0.86},
        "accuracy_by_member": [{"value": 0.7, "low": 0.55, "high": 0.82}],
        "agreement": None,
        "member_sd": None,
        "calibration": [
            {"stated": 0.6, "observed": 0.5, "low": 0.24, "high": 0.76, "count": 10},
            {"stated": 0.9, "observed": 0.8, "low": 0.49, "high": 0.94, "count": 10},
        ],
        "margins": [-1.0, 0.5, 2.0, 3.0],
        "scores": [0.0, 1.0, 2.0, 3.0],
        "length_correlation": 0.1,
        "longer_wins": 0.5,
        "odd_answers": answers(),
        "tail_index": None,
    } | more


def shown(report):
    """The sections' text, tags left out."""
    return html.unescape(re.sub("<[^>]+>", " ", " ".join(section.body for section in sections(report))))


# 2 standard errors of a difference are 2 * sqrt(0.02) = 0.283
@pytest.mark.parametrize(
    ("empty", "words"),
    [
        (1.29, "a hole: a policy is paid to write this instead of an answer"),
        (1.28, "not told apart from a chosen answer: watch for it in the samples"),
        (0.72, "not told apart from a chosen answer: watch for it in the samples"),
        (0.71, "below the chosen ones, but above the rejected ones"),
        (0.28, "sound: no better than a rejected answer"),
    ],
)
def test_an_empty_answer_is_judged_beside_chosen_and_rejected(empty, words):
    assert verdict(answers(empty=empty), "empty") == words


@pytest.mark.parametrize(
    ("rejected", "words"),
    [
        (0.5, "below the chosen ones, as it should be"),
        (0.9, "not told apart from the chosen ones"),
        (1.5, "upside down: rejected answers score higher than chosen ones"),
    ],
)
def test_rejected_answers_belong_below_the_chosen(rejected, words):
    assert verdict(answers(rejected=rejected), "rejected") == words


def test_holes_are_named_in_order_and_rejected_answers_are_none():
    assert holes(answers(rejected=5.0, truncated=2.0, empty=3.0)) == ["empty", "truncated"]
    assert holes(answers()) == []


def test_means_without_an_error_are_compared_as_they_are():
    exact = {kind: {"mean": mean, "stderr": 0.0} for kind, mean in (("chosen", 1.0), ("rejected", 0.0), ("empty", 1.5))}
    assert holes(exact) == ["empty"]
    same = {kind: {"mean": 1.0, "stderr": 0.0} for kind in ("chosen", "rejected", "empty")}
    assert holes(same) == []


@pytest.mark.parametrize(
    ("more", "name", "words"),
    [
        ({"length_correlation": 0.5}, "Correlation of score and length", "longer answers score higher"),
        ({"length_correlation": -0.5}, "Correlation of score and length", "shorter answers score higher"),
        ({"length_correlation": 0.1}, "Correlation of score and length", "length says little"),
        ({"tail_index": 2.0}, "Tail index", "heavy: a few answers score far above the rest"),
        ({"tail_index": 5.0}, "Tail index", "light: raising this reward far costs KL"),
        ({"tail_index": None}, "Tail index", "not estimated: it takes 200 scores that differ"),
        ({"agreement": 0.75}, "Agreement of members", "where they part, the score is a guess"),
    ],
)
def test_a_sign_says_what_it_means(more, name, words):
    (found,) = [sign for sign in signs(health(**more)) if sign.name == name]
    assert found.meaning.startswith(words) or words in found.meaning


def test_one_member_has_no_agreement_and_no_chart_of_members():
    names = [sign.name for sign in signs(health())]
    assert names == ["Correlation of score and length", "Longer side preferred", "Tail index"]
    assert "Accuracy of each member" not in shown(health())
    two = [{"value": 0.7, "low": 0.55, "high": 0.82}, {"value": 0.8, "low": 0.65, "high": 0.9}]
    assert "0.80 [0.65, 0.90]" in shown(health(accuracy_by_member=two))


def test_the_calibration_stands_beside_its_diagonal():
    text = shown(health())
    assert "stated 60\u202f% · 0.50 [0.24, 0.76] · 10 comparisons" in text
    assert "as stated: stated 50\u202f%: 0.500; stated 100\u202f%: 1." in text


def test_wrong_margins_are_counted():
    text = shown(health())
    assert "Left of 0, in 1 of 4, the model prefers the rejected answer." in text
    assert "Histogram of 4 comparisons: from −1 to 3, mean 1.12 reward." in text


def test_a_hole_is_marked_and_other_rows_are_not():
    (_, fooled) = sections(health(odd_answers=answers(empty=2.0)))
    marked = re.findall(r'<b class="alarm">(.*?)</b>', fooled.body)
    assert marked == ["a hole: a policy is paid to write this instead of an answer"]
    assert "2.00 ± 0.10" in fooled.body
    (_, sound) = sections(health())
    assert "alarm" not in sound.body


def test_a_report_without_decided_comparisons_is_shown():
    text = shown(health(calibration=[], margins=[], accuracy_by_member=[None]))
    assert "Not recorded in this run." in text
    assert "Left of 0" not in text
