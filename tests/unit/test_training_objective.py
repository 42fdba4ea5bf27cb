"""Which functions the settings bind, and that the penalty keeps its scale."""

import pytest
import torch
from torch import Tensor

from kleash.algorithms import grpo, rloo
from kleash.config.algorithms import Grpo, Kl, Rloo
from kleash.kl.exact import LinearKL
from kleash.training.objective import Rows, charge_for_drift, count_truncated, make_objective

REWARDS = torch.tensor([[0.0, 1.0, 5.0]])
ALL = torch.ones(1, 3, dtype=torch.bool)
MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])


def rows(policy: Tensor, behavior: Tensor, kl: Tensor | None = None) -> Rows:
    masked = torch.where(MASK, policy, 0.0)
    drift = torch.where(MASK, torch.full_like(policy, 0.5) if kl is None else kl, 0.0)
    reference = torch.where(MASK, policy.detach() - 0.3, 0.0)
    return Rows(LinearKL(masked, reference, drift, drift, drift), torch.where(MASK, behavior, 0.0), MASK)


def logprobs(requires_grad=True):
    torch.manual_seed(0)
    return (-torch.rand(2, 4, dtype=torch.float64) - 0.5).requires_grad_(requires_grad)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Rloo(), [-3.0, -1.5, 4.5]),
        (Grpo(), [-2.0, -1.0, 3.0]),
        (Grpo(scale_rewards="group"), [-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5]),
    ],
    ids=["RLOO", "Dr. GRPO", "GRPO"],
)
def test_each_algorithm_has_its_advantages(settings, expected):
    advantages = make_objective(settings).advantages(REWARDS, ALL)
    assert advantages.tolist()[0] == pytest.approx(expected, abs=1e-3)


def policy_gradient(settings, advantages, ratio):
    policy = logprobs()
    objective = make_objective(settings)
    loss = objective.policy_loss(rows(policy, policy.detach() - torch.log(ratio)), advantages, 3.0)
    loss.values.sum().backward()
    return policy.grad, loss


def test_rloo_weighs_every_token_alike():
    gradient, _ = policy_gradient(Rloo(), torch.tensor([2.0, -1.0]).double(), torch.tensor(1.0).double())
    assert gradient.tolist() == [[-2.0] * 4, [1.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("normalization", "weights"), [("constant", (1, 1)), ("token", (1, 1)), ("sequence", (3 / 4, 3 / 2))]
)
def test_grpo_normalizes_the_policy_term_only(normalization, weights):
    settings = Grpo(loss_normalization=normalization)
    gradient, _ = policy_gradient(settings, torch.tensor([2.0, -1.0]).double(), torch.tensor(1.0).double())
    first, second = weights
    assert gradient.tolist() == [
        pytest.approx([-2.0 * first] * 4),
        pytest.approx([second, second, 0.0, 0.0]),
    ]


@pytest.mark.parametrize(
    ("settings", "clipped"),
    [
        (Grpo(epsilon=0.2), True),
        (Grpo(epsilon=0.2, epsilon_high=0.28), False),
        (Rloo(epsilon=0.2), True),
    ],
    ids=["GRPO", "DAPO's clip-higher", "RLOO: 1.25 a token is 2.4 a sequence"],
)
def test_the_clip_cuts_where_it_should(settings, clipped):
    gradient, loss = policy_gradient(settings, torch.tensor([1.0, 1.0]).double(), torch.tensor(1.25).double())
    assert bool(loss.clipped.any()) == clipped
    assert bool((gradient == 0).all()) == clipped


@pytest.mark.parametrize(
    "kl",
    [
        Kl(),
        Kl(scope="token"),
        Kl(estimator="k2", scope="token"),
        Kl(estimator="k3", scope="token"),
        Kl(estimator="k1", placement="reward"),
        Kl(estimator="k1", placement="reward", credit="sequence"),
    ],
    ids=lambda kl: f"{kl.estimator}-{kl.scope}-{kl.credit}",
)
@pytest.mark.parametrize("algorithm", [Rloo, Grpo])
def test_the_penalty_is_a_sum_over_tokens_whatever_the_algorithm(kl, algorithm):
    """On-policy, each token of KL 0.5 and log-ratio 0.3: a reply pays for its 4 or 2 tokens, never for a mean."""
    token = {"exact": 0.5, "k1": 0.3, "k2": 0.045, "k3": float(torch.tensor(-0.3).double().expm1() + 0.3)}[kl.estimator]
    policy = logprobs(requires_grad=False)
    objective = make_objective(algorithm(kl=kl, num_generations=2))
    values = objective.penalty(rows(policy, policy))
    assert values.tolist() == pytest.approx([4 * token, 2 * token])


def test_scope_token_and_scope_sequence_differ_in_gradient():
    gradients = []
    for kl in (Kl(), Kl(scope="token")):
        policy = logprobs()
        drift = policy**2
        charge_for_drift(kl, rows(policy, policy.detach(), drift), 2).sum().backward()
        gradients.append(policy.grad)
    assert not torch.allclose(*gradients)
    torch.testing.assert_close(gradients[1], torch.where(MASK, 2 * logprobs(False), 0.0))


def test_cut_weights_are_counted():
    policy = logprobs(requires_grad=False)
    behavior = policy - 0.5
    assert count_truncated(Kl(max_weight=2.0), rows(policy, behavior)) == 4
    assert count_truncated(Kl(), rows(policy, behavior)) == 0


def test_the_objective_is_made_of_the_functions_of_its_file():
    assert make_objective(Rloo()).advantages is rloo.advantages
    assert make_objective(Grpo()).advantages is grpo.advantages
    assert make_objective(Grpo(scale_rewards="group")).advantages is grpo.scaled_advantages
