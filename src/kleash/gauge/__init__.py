"""How far has a model moved? Exact KL in both directions between a tuned model and its reference, with error bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kleash.gauge.measuring import measure as measure
    from kleash.gauge.measuring import measure_many as measure_many

__all__ = ["measure", "measure_many"]


def __getattr__(name: str) -> Any:
    """Import `measure` and `measure_many` when they are asked for: a result can be read without torch."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("kleash.gauge.measuring"), name)
    raise AttributeError(f"module 'kleash.gauge' has no attribute {name!r}")
