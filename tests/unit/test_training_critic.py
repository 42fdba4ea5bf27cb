"""The critic: its values by plain code, what an update does to them, and what it leaves alone."""

import copy

import pytest
import torch
from tiny_run import experience, perturb, session, settings

from kleash.training.critic import CRITIC, Credit, counted, explained_variance

PROMPTS = [[256, 97, 98, 99], [256, 100]]
REPLIES = [[103, 104, 105], [106], [107, 108, 109, 110], [111, 112]]
LENGTHS = [3, 1, 4, 2]
RETURNS = torch.tensor([[1.0, 0.5, -1.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.3, 0.1, -0.4, 1.5], [-1.0, 0.8, 0.0, 0.0]])


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    """A PPO session whose policy has moved and whose critic has a head of random numbers."""

    def made(*overrides):
        ppo = ["algorithm.type=ppo", "algorithm.num_generations=2", "training.max_grad_norm=1e9"]
        running = session(settings(tiny_model_dir, tmp_path, *ppo, *overrides))
        perturb(running.policy)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            head = running.critic.model.members[CRITIC].head.weight
            head.copy_(torch.randn(head.shape, generator=generator))
        return running

    return made


def told(rewards=(0.0, 0.0, 0.0, 0.0)):
    return experience(PROMPTS, REPLIES, list(rewards))


def head_of(running):
    return running.critic.model.members[CRITIC].head


def states_by_hand(running, row):
    """Hidden states before each token of a reply. The critic's fresh adapter adds nothing to the frozen weights."""
    prompt, reply = PROMPTS[row // 2], REPLIES[row]
    with torch.no_grad(), running.policy.switched(None):
        return running.policy.causal_lm.model(torch.tensor([prompt + reply])).last_hidden_state[0, len(prompt) - 1 : -1]


def values_by_hand(running):
    values = torch.zeros(4, 4)
    for row, length in enumerate(LENGTHS):
        values[row, :length] = states_by_hand(running, row) @ head_of(running).weight.detach()[0]
    return values


def logits(running):
    with torch.no_grad():
        return running.policy.causal_lm(torch.tensor([PROMPTS[0] + REPLIES[0]])).logits


def test_a_fresh_critic_expects_nothing(tiny_model_dir, tmp_path):
    running = session(settings(tiny_model_dir, tmp_path, "algorithm.type=ppo", "algorithm.num_generations=2"))
    assert torch.equal(running.critic.values(told()), torch.zeros(4, 4))


@pytest.mark.parametrize("pieces", [1, 2])
def test_values_stand_before_each_token_and_end_with_the_reply(make, pieces):
    running = make(f"training.gradient_accumulation_steps={pieces}")
    values = running.critic.values(told())
    torch.testing.assert_close(values, values_by_hand(running), atol=1e-5, rtol=1e-5)
    mask = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    assert torch.equal(values != 0, mask)


@pytest.mark.parametrize("rewards", [(0.0, 0.0, 0.0, 0.0), (0.0, float("nan"), 0.0, 0.0)], ids=["all", "one unscored"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_an_update_is_half_the_mean_squared_error_of_the_scored_tokens(make, rewards, pieces):
    running = make(f"training.gradient_accumulation_steps={pieces}")
    rows = [row for row in range(4) if rewards[row] == 0]
    values = values_by_hand(running)
    error = {row: values[row, : LENGTHS[row]] - RETURNS[row, : LENGTHS[row]] for row in rows}
    count = sum(LENGTHS[row] for row in rows)
    gradient = sum(error[row] @ states_by_hand(running, row) for row in rows) / count
    expected = float(torch.cat(list(error.values())).square().mean()) / 2
    credit = Credit(torch.zeros(4, 4), RETURNS, running.critic.values(told(rewards)))
    learned = running.critic.update(told(rewards), credit, 0)
    assert learned.loss == pytest.approx(expected, rel=1e-4)
    assert learned.clip_fraction == 0
    torch.testing.assert_close(head_of(running).weight.grad[0], gradient, atol=1e-5, rtol=1e-4)


def test_updates_lower_the_loss_and_leave_the_policy_as_it_was(make):
    running = make("algorithm.critic.learning_rate=0.001")
    policy, names = logits(running), [name for name, _ in running.policy.trained()]
    before = [parameter.clone() for _, parameter in running.policy.trained()]
    losses = []
    for step in range(8):
        credit = Credit(torch.zeros(4, 4), RETURNS, running.critic.values(told()))
        losses.append(running.critic.update(told(), credit, step).loss)
    assert losses[7] < losses[0] / 4
    assert torch.equal(logits(running), policy)
    assert [name for name, _ in running.policy.trained()] == names
    for (_, parameter), value in zip(running.policy.trained(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is None


def test_a_policy_update_leaves_the_critic_as_it_was(make):
    running = make("training.learning_rate=0.01")
    weights = [parameter.clone() for _, parameter in running.critic.model.trained()]
    scored = running.updater.score(told(), 0)
    running.updater(told(), scored, RETURNS, beta=0.1, step=0)
    for (_, parameter), value in zip(running.critic.model.trained(), weights, strict=True):
        assert torch.equal(parameter, value)


def test_of_several_updates_the_later_ones_are_held_near_the_values_at_sampling_time(make):
    several = ["training.num_epochs=6", "algorithm.critic.learning_rate=0.05"]
    moved = {}
    for epsilon in (1e-3, 100.0):
        running = make(*several, f"algorithm.critic.epsilon={epsilon}")
        values = running.critic.values(told())
        learned = running.critic.update(told(), Credit(torch.zeros(4, 4), RETURNS, values), 0)
        moved[epsilon] = learned.clip_fraction
    assert moved[100.0] == 0
    assert moved[1e-3] > 0.2


def test_saved_weights_and_moments_go_on_as_they_would_have(make):
    running, resumed = make(), make()
    credit = Credit(torch.zeros(4, 4), RETURNS, running.critic.values(told()))
    running.critic.update(told(), credit, 0)
    resumed.critic.load_state_dict(copy.deepcopy(running.critic.state_dict()))
    for critic in (running.critic, resumed.critic):
        critic.update(told(), credit, 1)
    assert torch.equal(running.critic.values(told()), resumed.critic.values(told()))


def test_which_tokens_count():
    assert counted(told((1.0, float("nan"), 1.0, 1.0))).tolist() == [
        [True, True, True, False],
        [False] * 4,
        [True] * 4,
        [True, True, False, False],
    ]


@pytest.mark.parametrize(
    ("values", "returns", "expected"),
    [
        ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], 1.0),
        ([5.0, 6.0, 8.0], [1.0, 2.0, 4.0], 1.0),  # a constant error is no variance
        ([0.0, 0.0, 0.0], [1.0, 2.0, 4.0], 0.0),
        ([0.0, 2.0], [1.0, 5.0], 0.75),  # errors 1 and 3: variance 2 of 8
        ([4.0, 2.0], [2.0, 4.0], -3.0),
        ([1.0, 2.0], [3.0, 3.0], None),
        ([1.0], [3.0], None),
    ],
)
def test_explained_variance(values, returns, expected):
    assert explained_variance(torch.tensor(values), torch.tensor(returns)) == (
        None if expected is None else pytest.approx(expected)
    )
