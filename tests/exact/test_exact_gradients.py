"""What each penalty's expected gradient is, on- and off-policy: Kleash's autograd against enumeration."""

import enumeration as truth
import numpy as np
import population as kleash_on
import pytest
import torch
from population import TOY, TRUE_GRADIENT, expected_gradient
from printed import assert_prints

from kleash.kl import estimators, penalty

SAMPLERS = {
    "behavior": TOY.behavior_logits,
    "another": TOY.policy_logits + 0.4 * torch.sin(0.9 * torch.arange(21.0, dtype=torch.float64).view(7, 3) + 1),
}
SEQUENCE_PENALTIES = [kleash_on.exact_sequence, kleash_on.k1_reward_to_go, kleash_on.k1_sequence]


def equal(gradient, expected):
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("surrogate", SEQUENCE_PENALTIES)
@pytest.mark.parametrize("sampler", [None, *SAMPLERS.values()], ids=["on-policy", *SAMPLERS])
@pytest.mark.parametrize("population", [kleash_on.everyone, kleash_on.pairs], ids=["alone", "baseline"])
def test_sequence_penalties_follow_the_sequence_kl(surrogate, sampler, population):
    equal(expected_gradient(surrogate, population, sampler), TRUE_GRADIENT)


@pytest.mark.parametrize("surrogate", SEQUENCE_PENALTIES)
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_sequence_penalties_have_the_value_of_the_sequence_kl(surrogate, sampler):
    p, q = truth.distribution(truth.POLICY), truth.distribution(truth.REFERENCE)
    batch = kleash_on.pairs(sampler)
    scored = kleash_on.score(TOY.policy_logits, batch, sampler)
    assert float(batch.mean(surrogate(scored, 2))) == pytest.approx(truth.kl(p, q), abs=1e-12)


@pytest.mark.parametrize("surrogate", [kleash_on.exact_token, kleash_on.k2_loss])
def test_exact_token_and_k2_follow_the_partial_gradient(surrogate):
    occupancy = truth.occupancy(truth.POLICY)
    gradient = expected_gradient(surrogate)
    equal(gradient, truth.partial_reverse_gradient(truth.POLICY, truth.REFERENCE, occupancy))
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".2489")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), ".9747")


def test_k3_as_loss_follows_the_partial_gradient_of_the_forward_kl():
    occupancy = truth.occupancy(truth.POLICY)
    gradient = expected_gradient(kleash_on.k3_loss)
    equal(gradient, truth.partial_forward_gradient(truth.POLICY, truth.REFERENCE, occupancy))
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".2020")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), ".9901")


def test_k1_as_loss_has_no_gradient_and_plenty_of_noise():
    equal(expected_gradient(kleash_on.k1_loss), np.zeros((7, 3)))
    assert kleash_on.total_variance(kleash_on.k1_loss) > 0.1


def sequence_logratio(s, estimator):
    return estimator(s.policy.sum(1), s.reference.sum(1))


def test_k2_of_the_sequence_is_exact_but_noisy():
    def surrogate(s, group_size):
        return sequence_logratio(s, estimators.k2)

    equal(expected_gradient(surrogate), TRUE_GRADIENT)
    noise = kleash_on.total_variance(surrogate)
    assert noise > 5 * kleash_on.total_variance(kleash_on.exact_sequence)


def test_k3_of_the_sequence_follows_the_forward_kl():
    gradient = expected_gradient(lambda s, group_size: sequence_logratio(s, estimators.k3))
    equal(gradient, truth.forward_kl_gradient(truth.POLICY, truth.REFERENCE))
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".2486")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), ".9844")


def test_k3_in_the_reward_can_push_the_wrong_way():
    gradient = expected_gradient(kleash_on.k3_reward)
    forward = truth.partial_forward_gradient(truth.POLICY, truth.REFERENCE, truth.occupancy(truth.POLICY))
    equal(gradient, TRUE_GRADIENT - forward)
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), "1.1355")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), "-.6152")


@pytest.mark.parametrize(("share", "error"), [(1.0, "0.000"), (0.5, ".5000")])
def test_k3_in_reward_and_loss_needs_the_full_beta_in_each(share, error):
    gradient = expected_gradient(lambda s, _: share * (kleash_on.k3_reward(s) + kleash_on.k3_loss(s)))
    equal(gradient, share * TRUE_GRADIENT)
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), error)


def test_dividing_by_the_length_distorts_the_gradient():
    gradient = expected_gradient(lambda s, _: kleash_on.k2_loss(s) / s.mask.sum(1))
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".4332")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), ".9535")


@pytest.mark.parametrize(
    ("surrogate", "error", "cosine"),
    [(kleash_on.k2_loss, ".3061", ".958"), (kleash_on.k3_loss, ".1920", ".985")],
)
def test_estimators_in_the_loss_are_biased_off_policy(surrogate, error, cosine):
    gradient = expected_gradient(surrogate, sampler=SAMPLERS["another"])
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), error)
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), cosine)


def test_token_weighted_k3_is_a_partial_gradient_at_the_samplers_prefixes():
    sampler = SAMPLERS["another"]
    behavior = TOY.token_logprobs(sampler)

    def surrogate(s, group_size):
        ratio = (s.policy - behavior).exp()
        return penalty.estimator_token(ratio * estimators.k3(s.policy, s.reference), s.mask)

    gradient = expected_gradient(surrogate, sampler=sampler)
    occupancy = truth.occupancy(sampler.numpy())
    equal(gradient, truth.partial_reverse_gradient(truth.POLICY, truth.REFERENCE, occupancy))
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".2594")
    assert_prints(truth.cosine(gradient, TRUE_GRADIENT), ".9743")


def test_exact_penalty_without_weights_is_biased_off_policy():
    def surrogate(s, group_size):
        as_if_on_policy = penalty.cumulative_weights(s.policy, s.policy.detach(), s.mask)
        return kleash_on.exact_sequence(s._replace(weights=as_if_on_policy))

    gradient = expected_gradient(surrogate, sampler=TOY.behavior_logits)
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".118")


def test_exact_penalty_with_ppo_ratios_is_biased_off_policy():
    behavior = TOY.token_logprobs(TOY.behavior_logits)

    def surrogate(s, group_size):
        kl = torch.where(s.mask, s.kl, 0.0)
        future = (kl.flip(1).cumsum(1).flip(1) - kl).detach()
        return (kl + (s.policy - behavior).exp() * future).sum(1)

    gradient = expected_gradient(surrogate, sampler=TOY.behavior_logits)
    assert_prints(truth.relative_error(gradient, TRUE_GRADIENT), ".105")


def test_truncated_weights_are_exact_until_they_cut():
    behavior = TOY.token_logprobs(TOY.behavior_logits)

    def gradient(max_weight):
        def surrogate(s, group_size):
            weights = penalty.truncated_weights(s.policy, behavior, s.mask, max_weight)
            return kleash_on.exact_sequence(s._replace(weights=weights))

        return expected_gradient(surrogate, sampler=TOY.behavior_logits)

    equal(gradient(1e6), TRUE_GRADIENT)
    assert truth.relative_error(gradient(1.05), TRUE_GRADIENT) > 0.01


@pytest.mark.parametrize(
    ("surrogate", "variance"),
    [
        (kleash_on.exact_sequence, ".0352"),
        (kleash_on.k1_reward_to_go, ".277"),
        (kleash_on.k1_sequence, ".342"),
    ],
)
def test_variance_of_the_sequence_penalties(surrogate, variance):
    assert_prints(kleash_on.total_variance(surrogate), variance)


def test_the_baseline_of_one_other_sample_pays_off_once_the_policy_has_drifted():
    far = TOY.reference_logits + 4 * (TOY.policy_logits - TOY.reference_logits)
    with_baseline = kleash_on.total_variance(kleash_on.exact_sequence, kleash_on.pairs, far)
    without = kleash_on.total_variance(lambda s, _: kleash_on.exact_sequence(s), kleash_on.pairs, far)
    assert with_baseline < 0.85 * without


def test_the_baseline_of_two_other_samples_pays_off_at_once():
    with_baseline = kleash_on.total_variance(kleash_on.exact_sequence, kleash_on.triples)
    without = kleash_on.total_variance(lambda s, _: kleash_on.exact_sequence(s), kleash_on.triples)
    assert with_baseline < without


@pytest.mark.parametrize(
    "surrogate",
    [*SEQUENCE_PENALTIES, kleash_on.exact_token, kleash_on.k2_loss, kleash_on.k3_loss],
)
def test_padding_does_not_count(surrogate):
    batch = kleash_on.pairs(TOY.behavior_logits)

    def value(logits, pad):
        s = kleash_on.score(logits, batch, TOY.behavior_logits)
        policy, reference, kl = (torch.where(s.mask, x, y) for x, y in zip(s[:3], pad, strict=True))
        behavior = torch.where(s.mask, TOY.token_logprobs(TOY.behavior_logits)[batch.rows], pad[2])
        weights = penalty.cumulative_weights(policy, behavior, s.mask)
        scored = kleash_on.Scored(policy, reference, kl, weights, s.mask)
        return batch.mean(surrogate(scored, 2))

    pads = [(-3.0, -1.0, 7.0), (0.0, 0.0, 0.0)]
    full, empty = (kleash_on.gradient_at(lambda x, pad=pad: value(x, pad)) for pad in pads)
    np.testing.assert_array_equal(full, empty)
    assert value(TOY.policy_logits, pads[0]) == value(TOY.policy_logits, pads[1])
