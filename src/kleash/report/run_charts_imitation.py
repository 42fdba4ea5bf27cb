"""The charts of an SFT run: how well it predicts demonstrations, and how far that took it from where it started."""

from __future__ import annotations

from kleash.report.page import Section
from kleash.report.run_board import Board, section
from kleash.report.run_charts_replies import language, sampled_replies, where_the_drift_is

SAMPLED = (
    "Replies that the policy samples to the prompts of held-out demonstrations. Here drift is what is wanted: the KL "
    "to where it started, exact over the vocabulary, says how much there is. Rewards are measured, never optimised."
)


def sections(board: Board) -> list[Section]:
    """Return every section that the run recorded something for, in reading order."""
    return [*_demonstrations(board), *sampled_replies(board, SAMPLED), *language(board), *where_the_drift_is(board)]


def _demonstrations(board: Board) -> list[Section]:
    text = (
        "Perplexity is exp of the loss. A held-out loss that rises while the training loss falls says that the policy "
        "learns the demonstrations by heart: stop where it is lowest."
    )
    charts = [
        board.both("Loss of a demonstrated token", "loss/sft"),
        board.both("Perplexity", "text/perplexity"),
    ]
    return section("Demonstrations", text, charts)
