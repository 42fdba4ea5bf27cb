"""The charts of a DPO run: how it tells comparisons apart, what that does to both texts, and how far it has moved."""

from __future__ import annotations

from kleash.report.markup import Html
from kleash.report.page import Section
from kleash.report.run_board import Board, section
from kleash.report.run_charts_replies import language, sampled_replies, where_the_drift_is

BOTH_FALL = (
    "Both are below 0: the policy forgets the chosen text too, only more slowly than the rejected one, and its "
    "probability goes to answers that nobody compared. Look at the samples."
)
SAMPLED = (
    "Replies that the policy samples to the prompts of held-out comparisons: what it writes, not what it was given "
    "to compare. The KL is exact over the vocabulary. Rewards are measured here, never optimised."
)


def sections(board: Board) -> list[Section]:
    """Return every section that the run recorded something for, in reading order."""
    return [*_comparisons(board), *sampled_replies(board, SAMPLED), *language(board), *where_the_drift_is(board)]


def _comparisons(board: Board) -> list[Section]:
    text = (
        "The loss falls when the margin grows, and the margin is a difference: it grows too when both texts lose "
        "probability and the rejected one loses more. The drifts of both texts tell the two cases apart. They are "
        "log-ratios on given text and may have either sign: no KL."
    )
    charts = [
        board.both("Preference loss", "loss/preference", note="The sigmoid loss is log 2 = 0.693 before any update."),
        board.both("Accuracy: chosen above rejected", "preference/accuracy", include=(0, 1)),
        board.both("Margin: beta × difference of the log-ratios", "preference/margin", include=(0,)),
        _drifts(board),
    ]
    return section("Comparisons", text, charts)


def _drifts(board: Board) -> Html:
    chosen, rejected = "preference/chosen_drift", "preference/rejected_drift"
    lines = [
        board.line(chosen, "chosen"),
        board.line(rejected, "rejected", "drift"),
        board.line(f"eval/{chosen}", "chosen, held out", "reward", "dots"),
        board.line(f"eval/{rejected}", "rejected, held out", "drift", "dots"),
    ]
    return board.chart(
        "log π − log π_ref of both texts", chosen, lines, include=(0,), note=BOTH_FALL if both_fall(board) else ""
    )


def both_fall(board: Board) -> bool:
    """Return whether chosen and rejected have both become less likely: held out where measured, else in training."""
    for prefix in ("eval/", ""):
        ends = [board.points(f"{prefix}preference/{side}_drift") for side in ("chosen", "rejected")]
        if all(ends):
            return all(points[-1][1] < 0 for points in ends)
    return False
