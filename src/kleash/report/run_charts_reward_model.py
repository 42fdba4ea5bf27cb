"""The charts of a reward model: how it learns to tell comparisons apart, and whether it is fit to be optimised."""

from __future__ import annotations

from kleash.report import reward_health
from kleash.report.page import Section
from kleash.report.run_board import Board, section


def sections(board: Board) -> list[Section]:
    """Return every section that the run recorded something for, in reading order."""
    health = board.reader.meta.get("reward_health")
    return [*_learning(board), *(reward_health.sections(health) if health else [])]


def _learning(board: Board) -> list[Section]:
    text = (
        "A held-out loss that rises while the training loss falls says that the model learns its comparisons by heart. "
        "Scores have no zero of their own: only differences between answers to one prompt mean something."
    )
    scores = [
        board.line("preference/chosen_score", "chosen"),
        board.line("preference/rejected_score", "rejected", "drift"),
        board.line("eval/preference/chosen_score", "chosen, held out", "reward", "dots"),
        board.line("eval/preference/rejected_score", "rejected, held out", "drift", "dots"),
    ]
    charts = [
        board.both("Preference loss", "loss/preference", note="log 2 = 0.693 where the model cannot tell."),
        board.both("Accuracy: chosen above rejected", "preference/accuracy", include=(0, 1)),
        board.both("Margin: chosen minus rejected", "preference/margin", include=(0,)),
        board.chart("Scores of both texts", "preference/chosen_score", scores),
        board.both("Pairs of members that agree", "preference/agreement", include=(0, 1)),
    ]
    return section("Learning", text, charts)
