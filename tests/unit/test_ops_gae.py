"""Generalised advantages and returns by hand."""

import pytest
import torch
from jaxtyping import TypeCheckError

from kleash.ops.gae import generalized_advantages, returns

REWARDS = torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
VALUES = torch.tensor([[0.5, 1.0, 3.0]], dtype=torch.float64)
ALL = torch.ones(1, 3, dtype=torch.bool)


def advantages(mask=ALL, rewards=REWARDS, values=VALUES, **options):
    return generalized_advantages(rewards, values, mask, **options).tolist()[0]


def test_by_hand():
    """Steps 1 + .5 * 1 - .5 = 1, .5 * 3 - 1 = .5 and 2 - 3 = -1, each decayed by .5 * .5 a token."""
    assert advantages(discount=0.5, trace=0.5) == [1 + 0.25 * (0.5 - 0.25), 0.5 - 0.25, -1.0]


def test_with_trace_0_each_step_stands_alone_and_with_1_the_rewards_to_go_do():
    assert advantages(trace=0.0) == [1 + 1.0 - 0.5, 3.0 - 1.0, 2.0 - 3.0]
    assert advantages(trace=1.0) == [3 - 0.5, 2 - 1.0, 2 - 3.0]


def test_the_defaults_are_no_discount_and_a_trace_of_095():
    assert advantages() == pytest.approx([1.5 + 0.95 * (2.0 - 0.95), 2.0 - 0.95, -1.0])


def test_nothing_is_earned_after_the_last_token_and_padding_is_not_read():
    mask = torch.tensor([[True, True, False]])
    padded = torch.tensor([[0.5, 1.0, torch.nan]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 0.0, torch.inf]], dtype=torch.float64)
    assert advantages(mask, rewards, padded, trace=0.5) == [1.5 - 0.5, -1.0, 0.0]


def test_a_hole_is_not_a_step_and_padding_may_be_on_the_left():
    hole = torch.tensor([[True, False, True]])
    assert advantages(hole, discount=0.5, trace=0.5) == [1 + 0.5 * 3 - 0.5 - 0.25, 0.0, -1.0]
    left = torch.tensor([[False, True, True]])
    assert advantages(left, discount=0.5, trace=0.5) == [0.0, 0.5 - 0.25, -1.0]


def test_rows_do_not_see_one_another():
    rewards, values = torch.cat([REWARDS, -REWARDS]), torch.cat([VALUES, 2 * VALUES])
    both = generalized_advantages(rewards, values, ALL.expand(2, 3), trace=0.7)
    assert both[0].tolist() == advantages(trace=0.7)
    assert both[1].tolist() == advantages(rewards=-REWARDS, values=2 * VALUES, trace=0.7)


def test_returns_are_advantages_plus_values_inside_the_mask():
    out = returns(torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.5, 1.0, 9.0]]), torch.tensor([[True, True, False]]))
    assert out.tolist() == [[1.5, 3.0, 0.0]]


def test_there_is_no_gradient():
    rewards, values = REWARDS.clone().requires_grad_(), VALUES.clone().requires_grad_()
    out = generalized_advantages(rewards, values, ALL)
    assert not out.requires_grad
    assert not returns(out, values, ALL).requires_grad


def test_empty_masks_give_zeros():
    assert advantages(torch.zeros(1, 3, dtype=torch.bool)) == [0.0, 0.0, 0.0]
    nothing = torch.zeros(2, 0)
    assert generalized_advantages(nothing, nothing, nothing.bool()).shape == (2, 0)


def test_wrong_shapes_are_refused():
    with pytest.raises(TypeCheckError, match="values"):
        generalized_advantages(REWARDS, VALUES[:, :2], ALL)
    with pytest.raises(TypeCheckError, match="mask"):
        returns(REWARDS, VALUES, ALL[0])
