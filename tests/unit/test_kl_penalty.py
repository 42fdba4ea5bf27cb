"""Gradients of the penalty where importance weights are cut, by hand."""

import pytest
import torch

from kleash.config.algorithms import Kl
from kleash.config.loader import load
from kleash.errors import ConfigError
from kleash.kl.exact import LinearKL
from kleash.training.objective import Rows, charge_for_drift

RATIOS = torch.tensor([[2.0, 0.5, 1.0], [1.2, 0.5, 1.0]], dtype=torch.float64)
WEIGHTS = [[1.5, 1.0, 1.0], [1.2, 0.6, 0.6]]
"""Products of the ratios: the first is 2, and cut at 1.5."""
KL = [[0.3, 0.5, 0.7], [0.2, 0.4, 0.9]]
K1 = [[0.6, -0.1, 0.4], [-0.3, 0.8, 0.5]]
MASK = torch.ones(2, 3, dtype=torch.bool)


def gradient(settings):
    """Of the sum of both rows' penalties to the log-probabilities of their tokens."""
    behavior = torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.5, -1.1]], dtype=torch.float64)
    policy = (behavior + RATIOS.log()).requires_grad_()
    drift = torch.tensor(KL, dtype=torch.float64)
    reference = policy.detach() - torch.tensor(K1, dtype=torch.float64)
    rows = Rows(LinearKL(policy, reference, drift, drift, drift), behavior, MASK)
    charge_for_drift(settings, rows, 2).sum().backward()
    return policy.grad


def test_a_cut_weight_neither_charges_nor_has_a_baseline_in_the_exact_penalty():
    """S = KL_1 + w_1 KL_2 + w_2 KL_3, and each weight is differentiated through its factors unless it is cut."""
    (_, w2, _), (v1, v2, _) = WEIGHTS
    (_, k2, k3), (_, l2, l3) = KL
    later_of_first, later_of_second = 1.5 * k2 + w2 * k3, v2 * l3
    expected = [
        [w2 * k3, w2 * k3 - w2 * later_of_second, 0.0],
        [v1 * l2 + v2 * l3 - v1 * later_of_first, v2 * l3 - v2 * (w2 * k3), 0.0],
    ]
    torch.testing.assert_close(gradient(Kl(max_weight=1.5)), torch.tensor(expected, dtype=torch.float64))


def test_a_cut_weight_neither_charges_nor_has_a_baseline_in_the_k1_penalty():
    """S = w_1 k_1 + w_2 k_2 + w_3 k_3; a token's baseline is what the other reply still has to pay from there on."""
    (_, w2, w3), (v1, v2, v3) = WEIGHTS
    (k1, k2, k3), (l1, l2, l3) = K1
    first = [1.5 * k1 + w2 * k2 + w3 * k3, w2 * k2 + w3 * k3, w3 * k3]
    second = [v1 * l1 + v2 * l2 + v3 * l3, v2 * l2 + v3 * l3, v3 * l3]
    expected = [
        [w2 * k2 + w3 * k3, first[1] - w2 * second[1], first[2] - w3 * second[2]],
        [second[0] - v1 * first[0], second[1] - v2 * first[1], second[2] - v3 * first[2]],
    ]
    settings = Kl(estimator="k1", placement="reward", max_weight=1.5)
    torch.testing.assert_close(gradient(settings), torch.tensor(expected, dtype=torch.float64))


def test_without_a_bound_every_weight_charges_and_has_a_baseline():
    (_, w2, _), (v1, v2, _) = WEIGHTS
    (_, k2, k3), (_, l2, l3) = KL
    expected = [
        [2 * k2 + w2 * k3 - 2 * (v1 * l2 + v2 * l3), w2 * k3 - w2 * (v2 * l3), 0.0],
        [v1 * l2 + v2 * l3 - v1 * (2 * k2 + w2 * k3), v2 * l3 - v2 * (w2 * k3), 0.0],
    ]
    torch.testing.assert_close(gradient(Kl()), torch.tensor(expected, dtype=torch.float64))


def test_weights_are_not_cut_below_one():
    """On-policy every weight is 1: a lower bound would cut them all."""
    required = ["model=demo", "prompts=demo", "reward=rewards:score", "training.num_epochs=2"]
    with pytest.raises(ConfigError, match=r"algorithm\.kl\.max_weight = 0\.9"):
        load(None, [*required, "algorithm.kl.max_weight=0.9"])
    assert load(None, [*required, "algorithm.kl.max_weight=1"]).config.algorithm.kl.max_weight == 1
