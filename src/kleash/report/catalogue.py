"""What a metric is called on a page, in the catalogue's words; a key it lacks stands for itself."""

from __future__ import annotations

from kleash.metrics import METRICS

HELD_OUT = "eval/"


def title(key: str) -> str:
    """Return a metric's name; the held-out evaluation's says so."""
    metric = METRICS.get(key.removeprefix(HELD_OUT))
    name = metric.title if metric else key
    return f"{name}, held out" if metric and key.startswith(HELD_OUT) else name


def unit(key: str) -> str:
    """Return a metric's unit, or nothing where the catalogue lacks it."""
    metric = METRICS.get(key.removeprefix(HELD_OUT))
    return metric.unit if metric else ""


def meaning(key: str) -> str:
    """Return what a metric's value says, or nothing where the catalogue lacks it."""
    metric = METRICS.get(key.removeprefix(HELD_OUT))
    return metric.meaning if metric else ""
