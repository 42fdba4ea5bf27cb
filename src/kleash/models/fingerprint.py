"""A digest of weights, so that a run can prove that its reference is the one it began with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def fingerprint(named: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, shapes, dtypes and bytes, in the order of names; hex digits.

    Equal bytes give equal digests on every device.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
        digest.update(raw.numpy().data)
    return digest.hexdigest()
