"""Charts as inline SVG: nothing to load, readable without colour, with words for those who cannot see them.

Colours are classes, set once in style.css for light and dark pages: `reward`, `drift` and `quiet`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kleash.report.axes import LEFT, TOP, WIDE, Frame, Size, draw_frame, padded_range, ticks, whole_ticks
from kleash.report.markup import Html, escape, join
from kleash.report.wording import number, with_error

Tone = Literal["reward", "drift", "quiet"]
Stroke = Literal["solid", "dashed", "dots"]
Point = tuple[int, float, float | None]  # step, value, standard error
MOST_READOUTS = 100
NOTHING = Html('<p class="note">Not recorded in this run.</p>')


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        label: its name in the legend.
        points: (step, value, standard error or None), by step; NaN and infinities leave a marked gap.
        tone: "reward" for what is gained, "drift" for what it costs, "quiet" for the rest.
        stroke: "solid", "dashed", or "dots" for what is measured now and then.
    """

    label: str
    points: Sequence[Point]
    tone: Tone = "reward"
    stroke: Stroke = "solid"


@dataclass(frozen=True)
class Target:
    """A wanted value and the band around it.

    Attributes:
        label: its name in the legend.
        points: (step, value), by step; a target may move.
        tolerance: half the band's width, as a fraction of the value.
    """

    label: str
    points: Sequence[tuple[int, float]]
    tolerance: float = 0.25


@dataclass(frozen=True)
class Shade:
    """Steps that are shaded, both ends included.

    Attributes:
        first: the first of them.
        last: the last of them; None for the end of the chart.
        label: why, such as an alarm's name.
        severity: "warning" or "critical", which sets the colour.
    """

    first: int
    last: int | None
    label: str
    severity: str


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    unit: str = "",
    target: Target | None = None,
    steps: tuple[int, int] | None = None,
    include: Sequence[float] = (),
    note: str = "",
    size: Size = WIDE,
    shaded: Sequence[Shade] = (),
) -> Html:
    """Return a figure of values over steps, each with a band of one standard error.

    Args:
        title: what the chart shows.
        series: its lines; those without points are left out, and a chart without any says so.
        unit: of the vertical axis.
        target: a line and a band to hold the values against.
        steps: first and last step of the horizontal axis, so that charts line up; None: those of the series.
        include: values that the vertical axis must reach, such as 0.
        note: a sentence under the chart.
        size: of the drawing.
        shaded: steps to shade, such as those under an alarm.
    """
    series = [one for one in series if one.points]
    if not series:
        return figure(title, Html(), NOTHING, note)
    band = target if target is not None and target.points else None
    frame = _line_frame(series, band, steps, include, size)
    drawing = [
        draw_frame(frame, unit, "step", whole_ticks(*frame.x, 6), ticks(*frame.y, 5 if size == WIDE else 3)),
        *(_shade(frame, shade) for shade in shaded),
        _target(frame, band) if band else Html(),
        *(_error_band(frame, one) for one in series),
        *(_line(frame, one) for one in series),
        *(_broken(frame, one) for one in series),
        _readouts(frame, series, band),
    ]
    words = _describe(series, band, unit, shaded)
    legend = _legend(series, band, shaded) if len(series) > 1 or band or shaded else Html()
    return figure(title, legend, svg(size, title, words, join(drawing)), note)


def histogram(
    title: str,
    values: Iterable[float],
    *,
    unit: str = "",
    bins: int = 20,
    count_of: str = "replies",
    tone: Tone = "drift",
    note: str = "",
) -> Html:
    """Return a figure of how often values fall where, 0 included.

    Args:
        title: what the chart shows.
        values: those that are not finite are not drawn but counted in the note.
        unit: of the horizontal axis.
        bins: how many bars there may be, of equal width.
        count_of: what a value belongs to, in the plural.
        tone: colour of the bars.
        note: a sentence under the chart.
    """
    values = list(values)
    finite = [value for value in values if math.isfinite(value)]
    lost = len(values) - len(finite)
    if lost:
        note = f"{note} {lost} of {len(values)} values are not finite and are not drawn.".strip()
    if not finite:
        return figure(title, Html(), NOTHING, note)
    low, high = min([0.0, *finite]), max([0.0, *finite])
    high = high if high > low else low + 1.0
    width = (high - low) / bins
    counts = [0] * bins
    for value in finite:
        counts[min(bins - 1, int((value - low) / width))] += 1
    frame = Frame(WIDE, (low, high), (0.0, max(counts) * 1.08))
    bars = (
        _bar(frame, low + index * width, low + (index + 1) * width, count, unit, tone)
        for index, count in enumerate(counts)
        if count
    )
    mean = sum(finite) / len(finite)
    words = (
        f"Histogram of {len(finite)} {count_of}: from {number(min(finite))} to {number(max(finite))}, "
        f"mean {number(mean)} {unit}."
    )
    drawing = join(
        [draw_frame(frame, f"{count_of} by {unit}", "", ticks(low, high, 6), whole_ticks(*frame.y, 5)), *bars]
    )
    return figure(title, Html(), svg(WIDE, title, words, drawing), note)


def figure(title: str, legend: Html, drawing: Html, note: str) -> Html:
    """Return a drawing under its title and legend, with a note below it where there is one."""
    tail = f'<p class="note">{escape(note)}</p>' if note else ""
    return Html(
        f'<figure class="chart"><figcaption><span class="name">{escape(title)}</span>{legend}</figcaption>'
        f"{drawing}{tail}</figure>"
    )


def svg(size: Size, title: str, words: str, drawing: Html) -> Html:
    """Return a drawing that says in words what it shows."""
    return Html(
        f'<svg role="img" viewBox="0 0 {size.width:g} {size.height:g}"><title>{escape(title)}</title>'
        f"<desc>{escape(words)}</desc>{drawing}</svg>"
    )


def _line_frame(
    series: Sequence[Series],
    target: Target | None,
    steps: tuple[int, int] | None,
    include: Sequence[float],
    size: Size,
) -> Frame:
    """Fit both axes to all that will be drawn."""
    points = [point for one in series for point in one.points]
    reach = [value + side * (error or 0.0) for _, value, error in points for side in (-1, 1)]
    if target:
        reach += [value * (1 + side * target.tolerance) for _, value in target.points for side in (-1, 1)]
    x = steps or (min(step for step, _, _ in points), max(step for step, _, _ in points))
    return Frame(size, x, padded_range(reach, include))


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Cut a series where a value is not finite: a line is never drawn across what broke."""
    grouped = itertools.groupby(points, key=lambda point: math.isfinite(point[1]))
    return [list(run) for finite, run in grouped if finite]


def _path(places: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _line(frame: Frame, series: Series) -> Html:
    drawn = []
    for run in _runs(series.points):
        places = [(frame.at_x(step), frame.at_y(value)) for step, value, _ in run]
        if len(places) > 1:
            drawn.append(Html(f'<path class="line {series.tone} {series.stroke}" d="M{_path(places)}"/>'))
        if len(places) == 1 or series.stroke == "dots":
            drawn += [Html(f'<circle class="dot {series.tone}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>') for x, y in places]
    return join(drawn)


def _error_band(frame: Frame, series: Series) -> Html:
    drawn = []
    for run in _runs(series.points):
        known = [(step, value, error) for step, value, error in run if error is not None and math.isfinite(error)]
        upper = [(frame.at_x(step), frame.at_y(value + error)) for step, value, error in known]
        lower = [(frame.at_x(step), frame.at_y(value - error)) for step, value, error in reversed(known)]
        if len(known) == 1:
            drawn.append(Html(f'<path class="whisker {series.tone}" d="M{_path(upper + lower)}"/>'))
        elif known:
            drawn.append(Html(f'<path class="band {series.tone}" d="M{_path(upper + lower)}Z"/>'))
    return join(drawn)


def _broken(frame: Frame, series: Series) -> Html:
    """Mark each value that is not finite on the upper edge."""
    return join(
        Html(
            f'<text class="broken" text-anchor="middle" x="{frame.at_x(step):.1f}" y="{TOP + 4:.1f}">×'
            f"<title>{escape(f'step {step}: {series.label} is {number(value)}')}</title></text>"
        )
        for step, value, _ in series.points
        if not math.isfinite(value)
    )


def _target(frame: Frame, target: Target) -> Html:
    """Draw the target and its band; a single point stands for the whole width."""
    places = [(frame.at_x(step), value) for step, value in target.points]
    if len(places) == 1:
        places = [(edge, places[0][1]) for edge in (LEFT, frame.right)]

    def scaled(factor: float) -> list[tuple[float, float]]:
        return [(x, frame.at_y(value * factor)) for x, value in places]

    around = scaled(1 + target.tolerance) + scaled(1 - target.tolerance)[::-1]
    return Html(
        f'<path class="target-band" d="M{_path(around)}Z"/><path class="target-line" d="M{_path(scaled(1.0))}"/>'
    )


def _shade(frame: Frame, shade: Shade) -> Html:
    """Draw a shade with a bar along its top, at least wide enough to be seen."""
    low, high = frame.x
    left = frame.at_x(min(max(shade.first, low), high))
    right = frame.at_x(high if shade.last is None else min(max(shade.last, low), high))
    right = max(right, left + 3)
    end = "the end" if shade.last is None else shade.last
    title = escape(f"{shade.label} ({shade.severity}): steps {shade.first} to {end}")
    return Html(
        f'<g class="shade {escape(shade.severity)}"><rect x="{left:.1f}" y="{TOP:.1f}" width="{right - left:.1f}" '
        f'height="{frame.bottom - TOP:.1f}"><title>{title}</title></rect>'
        f'<path d="M{left:.1f} {TOP:.1f}H{right:.1f}"/></g>'
    )


def _readouts(frame: Frame, series: Sequence[Series], target: Target | None) -> Html:
    """Columns that show a step's numbers under the pointer; a long run has one for every n-th step."""
    values = [(one, {step: (value, error) for step, value, error in one.points}) for one in series]
    wanted = dict(target.points) if target else {}
    steps = sorted({step for _, found in values for step in found})
    steps = steps[:: math.ceil(len(steps) / MOST_READOUTS)]
    middles = [(frame.at_x(a) + frame.at_x(b)) / 2 for a, b in itertools.pairwise(steps)]
    edges = [LEFT - 6, *middles, frame.right + 6]
    columns = []
    for step, left, right in zip(steps, edges, edges[1:], strict=False):
        shown = [(one, *found[step]) for one, found in values if step in found]
        parts = [f"{one.label} {with_error(value, error)}" for one, value, error in shown]
        if target and step in wanted:
            parts.append(f"{target.label} {number(wanted[step])}")
        marks = [(one.tone, frame.at_y(value)) for one, value, _ in shown if math.isfinite(value)]
        columns.append(_readout(frame, step, (left, right), " · ".join([f"step {step}", *parts]), marks))
    return join(columns)


def _readout(
    frame: Frame, step: int, column: tuple[float, float], text: str, marks: Sequence[tuple[Tone, float]]
) -> Html:
    """One column: hidden until the pointer is over it."""
    (left, right), x, text = column, frame.at_x(step), escape(text)
    dots = join(Html(f'<circle class="dot {tone}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>') for tone, y in marks)
    return Html(
        f'<g class="hit"><rect x="{left:.1f}" y="0" width="{right - left:.1f}" height="{frame.bottom:.1f}">'
        f'<title>{text}</title></rect><path d="M{x:.1f} {TOP:.1f}V{frame.bottom:.1f}"/>{dots}'
        f'<text text-anchor="end" x="{frame.right:.1f}" y="12">{text}</text></g>'
    )


def _bar(frame: Frame, left: float, right: float, count: int, unit: str, tone: Tone) -> Html:
    x, y = frame.at_x(left) + 0.75, frame.at_y(count)
    text = escape(f"{number(left)} to {number(right)} {unit}: {count}")
    return Html(
        f'<rect class="bar {tone}" x="{x:.1f}" y="{y:.1f}" width="{frame.at_x(right) - x - 0.75:.1f}" '
        f'height="{frame.bottom - y:.1f}"><title>{text}</title></rect>'
    )


def _legend(series: Sequence[Series], target: Target | None, shaded: Sequence[Shade]) -> Html:
    entries = [Html(f'<span class="key {one.tone} {one.stroke}">{escape(one.label)}</span>') for one in series]
    if target:
        label = f"{target.label} ± {target.tolerance:.0%}".replace("%", " %")
        entries.append(Html(f'<span class="key target">{escape(label)}</span>'))
    worst = next((kind for kind in ("critical", "warning") if kind in {shade.severity for shade in shaded}), None)
    if worst is not None:
        entries.append(Html(f'<span class="key shade {worst}">alarm</span>'))
    return Html(f'<span class="legend">{join(entries)}</span>')


def _describe(series: Sequence[Series], target: Target | None, unit: str, shaded: Sequence[Shade]) -> str:
    """Say in words what the lines show."""
    said = []
    for one in series:
        (first, start, _), (last, end, error) = one.points[0], one.points[-1]
        values = [value for _, value, _ in one.points if math.isfinite(value)]
        said.append(
            f"{one.label}: from {number(start)} at step {first} to {with_error(end, error)} at step {last}"
            + (f", lowest {number(min(values))}, highest {number(max(values))}." if values else ".")
        )
    if target:
        said.append(f"{target.label}: {number(target.points[-1][1])} at the end.")
    for shade in shaded:
        until = "the end" if shade.last is None else f"step {shade.last}"
        said.append(f"{shade.label} ({shade.severity}) from step {shade.first} to {until}.")
    return " ".join([f"Line chart over steps, in {unit}." if unit else "Line chart over steps.", *said])
