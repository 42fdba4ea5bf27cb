"""The charts of a run by what it learns from: which metrics stand together, and what to look for in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kleash.report import (
    run_charts_imitation,
    run_charts_on_policy,
    run_charts_preference,
    run_charts_reward_model,
)
from kleash.report.page import Section
from kleash.report.run_board import Board, section
from kleash.report.run_summary import algorithm
from kleash.runs.reader import RunReader

PHASES = ("rollout", "reward", "score", "update")

OFFLINE: Mapping[str, Callable[[Board], list[Section]]] = {
    "dpo": run_charts_preference.sections,
    "sft": run_charts_imitation.sections,
    "reward_model": run_charts_reward_model.sections,
}


def chart_sections(reader: RunReader) -> list[Section]:
    """Return every section of charts, in reading order."""
    return OFFLINE.get(algorithm(reader.config), run_charts_on_policy.sections)(Board(reader))


def time_section(reader: RunReader) -> list[Section]:
    """Return where the seconds of a step went."""
    board = Board(reader)
    phases = board.multiples([f"time/{phase}" for phase in PHASES], "quiet")
    others = [board.small(key, "quiet") for key in ("time/total", "throughput/tokens_per_second")]
    return section("Time", "", [*phases, *others], 3)
