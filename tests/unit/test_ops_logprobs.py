"""`linear_logprobs` against all logits in memory: values, gradients, chunks, memory and what it refuses."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from kleash.ops import logprobs
from kleash.ops.logprobs import linear_logprobs

few = settings(max_examples=30, deadline=None)


def make_case(seed, count, vocabulary, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 4, generator=random, dtype=dtype)
    head = torch.randn(vocabulary, 4, generator=random, dtype=dtype)
    return hidden, head, torch.randint(vocabulary, (count,), generator=random)


cases = st.builds(make_case, st.integers(0, 2**32), st.integers(1, 9), st.integers(2, 12))
temperatures = st.sampled_from([0.7, 1.0, 1.5])


def with_all_logits(hidden, head, targets, temperature=1.0):
    return torch.log_softmax(hidden @ head.T / temperature, dim=1)[torch.arange(len(targets)), targets]


def gradients(function, case, **options):
    hidden, head = (x.clone().requires_grad_() for x in case[:2])
    weights = torch.arange(1.0, len(hidden) + 1, dtype=hidden.dtype).sin()
    return torch.autograd.grad(weights @ function(hidden, head, case[2], **options), (hidden, head))


@pytest.fixture(params=["kept", "made again"])
def _logits_are(request, monkeypatch):
    monkeypatch.setattr(logprobs, "KEEP_BYTES", {"kept": 200_000_000, "made again": 0}[request.param])


def test_by_hand():
    """Logits 0, log 2 and log 5: probabilities 1/8, 2/8, 5/8. Gradient to the logits: one-hot - p."""
    hidden = torch.ones(2, 1, dtype=torch.float64).requires_grad_()
    head = torch.tensor([[0.0], [math.log(2)], [math.log(5)]], dtype=torch.float64).requires_grad_()
    out = linear_logprobs(hidden, head, torch.tensor([0, 2]))
    torch.testing.assert_close(out.exp(), torch.tensor([1 / 8, 5 / 8], dtype=torch.float64))
    out[1].backward()
    torch.testing.assert_close(head.grad, torch.tensor([[-1 / 8], [-2 / 8], [3 / 8]], dtype=torch.float64))
    expected = -2 / 8 * math.log(2) + 3 / 8 * math.log(5)
    torch.testing.assert_close(hidden.grad, torch.tensor([[0.0], [expected]], dtype=torch.float64))


@pytest.mark.usefixtures("_logits_are")
@pytest.mark.parametrize("chunk_size", [1, 2, 100, None])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_chunks_change_neither_values_nor_gradients(chunk_size, temperature):
    case, options = make_case(3, 7, 11), {"temperature": temperature, "chunk_size": chunk_size}
    torch.testing.assert_close(linear_logprobs(*case, **options), with_all_logits(*case, temperature))
    ours = gradients(linear_logprobs, case, **options)
    torch.testing.assert_close(ours, gradients(with_all_logits, case, temperature=temperature))


@few
@given(cases, temperatures, st.integers(1, 12))
def test_values_and_gradients_are_those_of_all_logits(case, temperature, chunk_size):
    options = {"temperature": temperature, "chunk_size": chunk_size}
    torch.testing.assert_close(linear_logprobs(*case, **options), with_all_logits(*case, temperature))
    ours = gradients(linear_logprobs, case, **options)
    torch.testing.assert_close(ours, gradients(with_all_logits, case, temperature=temperature))


@pytest.mark.usefixtures("_logits_are")
def test_gradcheck():
    hidden, head, targets = make_case(0, 5, 6)
    inputs = (hidden.requires_grad_(), head.requires_grad_())
    assert torch.autograd.gradcheck(lambda h, w: linear_logprobs(h, w, targets, chunk_size=2), inputs)


@pytest.mark.parametrize("trained", [0, 1])
def test_only_what_is_trained_gets_a_gradient(trained):
    case = list(make_case(1, 5, 6))
    expected = gradients(with_all_logits, case)[trained]
    case[trained] = case[trained].requires_grad_()
    (torch.arange(1.0, 6.0, dtype=torch.float64).sin() @ linear_logprobs(*case, chunk_size=2)).backward()
    torch.testing.assert_close(case[trained].grad, expected)
    assert case[1 - trained].grad is None


def test_bfloat16_is_summed_in_float32():
    hidden, head, targets = make_case(2, 6, 300, torch.bfloat16)
    out = linear_logprobs(hidden.requires_grad_(), head, targets)
    logits = (hidden.detach() @ head.T).float()
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.detach(), logits.log_softmax(1)[torch.arange(6), targets])
    out.sum().backward()
    assert hidden.grad.dtype == torch.bfloat16


def test_large_logits_stay_finite():
    hidden = torch.tensor([[1e4], [1e4]]).requires_grad_()
    out = linear_logprobs(hidden, torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    assert out.tolist() == [0.0, -20000.0]
    out.sum().backward()
    assert hidden.grad.tolist() == [[0.0], [-2.0]]


def test_no_tokens_give_no_numbers_and_zero_gradients():
    hidden, head = torch.zeros(0, 4).requires_grad_(), torch.ones(5, 4).requires_grad_()
    out = linear_logprobs(hidden, head, torch.zeros(0, dtype=torch.long))
    assert out.shape == (0,)
    out.sum().backward()
    assert hidden.grad.shape == (0, 4)
    assert (head.grad == 0).all()


@pytest.mark.parametrize(("keep_bytes", "largest"), [(0, 50 * 4), (64 * 50 * 8, 64 * 50)])
def test_logits_of_all_tokens_are_held_only_where_they_are_small(monkeypatch, keep_bytes, largest):
    """Numbers in the largest tensor made for 64 tokens, 4 at a time, over a vocabulary of 50; 64 * 4 is the hidden."""
    monkeypatch.setattr(logprobs, "KEEP_BYTES", keep_bytes)
    hidden, head, targets = make_case(5, 64, 50)
    hidden.requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        linear_logprobs(hidden, head, targets, chunk_size=4).sum().backward()
    made = max(event.self_cpu_memory_usage for event in profile.events()) // 8
    assert made == max(largest, 64 * 4)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match=f"temperature = {temperature}: greedy sampling has no log-probabilities"):
        linear_logprobs(*make_case(4, 2, 5), temperature=temperature)


def test_wrong_shapes_are_refused():
    hidden, head, targets = make_case(4, 2, 5)
    with pytest.raises(TypeCheckError, match="targets"):
        linear_logprobs(hidden, head, targets[:1])
    with pytest.raises(TypeCheckError, match="head"):
        linear_logprobs(hidden, head[:, :3], targets)
