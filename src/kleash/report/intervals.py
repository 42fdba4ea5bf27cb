"""Charts of estimates with their intervals: a row for each name, or a line over an axis of numbers.

Interval ends are drawn where they are, not as value ± error: a bootstrap interval need not be symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kleash.report.axes import TOP, WIDE, Frame, Size, draw_frame, padded_range, tick_text, ticks, whole_ticks
from kleash.report.charts import NOTHING, Tone, figure, svg
from kleash.report.markup import Html, escape, join
from kleash.report.wording import with_interval

NAMES, VALUES = 118.0, 118.0
"""Widths to the left and to the right of the plot of `interval_rows`."""
ROW = 22.0
LONGEST_NAME = 18


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval.

    Attributes:
        name: what it is the estimate of.
        value: the estimate.
        low: lower end; NaN where there is no interval, as from a single prompt.
        high: upper end, or NaN.
        note: more about it, for the tooltip.
    """

    name: str
    value: float
    low: float
    high: float
    note: str = ""

    @property
    def said(self) -> str:
        """Value and interval in words."""
        return with_interval(self.value, self.low, self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """Where its interval is drawn; at the value where it has none."""
        known = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if known else (self.value, self.value)


@dataclass(frozen=True)
class Curve:
    """Estimates over an axis of numbers.

    Attributes:
        label: its name in the legend.
        points: (where on the axis, estimate), from left to right.
        tone: "reward", "drift" or "quiet".
    """

    label: str
    points: Sequence[tuple[float, Interval]]
    tone: Tone = "drift"


def interval_rows(
    title: str,
    rows: Sequence[Interval],
    *,
    unit: str,
    tone: Tone = "drift",
    reach: tuple[float, float] | None = None,
    note: str = "",
) -> Html:
    """Return a figure with a row for each estimate: its name, a dot on its interval, and the numbers.

    Args:
        title: what the chart shows.
        rows: from top to bottom.
        unit: of the horizontal axis.
        tone: colour of the dots.
        reach: first and last value of the axis, so that charts line up; None: from 0 or below to the largest end.
        note: a sentence under the chart.
    """
    drawn = [row for row in rows if math.isfinite(row.value)]
    if not drawn:
        return figure(title, Html(), NOTHING, note)
    low, high = reach or interval_reach(rows)
    size = Size(WIDE.width, TOP + ROW * len(rows) + 22)

    def at(value: float) -> float:
        return NAMES + (value - low) / (high - low) * (size.width - NAMES - VALUES)

    marks = ticks(low, high, 6)
    grid = join(_upright(at(tick), size.height - 22, tick_text(tick, marks)) for tick in marks)
    head = Html(f'<text class="unit" x="{NAMES:.1f}" y="12">{escape(unit)}</text>')
    lines = [_row(row, at, TOP + ROW * (index + 0.5), tone, size) for index, row in enumerate(rows)]
    words = f"Estimates with 95 % intervals, in {unit}. " + "; ".join(f"{row.name}: {row.said}" for row in rows) + "."
    return figure(title, Html(), svg(size, title, words, join([head, grid, *lines])), note)


def interval_reach(rows: Sequence[Interval]) -> tuple[float, float]:
    """Return a horizontal range that holds 0 and every interval that can be drawn."""
    return padded_range((end for row in rows for end in row.ends), (0.0,))


def interval_curves(
    title: str,
    curves: Sequence[Curve],
    *,
    unit: str,
    axis: str,
    across: tuple[float, float] | None = None,
    include: Sequence[float] = (0.0,),
    note: str = "",
) -> Html:
    """Return a figure of estimates over an axis of numbers, each point on its interval.

    Args:
        title: what the chart shows.
        curves: its lines; points that are not finite are left out and counted in the note.
        unit: of the vertical axis.
        axis: what the horizontal axis measures; a short word.
        across: first and last value of the horizontal axis; None: from 0, numbered in whole numbers.
        include: values that the vertical axis must reach.
        note: a sentence under the chart.
    """
    points = [(x, one) for curve in curves for x, one in curve.points]
    finite = [(x, one) for x, one in points if math.isfinite(one.value)]
    if lost := len(points) - len(finite):
        note = f"{note} {lost} of {len(points)} values are not finite and are not drawn.".strip()
    if not finite:
        return figure(title, Html(), NOTHING, note)
    reach = across or (min(0.0, *(x for x, _ in finite)), max(x for x, _ in finite))
    marks = ticks(*reach, 6) if across else whole_ticks(*reach, 6)
    frame = Frame(WIDE, reach, padded_range((end for _, one in finite for end in one.ends), include))
    drawing = [
        draw_frame(frame, unit, axis, marks, ticks(*frame.y, 5)),
        *(_curve(frame, curve) for curve in curves),
    ]
    words = f"Estimates with 95 % intervals over {axis}, in {unit}. " + " ".join(
        f"{curve.label}: " + "; ".join(f"{one.name}: {one.said}" for _, one in curve.points) + "." for curve in curves
    )
    keys = join(Html(f'<span class="key {curve.tone} solid">{escape(curve.label)}</span>') for curve in curves)
    legend = Html(f'<span class="legend">{keys}</span>') if len(curves) > 1 else Html()
    return figure(title, legend, svg(WIDE, title, words, join(drawing)), note)


def _upright(x: float, bottom: float, text: str) -> Html:
    line = f'<path class="rule" d="M{x:.1f} {TOP:.1f}V{bottom:.1f}"/>'
    label = f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{bottom + 15:.1f}">{escape(text)}</text>'
    return Html(line + label)


def _row(row: Interval, at: Callable[[float], float], y: float, tone: Tone, size: Size) -> Html:
    name = row.name if len(row.name) <= LONGEST_NAME else row.name[: LONGEST_NAME - 1] + "…"
    texts = (
        f'<text text-anchor="end" x="{NAMES - 10:.1f}" y="{y + 3.5:.1f}">{escape(name)}</text>'
        f'<text text-anchor="end" x="{size.width:.1f}" y="{y + 3.5:.1f}">{escape(row.said)}</text>'
    )
    mark = ""
    if math.isfinite(row.value):
        mark = (
            f'<path class="whisker {tone}" d="M{at(row.ends[0]):.1f} {y:.1f}H{at(row.ends[1]):.1f}"/>'
            f'<circle class="dot {tone}" cx="{at(row.value):.1f}" cy="{y:.1f}" r="3.5"/>'
        )
    return Html(f"<g><title>{_tip(row)}</title>{texts}{mark}</g>")


def _curve(frame: Frame, curve: Curve) -> Html:
    places = [(frame.at_x(x), frame.at_y(one.value)) for x, one in curve.points if math.isfinite(one.value)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    drawn = f'<path class="line dots {curve.tone}" d="M{line}"/>' if len(places) > 1 else ""
    return Html(drawn + join(_point(frame, x, one, curve.tone) for x, one in curve.points if math.isfinite(one.value)))


def _point(frame: Frame, x: float, one: Interval, tone: Tone) -> Html:
    across, (low, high) = frame.at_x(x), map(frame.at_y, one.ends)
    return Html(
        f"<g><title>{_tip(one)}</title>"
        f'<path class="whisker {tone}" d="M{across:.1f} {low:.1f}V{high:.1f}"/>'
        f'<circle class="dot {tone}" cx="{across:.1f}" cy="{frame.at_y(one.value):.1f}" r="3"/></g>'
    )


def _tip(one: Interval) -> Html:
    return escape(" · ".join(part for part in (one.name, one.said, one.note) if part))
