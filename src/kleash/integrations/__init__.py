"""Kleash inside other people's trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kleash.integrations.callback import KleashCallback

__all__ = ["KleashCallback"]


def __getattr__(name: str) -> Any:
    """Import the callback, and transformers with it, when it is asked for."""
    if name == "KleashCallback":
        from kleash.integrations.callback import KleashCallback

        return KleashCallback
    raise AttributeError(f"module 'kleash.integrations' has no attribute {name!r}")
