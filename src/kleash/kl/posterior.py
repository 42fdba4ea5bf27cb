"""The optimum of reward minus beta times KL, on models small enough to enumerate.

For J(pi) = E_pi[r] - beta KL(pi ‖ reference) the optimum is the posterior pi*(y) = reference(y) exp(r(y) / beta) / Z,
and J(pi) = beta log Z - beta KL(pi ‖ pi*): the gap that is left is beta KL(pi ‖ pi*).

Source: Korbak et al. 2022, arXiv 2205.11275, equations 3 to 7.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Posterior(NamedTuple):
    """The optimum over enumerated sequences: `logprobs` [Y] of pi*, and `log_z`, a scalar."""

    logprobs: Float[Tensor, " Y"]
    log_z: Float[Tensor, ""]


def posterior(reference_logprobs: Float[Tensor, " Y"], rewards: Float[Tensor, " Y"], beta: float) -> Posterior:
    """Return pi* and log Z over Y enumerated sequences.

    Unit: log-probabilities and log Z in nats; beta in reward per nat.
    Gradient: to both tensors.

    Raises:
        ValueError: beta is not a positive finite number.
    """
    if not (beta > 0 and math.isfinite(beta)):
        raise ValueError(f"beta = {beta}: the posterior exists for a positive, finite beta only")
    unnormalized = reference_logprobs + rewards / beta
    log_z = torch.logsumexp(unnormalized, dim=0)
    return Posterior(unnormalized - log_z, log_z)


def objective(
    policy_logprobs: Float[Tensor, " Y"],
    reference_logprobs: Float[Tensor, " Y"],
    rewards: Float[Tensor, " Y"],
    beta: float,
) -> Float[Tensor, ""]:
    """J(pi) = E_pi[r] - beta KL(pi ‖ reference), in reward units, over enumerated sequences.

    Gradient: exact, to policy_logprobs.
    """
    kl = policy_logprobs - reference_logprobs
    return (policy_logprobs.exp() * (rewards - beta * kl)).sum()


def gap(
    policy_logprobs: Float[Tensor, " Y"],
    reference_logprobs: Float[Tensor, " Y"],
    rewards: Float[Tensor, " Y"],
    beta: float,
) -> Float[Tensor, ""]:
    """What the policy leaves on the table, beta log Z - J(pi) = beta KL(pi ‖ pi*), in reward units; >= 0."""
    log_z = posterior(reference_logprobs, rewards, beta).log_z
    return beta * log_z - objective(policy_logprobs, reference_logprobs, rewards, beta)
