"""`exact.kl` and `linear_kl` against full logits in float64, and the properties every KL has."""

import enumeration as truth
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from population import POLICY, REFERENCE, TOY, TRUE_GRADIENT, everyone

from kleash.kl import exact, penalty
from kleash.ops.masks import to_rows

FIELDS = exact.LinearKL._fields
CHANGING = [field for field in FIELDS if field != "reference_logprobs"]
few = settings(max_examples=30, deadline=None)


class Case:
    """Random hidden states and heads: `count` tokens, two models of different width, one vocabulary."""

    def __init__(self, seed, count, vocabulary, scale=1.0):
        random = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return scale * torch.randn(*shape, generator=random, dtype=torch.float64)

        self.hidden, self.head = normal(count, 4), normal(vocabulary, 4)
        self.reference_hidden, self.reference_head = normal(count, 3), normal(vocabulary, 3)
        self.targets = torch.randint(vocabulary, (count,), generator=random)
        self.cotangents = normal(5, count)

    def arguments(self):
        return self.hidden, self.head, self.reference_hidden, self.reference_head, self.targets


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32),
    count=st.integers(1, 9),
    vocabulary=st.integers(2, 12),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
)
temperatures = st.sampled_from([0.7, 1.0, 1.5])


def full_logits(hidden, head, reference_hidden, reference_head, targets, *, temperature=1.0):
    """The same five numbers, with all logits in memory and autograd's own backward."""
    log_p = torch.log_softmax(hidden @ head.T / temperature, dim=-1)
    log_q = torch.log_softmax(reference_hidden @ reference_head.T / temperature, dim=-1)
    rows = torch.arange(len(targets))
    return exact.LinearKL(
        policy_logprobs=log_p[rows, targets],
        reference_logprobs=log_q[rows, targets],
        reverse_kl=(log_p.exp() * (log_p - log_q)).sum(-1),
        forward_kl=(log_q.exp() * (log_q - log_p)).sum(-1),
        entropy=-(log_p.exp() * log_p).sum(-1),
    )


def gradients(function, case, cotangents, **options):
    """Gradient of a weighted sum of outputs, with respect to the policy's hidden states and head."""
    hidden, head = (x.clone().requires_grad_() for x in (case.hidden, case.head))
    out = function(hidden, head, *case.arguments()[2:], **options)
    weighted = sum((getattr(out, field) * w).sum() for field, w in cotangents.items())
    return torch.autograd.grad(weighted, (hidden, head))


def all_outputs(case):
    return dict(zip(FIELDS, case.cotangents, strict=True))


def assert_same(left, right, tolerance=1e-11):
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@few
@given(cases, temperatures, st.integers(1, 12))
def test_values_are_those_of_full_logits(case, temperature, chunk_size):
    out = exact.linear_kl(*case.arguments(), temperature=temperature, chunk_size=chunk_size)
    assert_same(out, full_logits(*case.arguments(), temperature=temperature))


@pytest.mark.parametrize("field", CHANGING)
@few
@given(cases, temperatures, st.integers(1, 12))
def test_the_gradient_of_each_output_is_that_of_full_logits(field, case, temperature, chunk_size):
    cotangents = {field: case.cotangents[0]}
    ours = gradients(exact.linear_kl, case, cotangents, temperature=temperature, chunk_size=chunk_size)
    assert_same(ours, gradients(full_logits, case, cotangents, temperature=temperature))


@few
@given(cases, temperatures, st.integers(1, 12))
def test_the_gradient_of_all_outputs_together_is_that_of_full_logits(case, temperature, chunk_size):
    ours = gradients(exact.linear_kl, case, all_outputs(case), temperature=temperature, chunk_size=chunk_size)
    assert_same(ours, gradients(full_logits, case, all_outputs(case), temperature=temperature))


@few
@given(cases, st.integers(1, 12), st.integers(1, 12))
def test_the_chunk_size_changes_nothing(case, one, other):
    assert_same(
        exact.linear_kl(*case.arguments(), chunk_size=one),
        exact.linear_kl(*case.arguments(), chunk_size=other),
    )
    assert_same(
        gradients(exact.linear_kl, case, all_outputs(case), chunk_size=one),
        gradients(exact.linear_kl, case, all_outputs(case), chunk_size=other),
    )


@few
@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_tokens_changes_nothing(case, random):
    order = torch.tensor(random.sample(range(len(case.targets)), len(case.targets)))
    shuffled = exact.linear_kl(
        case.hidden[order],
        case.head,
        case.reference_hidden[order],
        case.reference_head,
        case.targets[order],
        chunk_size=2,
    )
    assert_same(shuffled, [x[order] for x in exact.linear_kl(*case.arguments(), chunk_size=2)])


@few
@given(cases, st.integers(1, 5))
def test_padding_tokens_change_nothing(case, extra):
    def padded(x):
        return torch.cat([x, torch.full_like(x[:1], 2).expand(extra, *x.shape[1:])])

    targets = torch.cat([case.targets, torch.zeros(extra, dtype=torch.long)])
    hidden, head = padded(case.hidden).requires_grad_(), case.head.clone().requires_grad_()
    out = exact.linear_kl(hidden, head, padded(case.reference_hidden), case.reference_head, targets, chunk_size=3)
    count = len(case.targets)
    assert_same([x[:count] for x in out], exact.linear_kl(*case.arguments(), chunk_size=3))

    weighted = sum((x[:count] * w).sum() for x, w in zip(out, case.cotangents, strict=True))
    of_hidden, of_head = torch.autograd.grad(weighted, (hidden, head))
    assert (of_hidden[count:] == 0).all()
    assert_same((of_hidden[:count], of_head), gradients(exact.linear_kl, case, all_outputs(case), chunk_size=3))


@few
@given(cases, st.randoms(use_true_random=False))
def test_renaming_the_tokens_of_both_models_changes_nothing(case, random):
    vocabulary = len(case.head)
    order = torch.tensor(random.sample(range(vocabulary), vocabulary))
    renamed = exact.linear_kl(
        case.hidden,
        case.head[order],
        case.reference_hidden,
        case.reference_head[order],
        order.argsort()[case.targets],
    )
    assert_same(renamed, exact.linear_kl(*case.arguments()))


@few
@given(cases, temperatures)
def test_pinsker_holds_in_both_directions(case, temperature):
    out = exact.linear_kl(*case.arguments(), temperature=temperature)
    p = torch.softmax(case.hidden @ case.head.T / temperature, -1)
    q = torch.softmax(case.reference_hidden @ case.reference_head.T / temperature, -1)
    total_variation = (p - q).abs().sum(-1) / 2
    assume(total_variation.min() > 1e-4)
    assert (out.reverse_kl >= 2 * total_variation**2 - 1e-12).all()
    assert (out.forward_kl >= 2 * total_variation**2 - 1e-12).all()
    assert (out.entropy >= -1e-12).all()
    assert (out.entropy <= np.log(len(case.head)) + 1e-12).all()


@few
@given(cases, temperatures, st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]))
def test_identical_models_are_at_exactly_zero(case, temperature, dtype):
    hidden, head = case.hidden.to(dtype), case.head.to(dtype)
    for reference_head in (head, head.clone()):
        out = exact.linear_kl(
            hidden, head, hidden.clone(), reference_head, case.targets, temperature=temperature, chunk_size=2
        )
        assert (out.reverse_kl == 0.0).all()
        assert (out.forward_kl == 0.0).all()
        assert (out.policy_logprobs == out.reference_logprobs).all()
    logits = hidden @ head.T
    assert (exact.kl(logits, logits.clone()) == 0.0).all()


@few
@given(cases)
def test_float32_keeps_six_digits(case):
    narrow = [x.float() if x.is_floating_point() else x for x in case.arguments()]
    wide = full_logits(*[x.double() if x.is_floating_point() else x for x in narrow])
    for ours, expected in zip(exact.linear_kl(*narrow), wide, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=3e-5)


@few
@given(cases)
def test_kl_of_logits_is_the_reverse_kl_and_swaps_to_the_forward_one(case):
    left, right = case.hidden @ case.head.T, case.reference_hidden @ case.reference_head.T
    expected = full_logits(*case.arguments())
    assert_same([exact.kl(left, right), exact.kl(right, left)], [expected.reverse_kl, expected.forward_kl])


@few
@given(cases, st.floats(-50, 50))
def test_kl_of_logits_ignores_a_constant(case, constant):
    left, right = case.hidden @ case.head.T, case.reference_hidden @ case.reference_head.T
    assert_same([exact.kl(left + constant, right - constant)], [exact.kl(left, right)], tolerance=1e-10)


def test_the_reference_gets_no_gradient():
    case = Case(seed=0, count=4, vocabulary=6)
    inputs = [x.clone().requires_grad_() for x in case.arguments()[:4]]
    out = exact.linear_kl(*inputs, case.targets)
    assert not out.reference_logprobs.requires_grad
    out.reverse_kl.sum().backward()
    assert inputs[2].grad is None
    assert inputs[3].grad is None


def test_a_head_that_both_models_share_is_trained_by_the_policys_side_alone():
    case = Case(seed=1, count=5, vocabulary=7)
    hidden, head = case.hidden, case.head.clone().requires_grad_()
    shifted = hidden + 0.3
    exact.linear_kl(hidden, head, shifted, head, case.targets).reverse_kl.sum().backward()
    expected = case.head.clone().requires_grad_()
    full_logits(hidden, expected, shifted, case.head, case.targets).reverse_kl.sum().backward()
    assert_same([head.grad], [expected.grad])


def test_no_tokens_give_no_numbers_and_zero_gradients():
    case = Case(seed=2, count=1, vocabulary=5)
    hidden, head = case.hidden[:0].requires_grad_(), case.head.requires_grad_()
    out = exact.linear_kl(hidden, head, case.reference_hidden[:0], case.reference_head, case.targets[:0])
    assert all(x.shape == (0,) for x in out)
    sum(getattr(out, field).sum() for field in CHANGING).backward()
    assert (head.grad == 0).all()


def test_two_vocabularies_are_refused():
    case = Case(seed=3, count=2, vocabulary=5)
    with pytest.raises(ValueError, match="policy and reference heads have 5 and 4 rows: a KL needs one vocabulary"):
        exact.linear_kl(case.hidden, case.head, case.reference_hidden, case.reference_head[:4], case.targets)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    case = Case(seed=4, count=2, vocabulary=5)
    with pytest.raises(ValueError, match=f"temperature = {temperature}: greedy sampling has no log-prob"):
        exact.linear_kl(*case.arguments(), temperature=temperature)


@pytest.mark.parametrize("chunk_size", [1, 4, 100])
def test_the_toy_through_hidden_states_has_the_true_gradient(chunk_size):
    mask, identity = TOY.response_mask, torch.eye(3, dtype=torch.float64)
    logits = POLICY.clone().requires_grad_()
    out = exact.linear_kl(
        TOY.token_logits(logits)[mask],
        identity,
        TOY.token_logits(REFERENCE)[mask],
        identity,
        TOY.tokens[mask],
        chunk_size=chunk_size,
    )
    policy, kl = to_rows(out.policy_logprobs, mask), to_rows(out.reverse_kl, mask)
    weights = penalty.cumulative_weights(policy, policy.detach(), mask)
    surrogate = everyone(POLICY).mean(penalty.exact_sequence(kl, policy, weights, mask, 1))
    (gradient,) = torch.autograd.grad(surrogate, logits)
    np.testing.assert_allclose(gradient.numpy(), TRUE_GRADIENT, rtol=0, atol=1e-9)

    p, q = truth.distribution(truth.POLICY), truth.distribution(truth.REFERENCE)
    assert float(surrogate.detach()) == pytest.approx(truth.kl(p, q), abs=1e-12)
    entropy = everyone(POLICY).mean(to_rows(out.entropy, mask).sum(1))
    assert float(entropy.detach()) == pytest.approx(truth.entropy(p), abs=1e-12)
    forward = everyone(REFERENCE).mean(to_rows(out.forward_kl, mask).sum(1))
    assert float(forward.detach()) == pytest.approx(truth.kl(q, p), abs=1e-12)
