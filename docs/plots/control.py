"""Draw docs/images/control.svg and print the table of docs/control.md: `python docs/plots/control.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kleash.control.controller import Controller
from kleash.control.dual import Dual
from kleash.control.simulation import (
    IntegratingPlant,
    LeakyPlant,
    Plant,
    latent_kl,
    overshoot,
    tracking_error,
)
from kleash.control.target import Target
from kleash.control.ziegler import Ziegler

IMAGE = Path(__file__).parents[1] / "images" / "control.svg"
TARGET = 6.0
STARTS = {"a third of the right one": 0.05 / 3, "right": 0.05, "three times the right one": 0.15}
PLANTS: dict[str, IntegratingPlant | LeakyPlant] = {
    "integrating": IntegratingPlant(),
    "integrating, lag 0.76": IntegratingPlant(lag=0.76),
    "leaky": LeakyPlant(),
    "leaky, no lag": LeakyPlant(lag=0.0),
}
HORIZONS = np.geomspace(8, 8000, 25)
STEP_SIZES = np.geomspace(0.001, 1, 13)
NUM_SEEDS = 64

Curves = npt.NDArray[np.float64]
Maker = Callable[[float], Controller]


def target(beta: float) -> Target:
    """Return the default controller."""
    return Target(beta=beta, target_nats_per_sequence=TARGET)


def ziegler(horizon: float) -> Maker:
    """Return a maker of Ziegler's rule with this horizon."""
    return lambda beta: Ziegler(beta=beta, horizon=horizon, target_nats_per_sequence=TARGET)


def dual(step_size: float) -> Maker:
    """Return a maker of dual ascent with this step size."""
    return lambda beta: Dual(beta=beta, step_size=step_size, target_nats_per_sequence=TARGET, patience=10**6)


def curves(make: Maker, plant: Plant, beta: float, num_seeds: int = NUM_SEEDS) -> Curves:
    """Latent KL ``[num_seeds, 101]`` from one starting beta."""
    return latent_kl(lambda: make(beta), plant, num_steps=101, num_seeds=num_seeds)


def errors(make: Maker, plant: Plant, starts: list[float], num_seeds: int = NUM_SEEDS) -> list[float]:
    """Tracking error from each starting beta."""
    return [tracking_error(curves(make, plant, beta, num_seeds), TARGET) for beta in starts]


def pooled(values: list[float]) -> float:
    """Root mean square over the starting betas."""
    return math.sqrt(sum(value**2 for value in values) / len(values))


def best(family: Callable[[float], Maker], settings: Curves, plant: Plant, starts: list[float]) -> float:
    """Return the setting with the least tracking error, pooled over these starting betas."""
    return float(min(settings, key=lambda setting: pooled(errors(family(setting), plant, starts, 16))))


def print_tables() -> None:
    """Print both tables of docs/control.md as Markdown."""
    print("| plant | controller | pooled | " + " | ".join(f"start {name}" for name in STARTS) + " |")
    starts = list(STARTS.values())
    for name, plant in PLANTS.items():
        horizon = best(ziegler, HORIZONS, plant, starts)
        step_size = best(dual, STEP_SIZES, plant, starts)
        rows = {
            "`Target`": target,
            f"`Ziegler`, horizon {horizon:.0f}": ziegler(horizon),
            f"`Dual`, step size {step_size:.2g}": dual(step_size),
        }
        for label, make in rows.items():
            found = errors(make, plant, starts)
            cells = " | ".join(f"{value:.2f}" for value in [pooled(found), *found])
            print(f"| {name} | {label} | {cells} |")
        tuned = [best(ziegler, HORIZONS, plant, [beta]) for beta in starts]
        cells = " | ".join(
            f"{errors(ziegler(setting), plant, [beta])[0]:.2f} ({setting:.0f})"
            for setting, beta in zip(tuned, starts, strict=True)
        )
        print(f"| {name} | `Ziegler`, a horizon for each start | | {cells} |")
    print("\n| plant | gain 0.5 | gain 1 | gain 2 | last 20 of 45 | last 20 of 60 |")
    for name, plant in PLANTS.items():
        peaks = [overshoot(curves(target, replace(plant, gain=gain), 0.05), TARGET) for gain in (0.5, 1, 2)]
        ranges = []
        for end in (45, 60):
            means = [curves(target, plant, beta)[:, end - 20 : end].mean(axis=1) for beta in STARTS.values()]
            ranges.append(" / ".join(f"{m.min() / TARGET:.2f}-{m.max() / TARGET:.2f}" for m in means))
        print(f"| {name} | " + " | ".join(f"{peak:.2f}" for peak in peaks) + f" | {' | '.join(ranges)} |")


WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 190, 52, 74, 52
KL_RANGE = (0.1, 100.0)


def place(step: float, kl: float) -> str:
    """SVG coordinates inside a panel; KL on a log axis."""
    low, high = (math.log(bound) for bound in KL_RANGE)
    share = (math.log(min(max(kl, KL_RANGE[0]), KL_RANGE[1])) - low) / (high - low)
    return f"{step / 100 * WIDTH:.1f},{(1 - share) * HEIGHT:.1f}"


def line(values: Curves, style: str) -> str:
    """One curve of a panel."""
    return f'<polyline {style} points="{" ".join(place(step, kl) for step, kl in enumerate(values))}"/>'


def panel(title: str, plant: Plant, beta: float, horizon: float) -> str:
    """Target with its 10-90 % band over seeds, and Ziegler, on one plant from one start."""
    held, swung = curves(target, plant, beta), curves(ziegler(horizon), plant, beta)
    low, high = np.quantile(held, [0.1, 0.9], axis=0)
    band = [*enumerate(high), *reversed(list(enumerate(low)))]
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for kl in (0.1, 1, 10, 100):
        y = place(0, kl).split(",")[1]
        parts.append(f'<line x2="{WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="-6" y="{y}" dy="4" text-anchor="end">{kl:g}</text>')
    for step in (0, 50, 100):
        x = step / 100 * WIDTH
        parts.append(f'<text x="{x}" y="{HEIGHT + 15}" text-anchor="middle">{step}</text>')
    parts += [
        line(np.full(101, TARGET), 'fill="none" stroke="#333" stroke-dasharray="4 3"'),
        line(np.median(swung, axis=0), 'fill="none" stroke="#c4501b" stroke-width="1.6"'),
        f'<polygon fill="#1f6fb4" fill-opacity="0.2" points="{" ".join(place(*point) for point in band)}"/>',
        line(np.median(held, axis=0), 'fill="none" stroke="#1f6fb4" stroke-width="2"'),
        f'<text y="-7" font-weight="bold">{title}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT + 28}" text-anchor="middle">step</text>',
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 8}" text-anchor="end" fill="#c4501b">'
        f"Ziegler: horizon {horizon:.0f}</text>",
    ]
    return "".join(parts)


def draw() -> str:
    """Return the figure: two plants by two starting betas."""
    width, height = LEFT + 2 * (WIDTH + LEFT), TOP + 2 * (HEIGHT + GAP) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        "<title>Simulated KL under Target and under the best Ziegler rule</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">Latent KL, nats per sequence, by step (simulated, '
        f"{NUM_SEEDS} seeds)</text>",
        f'<text x="{LEFT}" y="40"><tspan fill="#1f6fb4">Target: median and 10-90 % band</tspan>'
        '<tspan dx="16" fill="#c4501b">Ziegler, horizon tuned to this plant and start: median</tspan>'
        f'<tspan dx="16">dashed: target {TARGET:g}</tspan></text>',
    ]
    for column, name in enumerate(("integrating", "leaky")):
        for row, start in enumerate(("right", "a third of the right one")):
            x, y = LEFT + column * (WIDTH + LEFT), TOP + row * (HEIGHT + GAP)
            horizon = best(ziegler, HORIZONS, PLANTS[name], [STARTS[start]])
            picture = panel(f"{name}, starting beta {start}", PLANTS[name], STARTS[start], horizon)
            parts.append(f'<g transform="translate({x},{y})">{picture}</g>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    print_tables()
    IMAGE.write_text(draw())
