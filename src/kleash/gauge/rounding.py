"""The scale that makes a number of nats mean something: the same model with its weights rounded.

Rounded weights are computed with in the dtype of the measurement, so that nothing but the weights differs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

INT4_BLOCK = 32


def to_bfloat16(weight: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The nearest bfloat16 number, ties to even, in the dtype of `weight`."""
    return weight.to(torch.bfloat16).to(weight.dtype)


def to_int4(weight: Float[Tensor, "out inner"]) -> Float[Tensor, "out inner"]:
    """The nearest of 16 evenly spaced numbers, for each block of 32 along a row.

    x = d q,   d = (entry of largest magnitude) / -8,   q an integer from -8 to 7.

    Blocks of zeros stay zero; a last block may be shorter. Source: ggml's Q4_0, whose d is kept in float16; here d is
    in the dtype of `weight`.
    """
    rows, columns = weight.shape
    padded = nn.functional.pad(weight, (0, -columns % INT4_BLOCK)).reshape(rows, -1, INT4_BLOCK)
    largest = padded.gather(-1, padded.abs().argmax(dim=-1, keepdim=True))
    step = largest / -8
    levels = torch.where(step == 0, 0.0, padded / torch.where(step == 0, 1.0, step)).round().clamp(-8, 7)
    return (levels * step).reshape(rows, -1)[:, :columns]


@torch.no_grad()
def bfloat16_copy(causal_lm: nn.Module) -> nn.Module:
    """A copy with every parameter rounded to bfloat16."""
    return _copy(causal_lm, lambda name, parameter: to_bfloat16(parameter))


@torch.no_grad()
def int4_copy(causal_lm: Any) -> nn.Module:
    """A copy with the linear layers rounded to 4 bits; embeddings, norms, biases, head and adapters are shared.

    That is what quantisers for inference round too. Linear layers that GPT-2 keeps transposed count.
    """
    head = causal_lm.get_output_embeddings()
    linear = {
        f"{name}.weight"
        for name, module in causal_lm.named_modules()
        if (isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D") and module is not head
        if "lora_" not in name
    }
    return _copy(causal_lm, lambda name, parameter: to_int4(parameter) if name in linear else parameter)


def _copy(causal_lm: nn.Module, rounded: Callable[[str, nn.Parameter], Tensor]) -> nn.Module:
    """A second module tree with rounded parameters; tied ones stay tied, buffers are copied."""
    swapped: dict[int, Any] = {}
    for name, parameter in causal_lm.named_parameters():
        value = rounded(name, parameter)
        swapped[id(parameter)] = parameter if value is parameter else nn.Parameter(value, requires_grad=False)
    return copy.deepcopy(causal_lm, swapped).eval()
