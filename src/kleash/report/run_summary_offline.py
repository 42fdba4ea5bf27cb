"""The first screen of runs that learn from written text: DPO, demonstrations, and reward models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kleash.report.markup import Html
from kleash.report.reward_verdicts import holes
from kleash.report.summary_words import Headline, Tile, bold, change_sentence, held_out_or_training, last_tile
from kleash.report.wording import number, with_error, with_interval
from kleash.runs.reader import RunReader

COIN = 0.5
ASIDE = (
    "± is one standard error over prompts, not over runs. KL is that of the last evaluation, exact over the "
    "vocabulary, on replies sampled to held-out prompts."
)


def dpo(reader: RunReader) -> Headline:
    """Return how well comparisons are told apart, what that did to reward, and how far it took the policy."""
    where, accuracy = held_out_or_training(reader, "preference/accuracy")
    learned = (
        change_sentence("Accuracy", f"{where} comparisons", accuracy) if accuracy else Html("No accuracy was recorded.")
    )
    tiles = [
        *last_tile("Accuracy", accuracy, f"{where} comparisons"),
        *last_tile("Margin", held_out_or_training(reader, "preference/margin")[1], "reward"),
        *_sampled_tiles(reader),
    ]
    return Headline([learned, *_rewards(reader), *_drift(reader)], ASIDE, tiles)


def sft(reader: RunReader) -> Headline:
    """Return how well demonstrations are predicted, and how far that took the policy."""
    where, loss = held_out_or_training(reader, "loss/sft")
    learned = (
        change_sentence("Loss per token", f"{where} demonstrations", loss) if loss else Html("No loss was recorded.")
    )
    tiles = [
        *last_tile("Loss", loss, f"nats per token, {where}"),
        *last_tile("Perplexity", held_out_or_training(reader, "text/perplexity")[1], where),
        *_sampled_tiles(reader),
    ]
    return Headline([learned, *_rewards(reader), *_drift(reader)], ASIDE, tiles)


def reward_model(reader: RunReader) -> Headline:
    """Return how often the chosen side scores higher, and whether an answer that is none does."""
    health: Mapping[str, Any] = reader.meta.get("reward_health") or {}
    measured = health.get("accuracy")
    where, points = held_out_or_training(reader, "preference/accuracy")
    if measured:
        learned = _accuracy(measured, health)
        accuracy = [
            Tile("Accuracy", number(measured["value"]), f"{number(measured['low'])} to {number(measured['high'])}")
        ]
    elif points:
        learned = change_sentence("Accuracy", f"{where} comparisons", points)
        accuracy = last_tile("Accuracy", points, f"{where} comparisons")
    else:
        learned, accuracy = Html("No accuracy was recorded."), []
    tiles = [
        *accuracy,
        *last_tile("Loss", held_out_or_training(reader, "loss/preference")[1], where),
        *last_tile("Margin", held_out_or_training(reader, "preference/margin")[1], "reward"),
        *_measured_tile("Agreement", health.get("agreement"), "pairs of members"),
        *_measured_tile("Length correlation", health.get("length_correlation"), "score and tokens"),
    ]
    aside = "Intervals are 95 %; ± is one standard error over prompts. Both are over comparisons, not over runs."
    return Headline([learned, *_holes(health)], aside, tiles)


def _accuracy(measured: Mapping[str, float], health: Mapping[str, Any]) -> Html:
    """Say how often the chosen side scores higher; ties have no chosen side."""
    ties = health["ties"]
    left_out = f" ({number(ties)} ties left out)" if ties else ""
    amount = bold("reward", with_interval(measured["value"], measured["low"], measured["high"]))
    sentence = f"Accuracy on {number(health['comparisons'] - ties)} held-out comparisons{left_out} is {amount}"
    coin = measured["low"] <= COIN <= measured["high"]
    return Html(f"{sentence}, which cannot be told from a coin." if coin else f"{sentence}.")


def _holes(health: Mapping[str, Any]) -> list[Html]:
    if not health.get("odd_answers"):
        return []
    found = holes(health["odd_answers"])
    if not found:
        return [Html("On average no empty, repeated or truncated answer scores above a chosen one.")]
    named = bold("drift", " and ".join(f"{kind} answers" for kind in found))
    return [Html(f"It has a hole: {named} score above the chosen ones.")]


def _measured_tile(name: str, value: float | None, small: str) -> list[Tile]:
    return [] if value is None else [Tile(name, number(value), small)]


def _rewards(reader: RunReader) -> list[Html]:
    """Return how reward and gold changed on sampled replies, for what there is of them."""
    named = (("Mean reward", "eval/reward/proxy"), ("Gold reward", "eval/reward/gold"))
    found = [(name, reader.series(key)) for name, key in named]
    return [change_sentence(name, "sampled replies", points) for name, points in found if points]


def _drift(reader: RunReader) -> list[Html]:
    points = reader.series("eval/kl/exact_per_sequence")
    if not points:
        return []
    amount = bold("drift", f"{with_error(*points[-1][1:])} nats per sequence")
    return [Html(f"The policy is {amount} from its reference.")]


def _sampled_tiles(reader: RunReader) -> list[Tile]:
    wanted = (
        ("Reward", "eval/reward/proxy", "sampled replies"),
        ("Gold reward", "eval/reward/gold", "sampled replies"),
        ("KL per sequence", "eval/kl/exact_per_sequence", "nats"),
        ("KL per token", "eval/kl/exact_per_token", "nats"),
        ("Reply length", "eval/length/mean", "tokens"),
    )
    return [tile for name, key, small in wanted for tile in last_tile(name, reader.series(key), small)]
