"""The critic's clipped loss by hand: value before is 1, epsilon 0.2."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.autograd import gradcheck

from kleash.ops.value_losses import clipped_value_loss

ROW = torch.tensor([[1.1, 1.5, 1.5, 0.4, 1.5]], dtype=torch.float64)
BEFORE = torch.ones(1, 5, dtype=torch.float64)
RETURNS = torch.tensor([[2.0, 2.0, 0.0, 0.0, 1.3]], dtype=torch.float64)
ALL = torch.ones(1, 5, dtype=torch.bool)


def test_by_hand():
    """Within the range; beyond it towards, away, towards; beyond it past a return outside the range."""
    loss = clipped_value_loss(ROW, BEFORE, RETURNS, ALL, 0.2)
    expected = [[0.5 * 0.9**2, 0.5 * 0.8**2, 0.5 * 1.5**2, 0.5 * 0.8**2, 0.5 * 0.2**2]]
    torch.testing.assert_close(loss.values, torch.tensor(expected, dtype=torch.float64))
    assert loss.clipped.tolist() == [[False, True, False, True, False]]


def test_the_gradient_is_the_error_and_zero_where_clipped():
    values, before, returns = (x.clone().requires_grad_() for x in (ROW, BEFORE, RETURNS))
    clipped_value_loss(values, before, returns, ALL, 0.2).values.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([[-0.9, 0.0, 1.5, 0.0, 0.2]], dtype=torch.float64))
    assert before.grad is None
    assert returns.grad is None
    assert gradcheck(lambda v: clipped_value_loss(v, BEFORE, RETURNS, ALL, 0.2).values, (values,))


def test_nothing_is_clipped_on_fresh_samples():
    values = BEFORE.clone().requires_grad_()
    loss = clipped_value_loss(values, values.detach(), RETURNS, ALL, 0.2)
    assert not loss.clipped.any()
    loss.values.sum().backward()
    torch.testing.assert_close(values.grad, BEFORE - RETURNS)


def test_outside_the_mask_is_0_and_not_clipped():
    mask = torch.tensor([[True, False, False, False, False]])
    loss = clipped_value_loss(ROW, BEFORE, RETURNS, mask, 0.2)
    assert loss.values[0, 1:].tolist() == [0.0] * 4
    assert not loss.clipped.any()
    empty = clipped_value_loss(ROW, BEFORE, RETURNS, torch.zeros_like(ALL), 0.2)
    assert float(empty.values.sum()) == 0.0


def test_wrong_shapes_are_refused():
    with pytest.raises(TypeCheckError, match="returns"):
        clipped_value_loss(ROW, BEFORE, RETURNS[:, :4], ALL, 0.2)
