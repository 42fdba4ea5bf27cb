"""The charts of a run that learns from its own samples: what it gains, what that costs, and its critic."""

from __future__ import annotations

from kleash.report.page import Section
from kleash.report.run_board import Board, section
from kleash.report.run_charts_replies import language, where_the_drift_is


def sections(board: Board) -> list[Section]:
    """Return every section that the run recorded something for, in reading order."""
    return [
        *_reward_and_drift(board),
        *_length(board),
        *_critic(board),
        *_pretraining(board),
        *language(board),
        *where_the_drift_is(board),
    ]


def _reward_and_drift(board: Board) -> list[Section]:
    reward = [
        board.line("reward/proxy", "proxy"),
        board.line("reward/shaped", "shaped", "reward", "dashed"),
        board.line("reward/gold", "gold", "quiet", "dashed"),
    ]
    held_out = [
        board.line("eval/reward/proxy", "proxy", "reward", "dots"),
        board.line("eval/reward/gold", "gold", "quiet", "dots"),
    ]
    gold = "Gold is measured, never optimised." if board.points("reward/gold") else ""
    original = board.line("kl/original_per_sequence", "to the original model", "quiet", "dashed")
    beta = [board.line("control/beta", "beta", "quiet")]
    charts = [
        board.chart("Reward on training prompts", "reward/proxy", reward, note=gold),
        board.kl("KL to the reference, per sequence", "kl/exact_per_sequence", [original]),
        board.chart("Reward on held-out prompts", "reward/proxy", held_out),
        board.chart("Beta, the price of a nat", "control/beta", beta, include=(0,), note=board.last_note("beta")),
    ]
    return section("Reward and drift", "", charts)


def _length(board: Board) -> list[Section]:
    text = (
        "A policy can meet a target per sequence by writing less: KL adds up over the tokens, so a "
        "shorter reply is nearer without being more alike. "
        "If KL per token climbs while replies shorten, that is what happened."
    )
    charts = [
        board.kl("KL to the reference, per token", "kl/exact_per_token"),
        board.both("Reply length", "length/mean", include=(0,)),
        board.both("Replies that end by themselves", "length/stop_rate", include=(0, 1)),
        board.both("Entropy of the next token", "entropy/per_token", include=(0,)),
    ]
    return section("Length", text, charts)


def _critic(board: Board) -> list[Section]:
    text = (
        "PPO's critic predicts the reward still to come at each token. Explained variance is 1 for a perfect critic, "
        "0 for one that says the same everywhere; below 0 it misleads, and advantages are noisier than without it."
    )
    charts = [
        board.both("Explained variance", "critic/explained_variance", include=(0, 1)),
        board.both("Critic's loss", "critic/loss", include=(0,)),
        board.both("Values that the clip held back", "critic/clip_fraction", include=(0,), tone="quiet"),
        board.both("Critic's gradient norm", "critic/grad_norm", include=(0,), tone="quiet"),
    ]
    return section("Critic", text, charts)


def _pretraining(board: Board) -> list[Section]:
    text = (
        "Text that is learned beside the reward, so that skill outside the reward does not fade. A rising loss says "
        "that it fades all the same: give the text more weight, or the policy a shorter leash."
    )
    return section("Pretraining mix", text, [board.both("Loss on the mixed-in text", "loss/pretraining", tone="drift")])
