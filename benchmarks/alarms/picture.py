"""Draws docs/images/alarms.svg: for each set of rules its false alarms and what it catches of the KL's faults."""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.alarms.measure import KLEASH, FalseAlarms, Rate
from benchmarks.alarms.nulls import KINDS, SCRIPTED
from benchmarks.alarms.published import PUBLISHED
from benchmarks.alarms.results import Results
from benchmarks.alarms.scenarios import SCENARIOS

LEFT, WIDTH, GAP, ROW, TOP = 176, 200, 40, 34, 84
RATES = (0.01, 100.0)
"""Ends of the axis of rates, per 1,000 steps; less is drawn at its lower end."""
COLORS = {"independent": "#1f6fb4", "ar": "#c4501b", "real": "#777"}
TITLES = {"independent": "independent noise", "ar": "AR(0.9) noise", "real": "a real run, resampled"}
OFFSETS = {"independent": -8, "ar": 0, "real": 8}
SHARES = {"ramp_100": "KL doubles in 100 steps:|spoken of before 2x", "spike_4": "KL four-fold for 5 steps:|within 3"}

Place = Callable[[float], float]


def svg(results: Results) -> str:
    """Return the picture."""
    sets = (KLEASH, *PUBLISHED)
    width, height = LEFT + 3 * (WIDTH + GAP), TOP + ROW * len(sets) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        "<title>False alarms and detection of Kleash's and published rules</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        _legend(),
    ]
    for row, rules in enumerate(sets):
        weight = ' font-weight="bold"' if rules == KLEASH else ""
        parts.append(f'<text x="{LEFT - 12}" y="{_y(row) + 4}" text-anchor="end"{weight}>{rules}</text>')
    marks = {0: _rates(results, sets)} | {
        column: _shares(results, sets, name) for column, name in enumerate(SHARES, start=1)
    }
    parts.append(_panel(0, "false alarms in 1,000 steps|(warnings and critical)", _log, (0.01, 0.1, 1, 10, 100)))
    for column, title in enumerate(SHARES.values(), start=1):
        parts.append(_panel(column, title, _linear, (0, 0.5, 1)))
    parts += [f'<g transform="translate({_x(column)},0)">{mark}</g>' for column, mark in marks.items()]
    return "\n".join([*parts, "</svg>", ""])


def _x(column: int) -> int:
    return LEFT + column * (WIDTH + GAP)


def _y(row: int) -> int:
    return TOP + ROW * row + ROW // 2


def _log(rate: float) -> float:
    low, high = map(math.log, RATES)
    return WIDTH * (math.log(min(max(rate, RATES[0]), RATES[1])) - low) / (high - low)


def _linear(share: float) -> float:
    return WIDTH * share


def _legend() -> str:
    parts = []
    for number, kind in enumerate(KINDS):
        x = LEFT + 170 * number
        parts.append(f'<circle cx="{x + 6}" cy="18" r="5" fill="{COLORS[kind]}"/>')
        parts.append(f'<text x="{x + 18}" y="22">{TITLES[kind]}</text>')
    return "".join(parts)


def _panel(column: int, title: str, place: Place, ticks: tuple[float, ...]) -> str:
    """Return a panel's frame, its title of two lines and its axis."""
    bottom = TOP + ROW * (len(PUBLISHED) + 1)
    parts = [f'<rect y="{TOP}" width="{WIDTH}" height="{bottom - TOP}" fill="none" stroke="#999"/>']
    for line, words in enumerate(title.split("|")):
        parts.append(f'<text y="{TOP - 24 + 15 * line}" font-weight="bold">{words}</text>')
    for tick in ticks:
        x = place(tick)
        label = f"{tick:g}" if place is _log else f"{100 * tick:.0f} %"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    return f'<g transform="translate({_x(column)},0)">{"".join(parts)}</g>'


def _rates(results: Results, sets: tuple[str, ...]) -> str:
    """Return a dot and its 95 % interval for each set of rules and kind of noise."""
    parts = []
    for row, rules in enumerate(sets):
        for kind in KINDS:
            y = _y(row) + OFFSETS[kind]
            rate = _all(results.false_alarms[kind][rules])
            low, high = map(_log, rate.interval)
            style = f'stroke="{COLORS[kind]}" stroke-width="2"'
            parts.append(f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" {style}/>')
            parts.append(_dot(_log(rate.per_thousand), y, kind, f"{rules}: {rate.per_thousand:.2f} in 1,000 steps"))
    return "".join(parts)


def _all(found: FalseAlarms) -> Rate:
    return Rate(sum(found.said.values()), found.steps)


def _shares(results: Results, sets: tuple[str, ...], name: str) -> str:
    """Return a dot for the share of a fault that each set of rules speaks of in time; none for those blind to it."""
    parts = []
    for row, rules in enumerate(sets):
        for kind in SCRIPTED:
            found = results.detections[kind][name][rules]
            share = found.caught_before(SCENARIOS[name].deadline)
            if not found.blind:
                parts.append(_dot(_linear(share), _y(row) + OFFSETS[kind], kind, f"{rules}: {100 * share:.0f} %"))
    return "".join(parts)


def _dot(x: float, y: int, kind: str, words: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{COLORS[kind]}"><title>{words}</title></circle>'
