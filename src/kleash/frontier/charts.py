"""Charts of a frontier as inline SVG: reward over drift, gold against proxy, residuals.

The axis of drift is spaced by sqrt(KL), as the forms are, and numbered in nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kleash.frontier.analysis import Strand
from kleash.frontier.curves import shifts
from kleash.frontier.fits import Fit
from kleash.frontier.points import AT_START, Point, RewardKind
from kleash.frontier.words import nats, strand_title
from kleash.report.axes import LEFT, TOP, WIDE, Frame, Size, draw_frame, padded_range, ticks
from kleash.report.charts import NOTHING, Tone, figure, svg
from kleash.report.markup import Html, escape, join
from kleash.report.wording import number, with_error

TALL = Size(WIDE.width, 260)
TONES: dict[RewardKind, Tone] = {"gold": "drift", "proxy": "reward"}
NATS = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
TICKS_APART = 34.0
"""Least distance between two numbers on the axis of drift."""
HOLLOW = "fill:var(--paper);stroke:var(--tone);stroke-width:1.5"
RING = "fill:none;stroke:var(--ink);stroke-width:1.25"
Places = Sequence[tuple[float, float]]


def heights_of(points: Sequence[Point], by: RewardKind) -> tuple[float, float]:
    """Return a range of rewards with room for all intervals, so that charts of one reward line up."""
    rewards = [reward for point in points if (reward := point.reward(by)) is not None]
    return padded_range((end for one in rewards for end in one.ends), ())


def drift_chart(strand: Strand, heights: tuple[float, float], chosen: Point | None) -> Html:
    """Return a figure of one method's reward over drift: points with 95 % intervals, fit, curve, peak and front.

    Args:
        strand: what to draw.
        heights: first and last value of the axis of rewards.
        chosen: the point to ring.
    """
    furthest = math.sqrt(max(max(point.kl.ends[1] for point in strand.points), AT_START))
    frame = Frame(TALL, (0.0, furthest * 1.02), heights)
    moved = shifts(strand.points, strand.by)
    places = [(point, _place(frame, point, strand.by, moved[point.source])) for point in strand.points]
    drawing = [
        draw_frame(frame, f"{strand.by} reward", "nats", [], ticks(*heights, 5)),
        _drift_ticks(frame),
        _peak_band(frame, strand),
        _smooth(frame, strand),
        _front(frame, strand, dict(places)),
        _fit_line(frame, strand),
        *(_point(frame, point, place, strand.by, moved[point.source], point == chosen) for point, place in places),
    ]
    return figure(
        strand_title(strand), _legend(strand), svg(TALL, strand_title(strand), _describe(strand), join(drawing)), ""
    )


def against_chart(title: str, points: Sequence[Point], note: str) -> Html:
    """Return a figure of gold over proxy, each source's points joined in the order in which they were reached.

    A line that bends down has gone where the proxy rises and gold falls.
    """
    known = [point for point in points if point.proxy and point.gold]
    if not known:
        return figure(title, Html(), NOTHING, note)
    x = padded_range((end for point in known if point.proxy for end in point.proxy.ends), ())
    y = padded_range((end for point in known if point.gold for end in point.gold.ends), ())
    frame = Frame(TALL, x, y)
    drawn = [draw_frame(frame, "gold reward", "proxy", ticks(*x, 6), ticks(*y, 5))]
    for source in dict.fromkeys(point.source for point in known):
        own = sorted((point for point in known if point.source == source), key=lambda point: point.at)
        line = [(frame.at_x(p.proxy.value), frame.at_y(p.gold.value)) for p in own if p.proxy and p.gold]
        drawn += [_path("line dots quiet", line), *(_against_point(frame, point) for point in own)]
    words = "Gold reward over proxy reward. " + "; ".join(_tip(point) for point in known) + "."
    return figure(title, Html(), svg(TALL, title, words, join(drawn)), note)


def residual_chart(strand: Strand, fit: Fit) -> Html:
    """Return a figure of (reward - fit) / error over drift; two in three lie within 1 where all is right."""
    title = f"Residuals: {strand_title(strand)}"
    most = max(3.0, float(np.abs(fit.residuals).max()) * 1.1)
    frame = Frame(WIDE, (0.0, float(fit.curve.d.max()) * 1.02), (-most, most))
    band = _box(frame, (LEFT, frame.right), (frame.at_y(1), frame.at_y(-1)), "target-band")
    dots = [
        Html(f'<circle class="dot {TONES[strand.by]}" cx="{frame.at_x(d):.1f}" cy="{frame.at_y(r):.1f}" r="3"/>')
        for d, r in zip(fit.curve.d, fit.residuals, strict=True)
    ]
    words = "Residuals in standard errors: " + ", ".join(number(float(one)) for one in fit.residuals) + "."
    drawing = [
        draw_frame(frame, "standard errors", "nats", [], ticks(-most, most, 5)),
        _drift_ticks(frame),
        band,
        *dots,
    ]
    return figure(title, Html(), svg(WIDE, title, words, join(drawing)), "")


def _place(frame: Frame, point: Point, by: RewardKind, moved: float) -> tuple[float, float]:
    reward = point.reward(by)
    height = math.nan if reward is None else reward.value + moved
    return frame.at_x(math.sqrt(max(point.kl.value, 0.0))), frame.at_y(height)


def _drift_ticks(frame: Frame) -> Html:
    """Number the axis in nats, at round ones that are far enough apart."""
    drawn: list[Html] = []
    last = -math.inf
    for value in NATS:
        x = frame.at_x(math.sqrt(value))
        if x > frame.right + 1 or x - last < TICKS_APART:
            continue
        last = x
        place = f'x="{x:.1f}" y="{frame.size.height - 8:.1f}"'
        drawn.append(Html(f'<text class="tick" text-anchor="middle" {place}>{value:g}</text>'))
    return join(drawn)


def _peak_band(frame: Frame, strand: Strand) -> Html:
    """Shade the peak's interval: of the curve without a form, else of the fit."""
    if strand.smooth is not None:
        low, high = strand.smooth.peak_kl
    elif strand.fit is not None:
        low, high = strand.fit.peak.kl.low, strand.fit.peak.kl.high
    else:
        return Html()
    left, right = (
        min(frame.at_x(math.sqrt(end)), frame.right) if math.isfinite(end) else frame.right for end in (low, high)
    )
    box = _box(frame, (left, max(right, left + 1)), (TOP, frame.bottom), "target-band")
    end = nats(high) if math.isfinite(high) else "beyond the data"
    return Html(f"<g><title>{escape(f'peak, 95 %: {nats(low)} to {end} nats')}</title>{box}</g>")


def _smooth(frame: Frame, strand: Strand) -> Html:
    """Draw the curve without a form within the frame, and its 95 % band."""
    curve = strand.smooth
    if curve is None:
        return Html()
    low, high = frame.y
    across = [frame.at_x(float(d)) for d in curve.d]
    ends = [np.clip(curve.reward + side * 1.96 * curve.stderr, low, high) for side in (1, -1)]
    upper, lower = ([frame.at_y(float(y)) for y in one] for one in ends)
    around = [*zip(across, upper, strict=True), *reversed(list(zip(across, lower, strict=True)))]
    middle = [(x, frame.at_y(float(y))) for x, y in zip(across, curve.reward, strict=True) if low <= y <= high]
    tone = TONES[strand.by]
    return join([Html(f'<path class="band {tone}" d="M{_joined(around)}Z"/>'), _path(f"line dashed {tone}", middle)])


def _fit_line(frame: Frame, strand: Strand) -> Html:
    if strand.fit is None:
        return Html()
    d = np.linspace(0, strand.fit.curve.d.max(), 120)
    heights = strand.fit.value(d)
    inside = [
        (frame.at_x(float(x)), frame.at_y(float(y)))
        for x, y in zip(d, heights, strict=True)
        if frame.y[0] <= y <= frame.y[1]
    ]
    return _path(f"line {TONES[strand.by]}", inside)


def _front(frame: Frame, strand: Strand, places: dict[Point, tuple[float, float]]) -> Html:
    """Draw the front as steps: what can be had up to a KL."""
    corners: list[tuple[float, float]] = []
    best = math.inf
    for point in strand.front:
        x, y = places[point]
        if y < best:
            corners += [(x, best), (x, y)] if corners else [(x, y)]
            best = y
    return _path("line quiet", [*corners, (frame.right, best)] if corners else [])


def _point(frame: Frame, point: Point, place: tuple[float, float], by: RewardKind, moved: float, ringed: bool) -> Html:
    reward = point.reward(by)
    if reward is None:
        return Html()
    (x, y), tone = place, TONES[by]
    left, right = (frame.at_x(math.sqrt(max(end, 0.0))) for end in point.kl.ends)
    low, high = (frame.at_y(end + moved) for end in reward.ends)
    style = f' style="{HOLLOW}"' if point.alarms else ""
    ring = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" style="{RING}"/>' if ringed else ""
    return Html(
        f"<g><title>{escape(_tip(point))}</title>"
        f'<path class="whisker {tone}" d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}"/>'
        f'<circle class="dot {tone}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"{style}/>{ring}</g>'
    )


def _against_point(frame: Frame, point: Point) -> Html:
    if point.proxy is None or point.gold is None:
        return Html()
    x, y = frame.at_x(point.proxy.value), frame.at_y(point.gold.value)
    (left, right), (low, high) = map(frame.at_x, point.proxy.ends), map(frame.at_y, point.gold.ends)
    style = f' style="{HOLLOW}"' if point.alarms else ""
    return Html(
        f"<g><title>{escape(_tip(point))}</title>"
        f'<path class="whisker drift" d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}"/>'
        f'<circle class="dot drift" cx="{x:.1f}" cy="{y:.1f}" r="3.5"{style}/></g>'
    )


def _legend(strand: Strand) -> Html:
    tone = TONES[strand.by]
    entries = [("points, 95 %", f"{tone} dots")]
    entries += [(strand.fit.form.formula, f"{tone} solid")] if strand.fit else []
    entries += [("without a form", f"{tone} dashed")] if strand.smooth else []
    entries += [("front", "quiet solid")] if strand.front else []
    entries += [("peak, 95 %", "target")] if strand.fit or strand.smooth else []
    keys = join(Html(f'<span class="key {kind}">{escape(label)}</span>') for label, kind in entries)
    return Html(f'<span class="legend">{keys}</span>')


def _describe(strand: Strand) -> str:
    return f"{strand.by} reward over KL, {strand.method}. " + "; ".join(_tip(point) for point in strand.points) + "."


def _tip(point: Point) -> str:
    parts = [point.name, f"KL {with_error(point.kl.value, point.kl.stderr)} nats"]
    parts += [f"gold {with_error(point.gold.value, point.gold.stderr)}"] if point.gold else []
    parts += [f"proxy {with_error(point.proxy.value, point.proxy.stderr)}"] if point.proxy else []
    parts += [f"under {', '.join(point.alarms)}"] if point.alarms else []
    return " · ".join(parts)


def _box(frame: Frame, across: tuple[float, float], down: tuple[float, float], kind: str) -> Html:
    (left, right), (top, bottom) = across, down
    return Html(f'<path class="{kind}" d="M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"/>')


def _joined(places: Places) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _path(kind: str, places: Places) -> Html:
    return Html(f'<path class="{kind}" d="M{_joined(places)}"/>' if len(places) > 1 else "")
