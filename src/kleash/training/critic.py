"""PPO's critic: a scalar model that reads the policy's tokens and predicts, at each, the reward still to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from jaxtyping import Bool, Float
from torch import Tensor

from kleash.algorithms import ppo
from kleash.config.algorithms import Ppo
from kleash.config.schema import RunConfig
from kleash.models.policy import Policy
from kleash.models.saved_reward import open_saved
from kleash.models.scalar_loading import critic_from_reward_model, critic_on_policy
from kleash.models.scalar_model import ScalarModel
from kleash.ops.masks import lengths_to_mask, to_rows
from kleash.training.experience import Experience
from kleash.training.offline import of_all
from kleash.training.optimizer import Optimizer
from kleash.training.plan import Plan
from kleash.training.scoring import batch_of, micro_batches
from kleash.training.seeds import seed_for

CRITIC = 0
"""The critic is the only member of its scalar model."""


@dataclass(frozen=True)
class Credit:
    """`advantages` [B] or, with a critic, [B, T]; then also what the critic is to learn, and what it said."""

    advantages: Float[Tensor, ...]
    returns: Float[Tensor, "B T"] | None = None
    values: Float[Tensor, "B T"] | None = None


@dataclass(frozen=True)
class Learned:
    """What came of the critic's updates on one step's samples."""

    loss: float
    clip_fraction: float
    explained_variance: float | None
    grad_norm: float

    def metrics(self) -> dict[str, float | None]:
        """The numbers by their keys."""
        return {
            "critic/loss": self.loss,
            "critic/clip_fraction": self.clip_fraction,
            "critic/explained_variance": self.explained_variance,
            "critic/grad_norm": self.grad_norm,
        }


class Critic:
    """Predicts and learns on the same minibatches as the policy, with an optimiser of its own."""

    def __init__(
        self,
        model: ScalarModel,
        policy: Policy,
        optimizer: Optimizer,
        accelerator: Accelerator,
        plan: Plan,
        epsilon: float,
    ) -> None:
        """Train `model` on the samples of `policy`, whose tokens it must share."""
        self.model, self._policy, self._optimizer = model, policy, optimizer
        self._accelerator, self._plan, self._epsilon = accelerator, plan, epsilon

    @torch.no_grad()
    def values(self, experience: Experience) -> Float[Tensor, "B T"]:
        """Predicted reward to come before each token is drawn; 0 behind the end of a reply."""
        width, size = int(experience.lengths.max()), experience.group_size
        values = torch.zeros(len(experience.completions), width, device=self._policy.device)
        for groups in micro_batches(experience, range(len(experience.prompts)), self._plan.groups_per_batch):
            rows = self._predict(experience, groups)
            values[self._index(groups, size), : rows.shape[1]] = rows
        return values

    def update(self, experience: Experience, credit: Credit, step: int) -> Learned:
        """Fit the values to the returns, over the plan's minibatches.

        Raises:
            RunStopped: the gradient is not finite; the weights are untouched.
        """
        assert credit.returns is not None, "PPO assigns credit by the critic"
        assert credit.values is not None, "PPO assigns credit by the critic"
        device = self._policy.device
        mask = counted(experience).to(device)
        loss, clipped, tokens, norm = (torch.zeros((), device=device) for _ in range(4))
        minibatches = self._plan.minibatches(len(experience.prompts), step)
        for minibatch in minibatches:
            self._optimizer.zero()
            count = self._sum(mask[self._index(minibatch, experience.group_size)].sum()).clamp(min=1)
            for groups in micro_batches(experience, minibatch, self._plan.groups_per_batch):
                index = self._index(groups, experience.group_size)
                with self.model.active(CRITIC):
                    rows = self._predict(experience, groups)
                    part = slice(0, rows.shape[1])
                    found = ppo.value_loss(
                        rows,
                        credit.values[index, part],
                        credit.returns[index, part],
                        mask[index, part],
                        epsilon=self._epsilon,
                    )
                    (found.values.sum() / count).backward()  # type: ignore[no-untyped-call]
                loss += found.values.detach().sum() / count
                clipped += found.clipped.sum()
                tokens += mask[index].sum()
            norm += self._optimizer.step(step)
        updates = len(minibatches)
        loss, clipped, tokens = (self._sum(value) for value in (loss, clipped, tokens))
        return Learned(
            float(loss) / updates,
            float(clipped / tokens.clamp(min=1)),
            self._explained(credit.values[mask], credit.returns[mask]),
            float(norm) / updates,
        )

    def _explained(self, values: Tensor, returns: Tensor) -> float | None:
        """`explained_variance` over all processes."""
        parts = of_all(self._accelerator, (values.cpu(), returns.cpu()))
        return explained_variance(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def state_dict(self) -> dict[str, Any]:
        """Weights, head and optimiser."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put saved weights back."""
        self._optimizer.load_state_dict(dict(state))

    def _predict(self, experience: Experience, groups: Sequence[int]) -> Float[Tensor, "b t"]:
        batch = batch_of(experience, groups, self._policy)
        with self.model.active(CRITIC):
            return to_rows(self.model.token_values(batch, CRITIC), batch.response_mask)

    def _index(self, groups: Sequence[int], size: int) -> Tensor:
        return torch.tensor([g * size + i for g in groups for i in range(size)], device=self._policy.device)

    def _sum(self, value: Tensor) -> Tensor:
        """Sum over processes."""
        if self._accelerator.num_processes == 1:
            return value.float()
        return self._accelerator.reduce(value.float(), reduction="sum")  # type: ignore[no-any-return]


def load_critic(
    settings: Ppo, policy: Policy, config: RunConfig, plan: Plan, context: int, accelerator: Accelerator
) -> Critic:
    """The critic that the `critic` table asks for.

    Raises:
        ModelError: the reward model that it is to begin from cannot be read, or has another tokenizer.
    """
    seed = seed_for(config.training.seed, "critic")
    if settings.critic.start is None:
        model = critic_on_policy(policy, settings=config.model, seed=seed, context=context)
    else:
        model = critic_from_reward_model(policy, open_saved(settings.critic.start), context=context)
    rate = settings.critic.learning_rate or config.training.learning_rate
    training = config.training.model_copy(update={"learning_rate": rate})
    optimizer = Optimizer(model.trained(), training, accelerator)
    return Critic(model, policy, optimizer, accelerator, plan, settings.critic.epsilon)


def explained_variance(values: Float[Tensor, " N"], returns: Float[Tensor, " N"]) -> float | None:
    """1 - Var(returns - values) / Var(returns): 1 for a perfect critic, 0 for a constant; None if nothing varies."""
    if len(returns) < 2 or float(returns.var()) == 0:
        return None
    return float(1 - (returns - values).var() / returns.var())


def counted(experience: Experience) -> Bool[Tensor, "B T"]:
    """True at the tokens of the replies that have a score."""
    lengths = torch.tensor(experience.lengths)
    mask = lengths_to_mask(lengths, int(lengths.max()))
    return mask & torch.tensor(experience.rewards.scored)[:, None]
