"""The first screen of a run's report: what was gained, what it cost, in a few sentences and a row of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kleash.report import run_summary_offline
from kleash.report.catalogue import HELD_OUT
from kleash.report.charts import Point
from kleash.report.markup import Html, escape, join
from kleash.report.summary_words import Headline, bold, change_sentence, draw_tiles, last_tile, steps_tile
from kleash.report.wording import number, percent, with_error
from kleash.runs.reader import RunReader

TOLERANCE = 0.25  # of the target: the band that the charts draw

OFFLINE: Mapping[str, Callable[[RunReader], Headline]] = {
    "dpo": run_summary_offline.dpo,
    "sft": run_summary_offline.sft,
    "reward_model": run_summary_offline.reward_model,
}


def algorithm(config: Mapping[str, object]) -> str:
    """Return how a run learns, as its settings name it; empty where they do not."""
    table = config.get("algorithm")
    return str(table.get("type", "")) if isinstance(table, Mapping) else ""


def controlled_key(config: Mapping[str, object]) -> str:
    """Return the KL that the target is about: per token where the settings say so, else per sequence."""
    per_token = _setting(config, "target_nats_per_token") is not None
    return "kl/exact_per_token" if per_token else "kl/exact_per_sequence"


def summary(reader: RunReader) -> Html:
    """Return the headline sentences and the row of numbers under them."""
    if not reader.steps():
        return Html('<p class="headline">No step has been recorded yet.</p>')
    found = OFFLINE.get(algorithm(reader.config), _on_policy)(reader)
    return join(
        [
            Html(f'<p class="headline">{" ".join(found.sentences)}</p>'),
            Html(f'<p class="aside">{escape(found.aside)}</p>'),
            draw_tiles([*found.tiles, steps_tile(reader)]),
        ]
    )


def drift_points(reader: RunReader, key: str) -> tuple[str, list[Point]]:
    """Return where the KL was measured and the KL: held-out prompts only where none was measured in training."""
    training = reader.series(key)
    return ("training prompts", training) if training else ("held-out prompts", reader.series(HELD_OUT + key))


def _on_policy(reader: RunReader) -> Headline:
    where, rewards = _reward_points(reader, "reward/proxy")
    gained = change_sentence("Mean reward", where, rewards) if rewards else Html("No reward was recorded.")
    gold_where, gold = _reward_points(reader, "reward/gold")
    measured = [change_sentence("Gold reward", gold_where, gold)] if gold else []
    tiles = [
        *last_tile("Reward", rewards, where),
        *last_tile("Gold reward", gold, gold_where),
        *last_tile("KL per sequence", drift_points(reader, "kl/exact_per_sequence")[1], "nats"),
        *last_tile("KL per token", drift_points(reader, "kl/exact_per_token")[1], "nats"),
        *last_tile("Beta", reader.series("control/beta"), "reward per nat"),
        *last_tile("Reply length", drift_points(reader, "length/mean")[1], "tokens"),
    ]
    return Headline([gained, *measured, _drift_sentence(reader)], _aside(reader), tiles)


def _reward_points(reader: RunReader, key: str) -> tuple[str, list[Point]]:
    """Return where the rewards come from and the rewards: the held-out ones if there are two to compare."""
    held_out = reader.series(HELD_OUT + key)
    return ("held-out prompts", held_out) if len(held_out) > 1 else ("training prompts", reader.series(key))


def _drift_sentence(reader: RunReader) -> Html:
    key = controlled_key(reader.config)
    _, points = drift_points(reader, key)
    if not points:
        return Html("No KL was recorded.")
    step, kl, error = points[-1]
    amount = bold("drift", f"{with_error(kl, error)} nats per {key.rsplit('_', 1)[1]}")
    sentence = f"The policy is {amount} from its reference"
    target = next((value for _, value, _ in reversed(reader.series("control/target"))), None)
    if target is None or not target > 0:
        return Html(f"{sentence}; no target was set.")
    if not math.isfinite(kl):
        return Html(f"{sentence}: the number broke at step {step}, so the target of {number(target)} says nothing.")
    off = kl / target - 1
    side = "above" if off > 0 else "below"
    held = "within" if abs(off) <= TOLERANCE else "outside"
    distance = "at" if abs(off) < 0.005 else f"{percent(off)} {side}"
    return Html(f"{sentence}, {distance} the target of {number(target)} and {held} the ±{percent(TOLERANCE)} band.")


def _aside(reader: RunReader) -> str:
    where, points = drift_points(reader, controlled_key(reader.config))
    lately = [value for _, value, _ in points[-20:]]
    average = f" Its mean over the last {len(lately)} steps is {number(sum(lately) / len(lately))}." if lately else ""
    return (
        "± is one standard error over the replies of a step, not over runs. KL is that of the last step, "
        f"exact over the vocabulary, on {where}.{average}"
    )


def _setting(config: Mapping[str, object], name: str) -> object:
    """Find a setting by its name at any depth; None where it is absent or not set."""
    for key, value in config.items():
        found = _setting(value, name) if isinstance(value, Mapping) else value if key == name else None
        if found is not None:
            return found
    return None
