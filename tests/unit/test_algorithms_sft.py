"""The loss of SFT by hand: a sum and a count."""

from math import log

import pytest
import torch
from jaxtyping import TypeCheckError

from kleash.algorithms import sft

LOGPROBS = torch.tensor([[0.5, 0.25, 0.125], [0.5, 0.1, 0.1]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_by_hand():
    loss = sft.loss(LOGPROBS, MASK)
    assert float(loss.total) == pytest.approx((1 + 2 + 3 + 1) * log(2))
    assert int(loss.tokens) == 4


def test_cutting_a_batch_changes_nothing_where_a_mean_of_means_would():
    whole, parts = sft.loss(LOGPROBS, MASK), [sft.loss(LOGPROBS[[row]], MASK[[row]]) for row in (0, 1)]
    torch.testing.assert_close(sum(part.total for part in parts), whole.total)
    assert sum(part.tokens for part in parts) == whole.tokens
    assert sum(part.total / part.tokens for part in parts) / 2 != pytest.approx(float(whole.total / whole.tokens))


def test_flat_tokens_are_the_same():
    torch.testing.assert_close(sft.loss(LOGPROBS.flatten(), MASK.flatten()), sft.loss(LOGPROBS, MASK))


def test_each_counted_token_has_the_same_gradient():
    logprobs = LOGPROBS.clone().requires_grad_()
    sft.loss(logprobs, MASK).total.backward()
    assert logprobs.grad.tolist() == [[-1.0, -1.0, -1.0], [-1.0, 0.0, 0.0]]


def test_an_empty_mask_is_0_of_0_and_has_a_backward():
    logprobs = LOGPROBS.clone().requires_grad_()
    loss = sft.loss(logprobs, torch.zeros_like(MASK))
    assert (loss.total.item(), loss.tokens.item()) == (0.0, 0)
    loss.total.backward()
    assert (logprobs.grad == 0).all()


def test_wrong_shapes_are_refused():
    with pytest.raises(TypeCheckError, match="mask"):
        sft.loss(LOGPROBS, MASK[:, :2])
