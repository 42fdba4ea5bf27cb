"""Where a number falls on a chart: ranges, ticks and the frame that charts share. Units: SVG user units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kleash.report.markup import Html, escape, join
from kleash.report.wording import number

LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 24.0, 26.0


@dataclass(frozen=True)
class Size:
    """Width and height of a chart, margins included."""

    width: float
    height: float


WIDE = Size(480, 196)
SMALL = Size(310, 140)


@dataclass(frozen=True)
class Frame:
    """Maps data to positions inside a chart's margins.

    Attributes:
        x: first and last value on the horizontal axis.
        y: lowest and highest value on the vertical axis.
    """

    size: Size
    x: tuple[float, float]
    y: tuple[float, float]

    @property
    def right(self) -> float:
        """The plot's right edge."""
        return self.size.width - RIGHT

    @property
    def bottom(self) -> float:
        """The plot's lower edge."""
        return self.size.height - BOTTOM

    def at_x(self, value: float) -> float:
        """Return the horizontal position of a value; a range of one point sits in the middle."""
        low, high = self.x
        share = 0.5 if high == low else (value - low) / (high - low)
        return LEFT + share * (self.right - LEFT)

    def at_y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.y
        return self.bottom - (value - low) / (high - low) * (self.bottom - TOP)


def ticks(low: float, high: float, at_most: int) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten apart) inside a range, `at_most` of them."""
    if high <= low:
        return [low]
    step = _round_step((high - low) / at_most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def whole_ticks(low: float, high: float, at_most: int) -> list[float]:
    """Return round whole numbers inside a range: steps and counts have no fractions."""
    return [tick for tick in ticks(low, high, at_most) if abs(tick - round(tick)) < 1e-9]


def padded_range(values: Iterable[float], include: Sequence[float]) -> tuple[float, float]:
    """Return a range that holds the finite values with a little air; an end named in `include` has none."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min([*finite, *include], default=0.0), max([*finite, *include], default=1.0)
    if low == high:
        air = abs(low) * 0.1 or 1.0
        return (low if low in include else low - air, high + air)
    air = (high - low) * 0.08
    return (low if low in include else low - air, high if high in include else high + air)


def draw_frame(frame: Frame, unit: str, corner: str, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> Html:
    """Return the grid and the numbers on both axes.

    Args:
        frame: the chart's frame.
        unit: of the vertical axis, written above it.
        corner: what the horizontal axis counts, written where the axes meet; a short word.
        x_ticks: where the horizontal axis is numbered.
        y_ticks: where the vertical axis is numbered.
    """
    return join(
        [
            Html(f'<text class="unit" x="0" y="12">{escape(unit)}</text>'),
            *(_y_tick(frame, tick, y_ticks) for tick in y_ticks),
            Html(f'<path class="axis" d="M{LEFT:.1f} {frame.bottom:.1f}H{frame.right:.1f}"/>'),
            _tick_label(LEFT - 8, frame.size.height - 8, "end", corner),
            *(_x_tick(frame, tick, x_ticks) for tick in x_ticks),
        ]
    )


def _y_tick(frame: Frame, tick: float, all_ticks: Sequence[float]) -> Html:
    y = frame.at_y(tick)
    grid = f'<path class="rule" d="M{LEFT:.1f} {y:.1f}H{frame.right:.1f}"/>'
    return Html(grid + _tick_label(LEFT - 8, y + 3.5, "end", tick_text(tick, all_ticks)))


def _x_tick(frame: Frame, tick: float, all_ticks: Sequence[float]) -> Html:
    return _tick_label(frame.at_x(tick), frame.size.height - 8, "middle", tick_text(tick, all_ticks))


def _tick_label(x: float, y: float, anchor: str, text: str) -> Html:
    return Html(f'<text class="tick" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')


def tick_text(tick: float, all_ticks: Sequence[float]) -> str:
    """Return a tick in as many decimals as its neighbours need, so that a column of them lines up."""
    step = min((abs(b - a) for a, b in itertools.pairwise(all_ticks)), default=abs(tick) or 1)
    if not 1e-4 <= step < 1e6:
        return number(tick)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{tick + 0.0:,.{decimals}f}".replace("-", "−")


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
