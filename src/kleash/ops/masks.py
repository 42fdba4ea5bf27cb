"""Masks and the two layouts of a batch: rows `[B, T]` for algorithms, flat tokens `[N]` for the head.

One polarity everywhere: True counts.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def lengths_to_mask(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B {width}"]:
    """True at the first `lengths[b]` positions of each row.

    Example:
        >>> import torch
        >>> lengths_to_mask(torch.tensor([1, 2]), 2)
        tensor([[ True, False],
                [ True,  True]])
    """
    return torch.arange(width, device=lengths.device)[None, :] < lengths[:, None]


def to_rows(flat: Float[Tensor, " N"], response_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Lay N values out at the N True positions of the mask, row by row; 0 elsewhere.

    Gradient: passed through to `flat`. Raises when the mask does not have N True positions.
    """
    rows = flat.new_zeros(response_mask.shape)
    return rows.masked_scatter(response_mask, flat)
