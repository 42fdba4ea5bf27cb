"""Who gets credit for a reward: each sample against its group, or each token by a critic."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from kleash.algorithms import ppo
from kleash.config.algorithms import Ppo
from kleash.ops import whitening
from kleash.ops.masks import lengths_to_mask, to_rows
from kleash.training.critic import Credit, counted
from kleash.training.experience import Experience
from kleash.training.session import Session
from kleash.training.update import Scored


def assign(session: Session, experience: Experience, scored: Scored, beta: float) -> Credit:
    """Advantages of a step's samples; 0 where there is no score."""
    if isinstance(session.algorithm, Ppo):
        return _by_critic(session, session.algorithm, experience, scored, beta)
    rewards = torch.tensor(experience.rewards.shaped, dtype=torch.float32).nan_to_num()
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
    rewards = torch.tensor(experience.rewards.shaped, dtype=torch.float32, device=device).nan_to_num()
    if session.objective.charged_in_reward:
        k1 = _rows(scored.record.policy_logprobs - scored.record.reference_logprobs, experience, device)
        token_rewards = ppo.token_rewards_with_k1(rewards, k1, beta, mask)
    else:
        token_rewards = ppo.token_rewards(rewards, mask)
    if settings.scale_rewards == "unit_variance":
        token_rewards = whitening.scale_to_unit_variance(token_rewards, mask)
    advantages = ppo.advantages(token_rewards, values, mask, discount=settings.discount, trace=settings.gae_lambda)
    returns = advantages + values
    if settings.normalize_advantages == "center":
        advantages = whitening.center(advantages, mask)
    elif settings.normalize_advantages == "whiten":
        advantages = whitening.whiten(advantages, mask)
    return Credit(advantages, returns, values)


def _rows(flat: NDArray[np.float64], experience: Experience, device: torch.device) -> Float[Tensor, "B T"]:
    lengths = torch.tensor(experience.lengths)
    mask = lengths_to_mask(lengths, int(lengths.max()))
    return to_rows(torch.tensor(flat, dtype=torch.float32), mask).to(device)
