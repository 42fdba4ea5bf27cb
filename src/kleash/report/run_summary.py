"""The first screen of a run's report: what was gained, what it cost, in one sentence and a row of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kleash.report.catalogue import HELD_OUT
from kleash.report.charts import Point
from kleash.report.markup import Html, escape, join
from kleash.report.wording import number, percent, with_error
from kleash.runs.reader import RunReader

TOLERANCE = 0.25  # of the target: the band that the charts draw


def controlled_key(config: Mapping[str, object]) -> str:
    """Return the KL that the target is about: per token where the settings say so, else per sequence."""
    per_token = _setting(config, "target_nats_per_token") is not None
    return "kl/exact_per_token" if per_token else "kl/exact_per_sequence"


def summary(reader: RunReader) -> Html:
    """Return the headline sentence and the row of numbers under it."""
    if not reader.steps():
        return Html('<p class="headline">No step has been recorded yet.</p>')
    return join(
        [
            Html(f'<p class="headline">{_reward_sentence(reader)} {_drift_sentence(reader)}</p>'),
            Html(f'<p class="aside">{escape(_aside(reader))}</p>'),
            _tiles(reader),
        ]
    )


def drift_points(reader: RunReader, key: str) -> tuple[str, list[Point]]:
    """Return where the KL was measured and the KL: held-out prompts only where none was measured in training."""
    training = reader.series(key)
    return ("training prompts", training) if training else ("held-out prompts", reader.series(HELD_OUT + key))


def _reward_points(reader: RunReader) -> tuple[str, list[Point]]:
    """Return where the rewards come from and the rewards: the held-out ones if there are two to compare."""
    held_out = reader.series("eval/reward/proxy")
    return ("held-out prompts", held_out) if len(held_out) > 1 else ("training prompts", reader.series("reward/proxy"))


def _reward_sentence(reader: RunReader) -> Html:
    where, points = _reward_points(reader)
    if not points:
        return Html("No reward was recorded.")
    (first, before, before_error), (last, after, after_error) = points[0], points[-1]
    end = _bold("reward", with_error(after, after_error))
    if len(points) == 1:
        return Html(f"Mean reward on {where} is {end} at step {first}, with nothing yet to compare it to.")
    start = _bold("reward", with_error(before, before_error))
    if not math.isfinite(after - before):
        return Html(f"Mean reward on {where} went from {start} to {end}, which cannot be compared.")
    noise = math.hypot(before_error or 0.0, after_error or 0.0)
    if abs(after - before) <= 2 * noise:
        return Html(f"Mean reward on {where} went from {start} to {end}, within two standard errors of no change.")
    verb = "rose" if after > before else "fell"
    return Html(f"Mean reward on {where} {verb} from {start} to {end} by step {last}.")


def _drift_sentence(reader: RunReader) -> Html:
    key = controlled_key(reader.config)
    _, points = drift_points(reader, key)
    if not points:
        return Html("No KL was recorded.")
    step, kl, error = points[-1]
    amount = _bold("drift", f"{with_error(kl, error)} nats per {key.rsplit('_', 1)[1]}")
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


def _tiles(reader: RunReader) -> Html:
    wanted = [
        ("Reward", _reward_points(reader)[1], _reward_points(reader)[0]),
        ("KL per sequence", drift_points(reader, "kl/exact_per_sequence")[1], "nats"),
        ("KL per token", drift_points(reader, "kl/exact_per_token")[1], "nats"),
        ("Beta", reader.series("control/beta"), "reward per nat"),
        ("Reply length", drift_points(reader, "length/mean")[1], "tokens"),
    ]
    steps = reader.steps()
    seconds = sum(value for _, value, _ in reader.series("time/total"))
    tiles = [_tile(name, with_error(*points[-1][1:]), unit) for name, points, unit in wanted if points]
    tiles.append(_tile("Steps", number(steps[-1].step), _duration(seconds) if seconds > 0 else ""))
    return Html(f'<dl class="tiles">{join(tiles)}</dl>')


def _tile(name: str, value: str, small: str) -> Html:
    return Html(f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd class="small">{escape(small)}</dd></div>')


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _bold(tone: str, text: str) -> Html:
    return Html(f'<b class="{tone}">{escape(text)}</b>')


def _setting(config: Mapping[str, object], name: str) -> object:
    """Find a setting by its name at any depth; None where it is absent or not set."""
    for key, value in config.items():
        found = _setting(value, name) if isinstance(value, Mapping) else value if key == name else None
        if found is not None:
            return found
    return None
