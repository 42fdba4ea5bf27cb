"""How many sequences fit into one forward and backward pass."""

from __future__ import annotations

from typing import Any

import torch

from kleash.models.device import free_bytes
from kleash.models.policy import Policy

CPU_ACTIVATION_BYTES = 1_200_000_000
"""On a CPU larger micro-batches gain nothing, so that memory stays for other things."""
GPU_SHARE = 0.5
"""Of the GPU's free memory, for activations."""


def activation_bytes_per_token(backbone: Any, dtype: torch.dtype, context: int) -> int:
    """Rough size of what one token leaves behind for backward; an over-estimate for most models.

    Per layer about 16 vectors of the hidden size, 6 of the feed-forward size and, for plain attention, 3 rows of scores
    a head; with gradient checkpointing one vector a layer, and one whole layer at a time.
    """
    config = backbone.config.get_text_config()
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    scores = 3 * config.num_attention_heads * context if backbone.config._attn_implementation == "eager" else 0
    layer: int = (16 * hidden + 6 * inner + scores) * dtype.itemsize
    if backbone.training:
        return int(layers * hidden * dtype.itemsize + layer)
    return int(layers * layer)


def groups_per_batch(policy: Policy, group_size: int, context: int) -> int:
    """Whole groups of sequences of up to `context` tokens that one micro-batch can hold; at least 1."""
    budget = int(GPU_SHARE * free_bytes(policy.device)) if policy.device.type == "cuda" else CPU_ACTIVATION_BYTES
    return max(
        1, budget // (activation_bytes_per_token(policy.causal_lm, policy.dtype, context) * context * group_size)
    )
