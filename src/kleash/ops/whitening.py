"""Whitening: moving and scaling the numbers of a batch by their own mean and standard deviation.

All values at True positions of the mask are pooled; pass those of the whole update, for micro-batches whitened on
their own have other means. The standard deviation has n below the line, and 1e-8 is added to the variance.

What each does to beta, the reward given up per nat of KL:

| | advantages, KL its own term of the loss | per-token rewards that hold -beta k1 |
|---|---|---|
| `center` | beta keeps its meaning | every token earns a constant more or less: a say in the length of replies |
| `scale_to_unit_variance` | beta is per sd of the advantages, and drifts with it | reward and KL are scaled alike |
| `whiten` | as the line above | both of the lines above |

OpenAI's `whiten(values, shift_mean=True)` is `whiten`, and its `shift_mean=False` is `scale_to_unit_variance`: it
whitens and then puts the mean back. Codes that copied it disagree on which is which; hence two names. OpenAI's and
TRL's PPO whiten advantages by the first and, where told to, rewards by the second.

Source: github.com/openai/lm-human-preferences, `lm_human_preferences/utils/core.py`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def whiten(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Mean 0 and standard deviation 1 over the mask; 0 outside it.

    Unit: none. Gradient: passed through, the statistics included; pass constants. Values that are all equal give 0.
    """
    mean, scale = _mean_and_scale(values, mask)
    return torch.where(mask, (values - mean) * scale, 0.0)


def scale_to_unit_variance(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard deviation 1 over the mask about the mean that was there; 0 outside the mask.

    (x - mean) / sd + mean: the distances to the mean are scaled, not the mean itself.

    Unit: that of the values for the mean, none for the spread. Gradient: as `whiten`. Values that are all equal stay.
    """
    mean, scale = _mean_and_scale(values, mask)
    return torch.where(mask, (values - mean) * scale + mean, 0.0)


def center(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Mean 0 over the mask, spread as it was; 0 outside the mask.

    Unit: that of the values. Gradient: as `whiten`.
    """
    return torch.where(mask, values - _mean_and_scale(values, mask)[0], 0.0)


def _mean_and_scale(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean and 1 / sd over the mask; nothing counted: 0 and a number that is multiplied with nothing."""
    number = mask.sum().clamp(min=1)
    mean = torch.where(mask, values, 0.0).sum() / number
    variance = torch.where(mask, (values - mean) ** 2, 0.0).sum() / number
    return mean, (variance + 1e-8).rsqrt()
