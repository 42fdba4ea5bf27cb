"""Every allowed penalty follows the gradient it declares; every refused one deserves its reason."""

from itertools import product

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
from population import TOY, TRUE_GRADIENT, expected_gradient

from kleash.choices import ALLOWED, RESEARCH_ONLY, penalty
from kleash.errors import ConfigError
from kleash.kl import estimators

OCCUPANCY = truth.occupancy(truth.POLICY)
PARTIAL_REVERSE = truth.partial_reverse_gradient(truth.POLICY, truth.REFERENCE, OCCUPANCY)
PARTIAL_FORWARD = truth.partial_forward_gradient(truth.POLICY, truth.REFERENCE, OCCUPANCY)

IMPLEMENTED = {
    ("exact", "sequence", "loss"): (kleash_on.exact_sequence, TRUE_GRADIENT),
    ("exact", "token", "loss"): (kleash_on.exact_token, PARTIAL_REVERSE),
    ("k1", "sequence", "reward"): (kleash_on.k1_reward_to_go, TRUE_GRADIENT),
    ("k2", "token", "loss"): (kleash_on.k2_loss, PARTIAL_REVERSE),
    ("k3", "token", "loss"): (kleash_on.k3_loss, PARTIAL_FORWARD),
}
RESEARCH = {
    ("k1", "token", "loss"): (kleash_on.k1_loss, np.zeros((7, 3))),
    ("k3", "sequence", "reward"): (kleash_on.k3_reward_to_go, TRUE_GRADIENT - PARTIAL_FORWARD),
}
REFUSED = {
    ("k1", "token", "loss"): "expected gradient of k1 as a loss is zero",
    ("k1", "sequence", "loss"): "expected gradient of k1 as a loss is zero",
    ("k1", "token", "reward"): "leaves out the drift a token causes later",
    ("exact", "sequence", "reward"): "the direct gradient is lost",
    ("exact", "token", "reward"): "nothing is left of its gradient",
    ("k2", "sequence", "loss"): "does follow the KL's gradient, but with a variance",
    ("k2", "sequence", "reward"): "the gradient of another quantity",
    ("k2", "token", "reward"): "the gradient of another quantity",
    ("k3", "sequence", "loss"): "the gradient of the forward KL",
    ("k3", "sequence", "reward"): "can push away from the reference",
    ("k3", "token", "reward"): "can push away from the reference",
}


def test_every_combination_is_either_allowed_or_refused():
    everything = set(product(["exact", "k1", "k2", "k3"], ["sequence", "token"], ["loss", "reward"]))
    assert IMPLEMENTED.keys() | REFUSED.keys() == everything
    assert {(c.estimator, c.scope, c.placement) for c in ALLOWED} == IMPLEMENTED.keys()


@pytest.mark.parametrize("choice", IMPLEMENTED, ids="-".join)
def test_an_allowed_penalty_has_the_gradient_it_declares(choice):
    surrogate, expected = IMPLEMENTED[choice]
    np.testing.assert_allclose(expected_gradient(surrogate), expected, rtol=0, atol=1e-9)
    declared = penalty(*choice).gradient
    assert ("partial" in declared) == (expected is not TRUE_GRADIENT)
    assert ("forward" in declared) == (expected is PARTIAL_FORWARD)


@pytest.mark.parametrize("choice", IMPLEMENTED, ids="-".join)
def test_a_penalty_is_on_policy_only_when_it_is_biased_off_policy(choice):
    surrogate, expected = IMPLEMENTED[choice]
    gradient = expected_gradient(surrogate, sampler=kleash_on.BEHAVIOR)
    biased = truth.relative_error(gradient, expected) > 1e-9
    assert penalty(*choice).on_policy_only == biased


@pytest.mark.parametrize(("choice", "reason"), REFUSED.items(), ids=["-".join(c) for c in REFUSED])
def test_a_refusal_names_the_choice_and_the_reason(choice, reason):
    with pytest.raises(ConfigError) as refusal:
        penalty(*choice)
    message = str(refusal.value)
    estimator, scope, placement = choice
    assert f"estimator = '{estimator}', scope = '{scope}', placement = '{placement}' is refused" in message
    assert reason in message


@pytest.mark.parametrize("choice", RESEARCH, ids="-".join)
@pytest.mark.parametrize("population", [kleash_on.everyone, kleash_on.pairs], ids=["alone", "baseline"])
def test_a_penalty_for_research_has_the_gradient_it_declares(choice, population):
    surrogate, expected = RESEARCH[choice]
    np.testing.assert_allclose(expected_gradient(surrogate, population), expected, rtol=0, atol=1e-9)
    assert {one.names for one in RESEARCH_ONLY} == RESEARCH.keys()
    declared = penalty(*choice, research_only=True)
    assert ("zero" in declared.gradient) == (not expected.any())
    assert ("forward" in declared.gradient) == bool(expected.any())


def test_k3_in_the_reward_keeps_its_gradient_off_policy():
    surrogate, expected = RESEARCH["k3", "sequence", "reward"]
    np.testing.assert_allclose(expected_gradient(surrogate, sampler=kleash_on.BEHAVIOR), expected, rtol=0, atol=1e-9)


def test_what_is_for_research_says_so_when_it_is_refused():
    for choice in REFUSED:
        with pytest.raises(ConfigError) as refusal:
            penalty(*choice)
        assert ("research_only = true lets it run" in str(refusal.value)) == (choice in RESEARCH)


@pytest.mark.parametrize("choice", sorted(REFUSED.keys() - RESEARCH.keys()), ids="-".join)
def test_research_only_lets_nothing_else_run(choice):
    with pytest.raises(ConfigError, match=r"is refused.*lets only 'k1' with scope 'token' in the loss and 'k3' with"):
        penalty(*choice, research_only=True)


def test_research_only_is_refused_where_it_has_no_effect():
    with pytest.raises(ConfigError, match=r"scope = 'sequence', placement = 'loss' is none. Leave research_only out"):
        penalty("exact", "sequence", "loss", research_only=True)


def as_reward_to_go(value):
    """A number at each token, paid to that token and the ones before it."""

    def surrogate(s, group_size):
        paid = value(s).detach().where(s.mask, 0.0)
        return (s.weights * paid).sum(1)

    return surrogate


def at_its_own_token(value):
    """A number at each token, paid to that token alone."""

    def surrogate(s, group_size):
        paid = value(s).detach().where(s.mask, 0.0)
        return (s.policy * paid).sum(1)

    return surrogate


def k1(s):
    return estimators.k1(s.policy, s.reference)


def k2(s):
    return estimators.k2(s.policy, s.reference)


def k3(s):
    return estimators.k3(s.policy, s.reference)


def absolute(s):
    return k1(s).abs()


def test_k1_paid_at_its_own_token_is_only_a_partial_gradient():
    np.testing.assert_allclose(expected_gradient(at_its_own_token(k1)), PARTIAL_REVERSE, rtol=0, atol=1e-9)


def test_exact_in_the_reward_keeps_only_the_future_part():
    gradient = expected_gradient(as_reward_to_go(lambda s: s.kl))
    np.testing.assert_allclose(gradient, TRUE_GRADIENT - PARTIAL_REVERSE, rtol=0, atol=1e-9)


def test_exact_in_the_reward_of_its_own_token_does_nothing():
    np.testing.assert_allclose(expected_gradient(at_its_own_token(lambda s: s.kl)), 0, atol=1e-9)


def test_k2_in_the_reward_misses_the_kl():
    for paid in (as_reward_to_go(k2), at_its_own_token(k2)):
        assert truth.relative_error(expected_gradient(paid), TRUE_GRADIENT) > 0.3


def test_k3_in_the_reward_is_reverse_minus_forward_and_pushes_away():
    whole = expected_gradient(as_reward_to_go(k3))
    own = expected_gradient(at_its_own_token(k3))
    np.testing.assert_allclose(whole, TRUE_GRADIENT - PARTIAL_FORWARD, rtol=0, atol=1e-9)
    np.testing.assert_allclose(own, PARTIAL_REVERSE - PARTIAL_FORWARD, rtol=0, atol=1e-9)
    assert truth.cosine(whole, TRUE_GRADIENT) < 0


def test_the_absolute_log_ratio_is_refused_for_what_it_does():
    with pytest.raises(ConfigError, match=r"estimator = 'abs' is refused.*not a KL's"):
        penalty("abs", "token", "loss")
    near = 0.95 * kleash_on.REFERENCE + 0.05 * kleash_on.POLICY
    batch = kleash_on.everyone(near)
    gradient = kleash_on.gradient_at(
        lambda x: batch.mean(absolute(kleash_on.score(x, batch)).where(TOY.response_mask, 0.0).sum(1)), near
    )
    expected = truth.reverse_kl_gradient(near.numpy(), truth.REFERENCE)
    assert np.linalg.norm(gradient) > 10 * np.linalg.norm(expected)


@pytest.mark.parametrize(("elsewhere", "here"), [("low_var_kl", "k3"), ("kl", "k1"), ("mse", "k2"), ("full", "exact")])
def test_the_names_of_other_trainers_are_translated_not_accepted(elsewhere, here):
    with pytest.raises(ConfigError, match=f"estimator = '{elsewhere}' is called '{here}' here"):
        penalty(elsewhere, "token", "loss")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("k4", "token", "loss"), "estimator = 'k4' is unknown. Choose one of exact, k1, k2, k3"),
        (("exact", "episode", "loss"), "scope = 'episode' with placement = 'loss' is unknown"),
        (("exact", "token", "advantage"), "scope = 'token' with placement = 'advantage' is unknown"),
    ],
)
def test_unknown_names_list_the_known_ones(choice, message):
    with pytest.raises(ConfigError) as refusal:
        penalty(*choice)
    assert message in str(refusal.value)
