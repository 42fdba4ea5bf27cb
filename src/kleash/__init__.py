"""Fine-tune language models by reinforcement learning without letting them drift."""

__version__ = "0.1.0"
