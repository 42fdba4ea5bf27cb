"""The pieces that the first screen of every kind of run is made of: a change in words, and a row of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kleash.report.catalogue import HELD_OUT
from kleash.report.charts import Point, Tone
from kleash.report.markup import Html, escape, join
from kleash.report.wording import number, with_error
from kleash.runs.reader import RunReader


@dataclass(frozen=True)
class Tile:
    """A number of the row: its name, its value, and its unit or where it was measured."""

    name: str
    value: str
    small: str = ""


@dataclass(frozen=True)
class Headline:
    """The first screen: sentences, how to read their numbers, and the row of numbers without the steps."""

    sentences: Sequence[Html]
    aside: str
    tiles: Sequence[Tile]


def held_out_or_training(reader: RunReader, key: str) -> tuple[str, list[Point]]:
    """Return where the metric comes from and its points: held out if there are two to compare, else in training."""
    held_out, training = reader.series(HELD_OUT + key), reader.series(key)
    return ("held-out", held_out) if len(held_out) > 1 or not training else ("training", training)


def change_sentence(name: str, where: str, points: Sequence[Point], tone: Tone = "reward") -> Html:
    """Say how a mean has changed from its first to its last point, and whether that is more than noise.

    Args:
        name: the quantity, such as "Mean reward".
        where: what it is the mean over, such as "held-out prompts".
        points: at least one.
        tone: colour of the numbers.
    """
    subject = escape(f"{name} on {where}")
    (first, before, before_error), (last, after, after_error) = points[0], points[-1]
    end = bold(tone, with_error(after, after_error))
    if len(points) == 1:
        return Html(f"{subject} is {end} at step {first}, with nothing yet to compare it to.")
    start = bold(tone, with_error(before, before_error))
    if not math.isfinite(after - before):
        return Html(f"{subject} went from {start} to {end}, which cannot be compared.")
    noise = math.hypot(before_error or 0.0, after_error or 0.0)
    if abs(after - before) <= 2 * noise:
        return Html(f"{subject} went from {start} to {end}, within two standard errors of no change.")
    verb = "rose" if after > before else "fell"
    return Html(f"{subject} {verb} from {start} to {end} by step {last}.")


def last_tile(name: str, points: Sequence[Point], small: str = "") -> list[Tile]:
    """Return the last point as a number of the row; nothing where there is none."""
    return [Tile(name, with_error(*points[-1][1:]), small)] if points else []


def draw_tiles(tiles: Sequence[Tile]) -> Html:
    """Return the row of numbers."""
    return Html(f'<dl class="tiles">{join(_tile(tile) for tile in tiles)}</dl>')


def steps_tile(reader: RunReader) -> Tile:
    """Return how many steps there were, and how long they took."""
    seconds = sum(value for _, value, _ in reader.series("time/total"))
    return Tile("Steps", number(reader.steps()[-1].step), _duration(seconds) if seconds > 0 else "")


def bold(tone: str, text: str) -> Html:
    """Return a number of the headline in its colour."""
    return Html(f'<b class="{tone}">{escape(text)}</b>')


def _tile(tile: Tile) -> Html:
    name, value, small = map(escape, (tile.name, tile.value, tile.small))
    return Html(f'<div><dt>{name}</dt><dd>{value}</dd><dd class="small">{small}</dd></div>')


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
