"""Which device and compute dtype a run uses, and which attention is fastest there."""

from __future__ import annotations

import torch

SHORT_CONTEXT = 512
"""Below this many positions plain attention beats the fused kernel on a CPU: 1.4 against 1.7 s a LoRA step."""


def pick_device() -> torch.device:
    """The GPU of this process where there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def pick_dtype(device: torch.device, wanted: str) -> torch.dtype:
    """`float32`, `bfloat16`, or for `auto` bfloat16 where the hardware multiplies it."""
    if wanted != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[wanted]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "cpu" and _cpu_has_bfloat16():
        return torch.bfloat16
    return torch.float32


def pick_attention(device: torch.device, context: int) -> str:
    """Name of the Hugging Face attention implementation for sequences of up to `context` tokens."""
    return "eager" if device.type == "cpu" and context <= SHORT_CONTEXT else "sdpa"


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that new tensors could have: what nobody holds, and what torch holds but does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def _cpu_has_bfloat16() -> bool:
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    tiles = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(supported and supported()) or bool(tiles and tiles())
