"""Charts of sampled replies, the same for every algorithm that has a policy: how varied they are, where they drift."""

from __future__ import annotations

from kleash.report.catalogue import HELD_OUT
from kleash.report.charts import histogram
from kleash.report.markup import Html, join
from kleash.report.page import Section, columns, prose
from kleash.report.run_board import Board, section

CLASSES = ("stop", "special", "whitespace", "digit", "punctuation", "word")


def sampled_replies(board: Board, text: str) -> list[Section]:
    """Return what a policy that learns from written text does when it writes itself, on held-out prompts."""
    rewards = [
        board.line("eval/reward/proxy", "reward", "reward", "dots"),
        board.line("eval/reward/gold", "gold", "quiet", "dots"),
    ]
    charts = [
        board.kl("KL to the reference, per sequence", "kl/exact_per_sequence"),
        board.kl("KL to the reference, per token", "kl/exact_per_token"),
        board.chart("Reward on held-out prompts", "reward/proxy", rewards),
        board.both("Entropy of the next token", "entropy/per_token", include=(0,)),
        board.both("Reply length", "length/mean", include=(0,)),
        board.both("Replies that end by themselves", "length/stop_rate", include=(0, 1)),
    ]
    return section("Sampled replies", text, charts)


def language(board: Board) -> list[Section]:
    """Return whether the replies still vary."""
    text = (
        "Distinct pairs fall and repeated runs rise when the policy has found a phrase that pays. "
        "Held against their values at the first step, they show whether the samples still vary."
    )
    charts = [
        board.both("Distinct word pairs", "text/distinct_2", include=(0, 1)),
        board.both("Repeated runs of four", "text/repeated_4gram", include=(0,)),
    ]
    return section("Language", text, charts)


def where_the_drift_is(board: Board) -> list[Section]:
    """Return the drift by class of token, by reply and in the tail; held-out where it was not measured in training."""
    prefix = "" if board.points("kl/token_max") or board.points("kl/class_word") else HELD_OUT
    classes = board.multiples([f"{prefix}kl/class_{name}" for name in CLASSES], "drift")
    tail = [
        board.line(f"{prefix}kl/token_max", "largest", "drift", "dashed"),
        board.line(f"{prefix}kl/token_p99", "99 %", "drift"),
        board.line(f"{prefix}kl/token_p95", "95 %", "quiet"),
    ]
    others = [_spread(board), board.chart("The tokens that drift most", "kl/token_max", tail, include=(0,))]
    if not any([*classes, *others]):
        return []
    worst = board.last_note(f"{prefix}worst_tokens")
    pieces = [prose(f"Tokens that drift most. {worst}")] if worst else []
    if any(classes):
        pieces += [
            prose("KL by the class of the token that was written; the charts of classes share one vertical axis."),
            columns(classes, 3),
        ]
    return [Section("Where the drift is", join([*pieces, columns(others)]))]


def _spread(board: Board) -> Html:
    samples = board.reader.samples("after")
    if not samples:
        return Html()
    last = max(sample.step for sample in samples)
    values = [sample.kl for sample in samples if sample.step == last]
    return histogram("KL of each reply after training", values, unit="nats per sequence")
