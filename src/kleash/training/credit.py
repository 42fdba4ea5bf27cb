"""Who gets credit for a reward: each sample against its group, or each token by a critic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from kleash.algorithms import ppo
from kleash.config.algorithms import Ppo
from kleash.ops import whitening
from kleash.ops.gae import returns as returns_of
from kleash.ops.masks import lengths_to_mask, to_rows
from kleash.training.critic import Credit, counted
from kleash.training.experience import Experience
from kleash.training.session import Session
from kleash.training.update import Scored


def assign(session: Session, experience: Experience, scored: Scored, beta: float) -> Credit:
    """Advantages of a step's samples; 0 where there is no score."""
    if isinstance(session.algorithm, Ppo):
        return _by_critic(session, session.algorithm, experience, scored, beta)
    rewards = _known(experience)
    shape = (len(experience.prompts), experience.group_size)
    is_scored = torch.tensor(experience.rewards.scored)
    advantages = session.objective.advantages(rewards.view(shape), is_scored.view(shape))
    return Credit(advantages.flatten().to(session.policy.device))


def _by_critic(session: Session, settings: Ppo, experience: Experience, scored: Scored, beta: float) -> Credit:
    """GAE over the rewards of the tokens: the reply's at its last, k1 at each where it is charged in the reward."""
    assert session.critic is not None, "PPO has a critic"
    assert scored.record is not None, "PPO scores before it updates"
    device = session.policy.device
    mask = counted(experience).to(device)
    values = session.critic.values(experience)
    rewards = _known(experience).to(device)
    if session.objective.charged_in_reward:
        k1 = _rows(scored.record.policy_logprobs - scored.record.reference_logprobs, experience, device)
        token_rewards = ppo.token_rewards_with_k1(rewards, k1, beta, mask)
    else:
        token_rewards = ppo.token_rewards(rewards, mask)
    if settings.scale_rewards == "unit_variance":
        token_rewards = _of_all(session.accelerator, whitening.scale_to_unit_variance, token_rewards, mask)
    advantages = ppo.advantages(token_rewards, values, mask, discount=settings.discount, trace=settings.gae_lambda)
    returns = returns_of(advantages, values, mask)
    if settings.normalize_advantages == "center":
        advantages = _of_all(session.accelerator, whitening.center, advantages, mask)
    elif settings.normalize_advantages == "whiten":
        advantages = _of_all(session.accelerator, whitening.whiten, advantages, mask)
    return Credit(advantages, returns, values)


def _rows(flat: NDArray[np.float64], experience: Experience, device: torch.device) -> Float[Tensor, "B T"]:
    lengths = torch.tensor(experience.lengths)
    mask = lengths_to_mask(lengths, int(lengths.max()))
    return to_rows(torch.tensor(flat, dtype=torch.float32), mask).to(device)


def _known(experience: Experience) -> Float[Tensor, " B"]:
    """Rewards, 0 where there is no score."""
    rewards = torch.tensor(experience.rewards.shaped, dtype=torch.float32)
    return torch.where(torch.tensor(experience.rewards.scored), rewards, 0.0)


def _of_all(
    accelerator: Accelerator,
    normalize: Callable[[Tensor, Tensor], Tensor],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Normalise by the values of all processes, so that their number changes nothing."""
    if accelerator.num_processes == 1:
        return normalize(values, mask)
    parts: list[Tensor] = gather_object([values[mask].cpu()])
    everywhere = torch.cat(parts)
    normalized = normalize(everywhere, torch.ones_like(everywhere, dtype=torch.bool))
    own = torch.split(normalized, [len(part) for part in parts])[accelerator.process_index]
    return torch.zeros_like(values).masked_scatter(mask, own.to(values))
