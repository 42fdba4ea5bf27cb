"""k1, k2, k3: three estimates of KL(policy ‖ reference) from the sampled token alone.

With r = reference / policy on a token drawn from the policy,

    k1 = -log r        k2 = (log r)^2 / 2        k3 = (r - 1) - log r.

Every function takes the log-probabilities that both models give the sampled tokens and returns one value a token,
of the same shape. What each may be used for as a *penalty* is another question: see `kleash.choices`.

Source: J. Schulman 2020, joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def k1(
    policy_logprobs: Float[Tensor, "*shape"], reference_logprobs: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Log-ratio of the sampled token, k1 = log policy - log reference.

    Unit: nats per token. Sign: either; a single value says little.
    Unbiased when: the tokens were drawn from exactly the policy whose log-probabilities are passed
        (temperature included; no top-k, no top-p).
    Gradient: as a loss its expectation is zero, so it cannot hold a policy. In the reward it is exact.

    Example:
        >>> import torch
        >>> k1(torch.tensor([0.5]).log(), torch.tensor([0.25]).log())
        tensor([0.6931])
    """
    return policy_logprobs - reference_logprobs


def k2(
    policy_logprobs: Float[Tensor, "*shape"], reference_logprobs: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Half the squared log-ratio, k2 = (log policy - log reference)^2 / 2.

    Unit: nats per token. Sign: >= 0.
    Biased: its expectation equals the KL only to second order in the log-ratio.
    Gradient: per token with samples held fixed, that of each position's reverse KL with its prefix held fixed:
        a partial gradient of the sequence KL.

    Example:
        >>> import torch
        >>> k2(torch.tensor([0.5]).log(), torch.tensor([0.25]).log())
        tensor([0.2402])
    """
    return 0.5 * (policy_logprobs - reference_logprobs) ** 2


def k3(
    policy_logprobs: Float[Tensor, "*shape"], reference_logprobs: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Log-ratio with its control variate, k3 = exp(d) - 1 - d with d = log reference - log policy.

    Unit: nats per token. Sign: >= 0.
    Unbiased when: as k1. Its variance holds the chi-square of reference against policy: low near the reference,
        heavy-tailed far from it.
    Gradient: per token with samples held fixed, that of each position's *forward* KL(reference ‖ policy), not
        of the reverse KL whose value it estimates. It is the penalty of GRPO.
    Overflow: exp(d) is infinite beyond d = 88 in float32; it is returned as it is, never clamped.

    Example:
        >>> import torch
        >>> k3(torch.tensor([0.5]).log(), torch.tensor([0.25]).log())
        tensor([0.1931])
    """
    log_ratio = reference_logprobs - policy_logprobs
    return log_ratio.expm1() - log_ratio
