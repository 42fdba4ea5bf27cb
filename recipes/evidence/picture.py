"""Draws a recipe's picture: panels of lines and points as one SVG file that needs nothing but itself.

Axes and frames are those of Kleash's pages (`kleash.report.axes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kleash.report.axes import Frame, Size, draw_frame, padded_range, ticks
from kleash.report.markup import Html, escape, join

PANEL = Size(400, 230)
GAP, TOP, LEGEND_ROW = 28, 12, 22
COLORS = ("#b3352b", "#c98a1b", "#23648f", "#555b64")
"""From a short leash's opposite to a short one, and grey for the reference."""
MORE_COLORS = ("#4b7a3f", "#7a4f94")
"""For what is none of these."""
STYLE = (
    "text{font:12px sans-serif;fill:#333}.tick,.unit{font-size:11px;fill:#666}.title{font-weight:bold}"
    ".rule{stroke:#e5e2db;fill:none}.axis{stroke:#888;fill:none}"
)
LEGEND_LETTER = 6.6
"""Width of a letter in a legend, about."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Mark:
    """Points of one colour, in the order in which they are joined.

    Attributes:
        points: (x, y).
        color: one of `COLORS`.
        kind: "line", "dashed", "dots" or "rings".
        x_intervals: lowest and highest x of each point; empty for none.
        y_intervals: the same for y.
    """

    points: Sequence[Point]
    color: str
    kind: Literal["line", "dashed", "dots", "rings"] = "line"
    x_intervals: Sequence[Point] = ()
    y_intervals: Sequence[Point] = ()


@dataclass(frozen=True)
class Panel:
    """One chart: its title, what its axes are in, and what is drawn on it. `include` holds values that y must reach."""

    title: str
    x_unit: str
    y_unit: str
    marks: Sequence[Mark]
    include: Sequence[float] = ()


def svg(title: str, legend: Sequence[tuple[str, str]], panels: Sequence[Panel], columns: int = 2) -> str:
    """Return the file: a legend of (words, colour) above the panels, row by row."""
    width = columns * PANEL.width + (columns - 1) * GAP + 2 * GAP
    top = TOP + LEGEND_ROW + GAP
    height = top + math.ceil(len(panels) / columns) * (PANEL.height + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        _legend(legend),
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        x, y = GAP + column * (PANEL.width + GAP), top + row * (PANEL.height + GAP)
        parts.append(f'<g transform="translate({x:g},{y:g})">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(entries: Sequence[tuple[str, str]]) -> Html:
    x, drawn = float(GAP), []
    for words, color in entries:
        drawn.append(Html(f'<circle cx="{x + 5:.0f}" cy="{TOP + 8}" r="5" fill="{color}"/>'))
        drawn.append(Html(f'<text x="{x + 16:.0f}" y="{TOP + 12}">{escape(words)}</text>'))
        x += 16 + LEGEND_LETTER * len(words) + 24
    return join(drawn)


def _panel(panel: Panel) -> Html:
    frame = _frame(panel)
    drawing = [
        Html(f'<text class="title" y="-6">{escape(panel.title)}</text>'),
        draw_frame(frame, panel.y_unit, panel.x_unit, ticks(*frame.x, 6), ticks(*frame.y, 5)),
        *(_mark(frame, mark) for mark in panel.marks),
    ]
    return join(drawing)


def _frame(panel: Panel) -> Frame:
    """Fit both axes to all that is drawn; x begins at 0 where nothing is below it."""
    across = [x for mark in panel.marks for x in (*_firsts(mark.points), *_ends(mark.x_intervals))]
    up = [y for mark in panel.marks for y in (*_seconds(mark.points), *_ends(mark.y_intervals))]
    return Frame(PANEL, (min(0.0, *across), max(across)), padded_range(up, panel.include))


def _firsts(points: Sequence[Point]) -> list[float]:
    return [x for x, _ in points]


def _seconds(points: Sequence[Point]) -> list[float]:
    return [y for _, y in points]


def _ends(intervals: Sequence[Point]) -> list[float]:
    return [end for interval in intervals for end in interval]


def _mark(frame: Frame, mark: Mark) -> Html:
    """Draw intervals first, so that points lie on them."""
    drawn = []
    for (_, y), (low, high) in zip(mark.points, mark.x_intervals, strict=False):
        drawn.append(_line(frame, [(low, y), (high, y)], mark.color, width=1.5))
    for (x, _), (low, high) in zip(mark.points, mark.y_intervals, strict=False):
        drawn.append(_line(frame, [(x, low), (x, high)], mark.color, width=1.5))
    if mark.kind in ("line", "dashed"):
        drawn.append(_line(frame, mark.points, mark.color, width=1.4, dashed=mark.kind == "dashed"))
    else:
        fill = mark.color if mark.kind == "dots" else "#fff"
        drawn += [_dot(frame, point, mark.color, fill) for point in mark.points]
    return join(drawn)


def _line(frame: Frame, points: Sequence[Point], color: str, width: float, dashed: bool = False) -> Html:
    places = " ".join(f"{frame.at_x(x):.1f},{frame.at_y(y):.1f}" for x, y in points)
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return Html(f'<polyline fill="none" stroke="{color}" stroke-width="{width:g}"{dashes} points="{places}"/>')


def _dot(frame: Frame, point: Point, color: str, fill: str) -> Html:
    place = f'cx="{frame.at_x(point[0]):.1f}" cy="{frame.at_y(point[1]):.1f}"'
    return Html(f'<circle {place} r="4" fill="{fill}" stroke="{color}" stroke-width="1.5"/>')
