"""Is a reward model fit to be optimised against? Its health report, drawn from what the run directory keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kleash.report.charts import histogram
from kleash.report.intervals import Curve, Interval, interval_curves, interval_rows
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, prose
from kleash.report.reward_verdicts import KINDS, holes, signs, verdict
from kleash.report.tables import table
from kleash.report.wording import number, percent, with_error

NO_INTERVAL = float("nan")
STATED = (0.47, 1.0)
"""Reach of stated probabilities: that of the preferred side is at least a half."""


def sections(health: Mapping[str, Any]) -> list[Section]:
    """Return the health report of a reward model on its held-out comparisons.

    Args:
        health: what `kleash.training.reward_health.report` returned.
    """
    return [
        Section("Can its odds be believed", _odds(health)),
        Section("Can it be fooled", join([_odd_answers(health["odd_answers"]), _signs(health)])),
    ]


def _odds(health: Mapping[str, Any]) -> Html:
    text = prose(
        "A score difference states odds: the higher answer wins with probability p = sigmoid(difference).",
        "Where points lie below the diagonal, the model is surer than it may be. Intervals are 95 %.",
    )
    charts = [_calibration(health["calibration"]), _margins(health["margins"]), _scores(health["scores"])]
    return join([text, columns([*charts, *_members(health["accuracy_by_member"])])])


def _calibration(bins: Sequence[Mapping[str, float]]) -> Html:
    found = [
        (one["stated"], Interval(_stated(one["stated"]), one["observed"], one["low"], one["high"], _counted(one)))
        for one in bins
    ]
    diagonal = [(end, Interval(_stated(end), end, NO_INTERVAL, NO_INTERVAL)) for end in (0.5, 1.0)]
    return interval_curves(
        "How often it is right, by what it states",
        [Curve("as stated", diagonal, "quiet"), Curve("observed", found, "reward")],
        unit="observed share",
        axis="stated",
        across=STATED,
        include=(0.5, 1.0),
    )


def _margins(margins: Sequence[float]) -> Html:
    wrong = sum(margin < 0 for margin in margins)
    note = f"Left of 0, in {wrong} of {len(margins)}, the model prefers the rejected answer." if margins else ""
    return histogram(
        "Margins: chosen minus rejected", margins, unit="reward", count_of="comparisons", tone="reward", note=note
    )


def _scores(scores: Sequence[float]) -> Html:
    note = "A long tail to the right is what a policy climbs: see the tail index below."
    return histogram("Scores of both sides", scores, unit="reward", count_of="answers", tone="reward", note=note)


def _members(accuracies: Sequence[Mapping[str, float] | None]) -> list[Html]:
    """Return each member's accuracy where there are several."""
    rows = [
        Interval(f"member {index}", one["value"], one["low"], one["high"])
        for index, one in enumerate(accuracies)
        if one is not None
    ]
    if len(rows) < 2:
        return []
    return [interval_rows("Accuracy of each member", rows, unit="share", tone="reward", reach=(0.0, 1.0))]


def _odd_answers(answers: Mapping[str, Mapping[str, float]]) -> Html:
    found = holes(answers)
    text = prose(
        "Answers that are none, scored on the prompts of held-out comparisons. A policy that is trained against the",
        "model will find whatever scores above a good answer.",
    )
    rows = [
        (kind, description, with_error(answers[kind]["mean"], answers[kind]["stderr"]), _said(answers, kind, found))
        for kind, description in KINDS.items()
        if kind in answers
    ]
    headers = ["answer", "what it is", "score", "verdict"]
    caption = "Mean score ± one standard error over prompts; means within two standard errors are not told apart."
    return join([text, table(headers, rows, caption=caption, numeric={"score"})])


def _said(answers: Mapping[str, Mapping[str, float]], kind: str, found: Sequence[str]) -> Html:
    """Return the verdict on a row; a hole in the colour of alarm."""
    said = escape(verdict(answers, kind))
    return Html(f'<b class="alarm">{said}</b>') if kind in found else said


def _signs(health: Mapping[str, Any]) -> Html:
    rows = [(sign.name, sign.value, sign.meaning) for sign in signs(health)]
    caption = "Signs of what else it may pay for, over the answers of held-out comparisons."
    found = table(["sign", "value", "what it says"], rows, caption=caption, numeric={"value"})
    return Html(f'<div class="inside">{found}</div>')


def _stated(probability: float) -> str:
    return f"stated {percent(probability)}"


def _counted(one: Mapping[str, float]) -> str:
    return f"{number(one['count'])} comparisons"
