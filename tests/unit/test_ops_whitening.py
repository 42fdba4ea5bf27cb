"""Whitening by hand: 1, 3 and 8 have mean 4 and variance 26 / 3."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.autograd import gradcheck

from kleash.ops.whitening import center, scale_to_unit_variance, whiten

VALUES = torch.tensor([[1.0, 3.0, torch.nan], [8.0, torch.inf, torch.nan]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False]])
SD = (26 / 3) ** 0.5
ALL_THREE = [whiten, scale_to_unit_variance, center]


def close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-8)


def test_whiten_has_mean_0_and_deviation_1():
    close(whiten(VALUES, MASK), [[-3 / SD, -1 / SD, 0.0], [4 / SD, 0.0, 0.0]])


def test_scale_to_unit_variance_keeps_the_mean():
    """OpenAI's `shift_mean=False`: whitened, and the mean put back."""
    found = scale_to_unit_variance(VALUES, MASK)
    close(found, [[4 - 3 / SD, 4 - 1 / SD, 0.0], [4 + 4 / SD, 0.0, 0.0]])
    assert float(found[MASK].mean()) == pytest.approx(4)
    assert float(found[MASK].std(correction=0)) == pytest.approx(1)


def test_center_keeps_the_distances():
    close(center(VALUES, MASK), [[-3.0, -1.0, 0.0], [4.0, 0.0, 0.0]])


@pytest.mark.parametrize(("function", "expected"), [(whiten, 0.0), (scale_to_unit_variance, 5.0), (center, 0.0)])
def test_values_that_are_all_equal(function, expected):
    five = torch.full((4,), 5.0)
    assert function(five, torch.ones(4, dtype=torch.bool)).tolist() == [expected] * 4


@pytest.mark.parametrize("function", ALL_THREE)
def test_an_empty_mask_gives_zeros(function):
    assert (function(VALUES, torch.zeros_like(MASK)) == 0).all()


@pytest.mark.parametrize("function", ALL_THREE)
def test_the_gradient_passes_through_the_statistics(function):
    values = torch.tensor([[1.0, 3.0, 5.0], [8.0, 2.0, 7.0]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: function(x, MASK), (values,))


@pytest.mark.parametrize("function", ALL_THREE)
def test_wrong_shapes_are_refused(function):
    with pytest.raises(TypeCheckError, match="mask"):
        function(VALUES, MASK[:, :2])
