"""Fine-tune language models by reinforcement learning without letting them drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kleash.api import train

__version__ = "0.1.0"
__all__ = ["__version__", "train"]


def __getattr__(name: str) -> Any:
    """Import `train` when it is asked for: reading a finished run needs no torch."""
    if name == "train":
        from kleash.api import train

        return train
    raise AttributeError(f"module 'kleash' has no attribute {name!r}")
