"""PPO's critic: its values, what an update does to them, and that the policy does not notice."""

from dataclasses import replace

import pytest
import torch
from tiny_run import experience, perturb, session, settings

from kleash.training.critic import Credit, Critic, counted, explained_variance

PROMPTS = [[256, 97, 98, 99], [256, 100]]
REPLIES = [[103, 104, 105], [106], [107, 108], [109, 110, 111, 112]]
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
RETURNS = torch.tensor([[1.0, 2.0, 3.0, 9.0], [-1.0, 9.0, 9.0, 9.0], [0.5, 0.5, 9.0, 9.0], [2.0, 0.0, -2.0, 1.0]])
"""9 stands behind the end of a reply, where nothing counts."""


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        base = ["algorithm.type=ppo", "algorithm.num_generations=2", "training.prompts_per_step=2"]
        return session(settings(tiny_model_dir, tmp_path, *base, *overrides))

    return made


def told(rewards=(1.0, 1.0, 1.0, 1.0)):
    return experience(PROMPTS, REPLIES, list(rewards))


def scattered(critic):
    """Noise in the critic's adapter and head, so that its values differ from 0 and from each other."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, weight in critic.model.trained():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return critic


def states_alone(running):
    """Last hidden states before each token of every reply, from passes of one row without padding."""
    rows = [(PROMPTS[i // 2], reply) for i, reply in enumerate(REPLIES)]
    found = []
    for prompt, reply in rows:
        tokens = torch.tensor([[*prompt, *reply]])
        states = running.policy.causal_lm.base_model(input_ids=tokens, use_cache=False).last_hidden_state[0]
        found.append(states[len(prompt) - 1 : -1])
    return torch.cat(found)


def policy_logits(running):
    with torch.no_grad():
        return running.policy.causal_lm(input_ids=torch.tensor([[*PROMPTS[0], *REPLIES[0]]])).logits


def test_a_fresh_critic_expects_nothing(make):
    assert make().critic.values(told()).tolist() == torch.zeros(4, 4).tolist()


@torch.no_grad()
@pytest.mark.parametrize("groups_per_batch", [1, 2])
def test_values_are_the_head_on_the_states_before_each_token(make, groups_per_batch):
    running = make()
    critic = scattered(running.critic)
    plan = replace(running.updater.plan, groups_per_batch=groups_per_batch)
    cut = Critic(critic.model, running.policy, running.optimizer, running.accelerator, plan, 0.2)
    values = cut.values(told())
    with critic.model.active(0):
        expected = states_alone(running) @ critic.model.members[0].head.weight[0]
    assert expected.std() > 0.05
    torch.testing.assert_close(values[MASK], expected, rtol=0, atol=1e-5)
    assert values[~MASK].tolist() == [0.0] * 6


def test_the_first_update_by_hand(make):
    """Values are 0, so the loss is half the mean square of the returns, and only the head of zeros has a gradient."""
    running = make()
    with torch.no_grad():
        states = states_alone(running)
    found = running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, torch.zeros(4, 4)), 0)
    counts = RETURNS[MASK]
    assert found.loss == pytest.approx(float(0.5 * (counts**2).mean()))
    assert found.clip_fraction == 0.0
    assert found.explained_variance == pytest.approx(0.0, abs=1e-6)
    expected = (counts[:, None] * states).mean(dim=0).norm()
    assert found.grad_norm == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_updates_lower_the_loss_whatever_the_micro_batches(make, groups):
    running = make("algorithm.critic.learning_rate=1e-2", f"training.gradient_accumulation_steps={groups}")
    losses = []
    for step in range(3):
        values = running.critic.values(told())
        losses.append(running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, values), step).loss)
    assert losses[0] > losses[1] > losses[2]
    after = running.critic.values(told())
    assert float(0.5 * ((after - RETURNS)[MASK] ** 2).mean()) < losses[2]


def test_the_policy_does_not_notice(make):
    running = make("algorithm.critic.learning_rate=1e-1")
    perturb(running.policy)
    before = policy_logits(running)
    weights = [weight.detach().clone() for _, weight in running.policy.trained()]
    running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, torch.zeros(4, 4)), 0)
    running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, running.critic.values(told())), 1)
    assert running.critic.values(told())[MASK].abs().max() > 0.1
    assert torch.equal(policy_logits(running), before)
    assert all(torch.equal(a, b) for a, (_, b) in zip(weights, running.policy.trained(), strict=True))
    assert all(weight.grad is None for _, weight in running.policy.trained())


def test_a_reply_without_a_score_teaches_nothing(make):
    learned = []
    for odd in (2.0, 200.0):
        running = make()
        returns = RETURNS.clone()
        returns[3] = odd
        samples = told((1.0, 1.0, 1.0, float("nan")))
        assert counted(samples).tolist() == [*MASK[:3].tolist(), [False] * 4]
        learned.append(running.critic.update(samples, Credit(torch.zeros(4, 4), returns, torch.zeros(4, 4)), 0))
    assert learned[0] == learned[1]
    assert learned[0].loss == pytest.approx(float(0.5 * (RETURNS[:3][MASK[:3]] ** 2).mean()))


def test_a_saved_critic_says_the_same(make):
    running, other = make(), make()
    running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, torch.zeros(4, 4)), 0)
    other.critic.load_state_dict(running.critic.state_dict())
    values = running.critic.values(told())
    assert values[MASK].abs().min() > 0
    assert torch.equal(other.critic.values(told()), values)


@pytest.mark.parametrize(
    ("values", "returns", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ([5.0, 5.0, 5.0], [1.0, 2.0, 3.0], 0.0),
        ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], 0.0),
        ([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0], -3.0),
        ([0.0, 1.0], [2.0, 2.0], None),
        ([0.0], [2.0], None),
    ],
)
def test_explained_variance(values, returns, expected):
    found = explained_variance(torch.tensor(values), torch.tensor(returns))
    assert found == (None if expected is None else pytest.approx(expected))
