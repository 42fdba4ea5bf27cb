"""Preference losses by hand, at margins whose logistic function is a plain fraction."""

from functools import partial
from math import log

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.autograd import gradcheck

from kleash.ops.preference_losses import bradley_terry, conservative, half_each, hinge, ipo, robust, sigmoid

BETA = 0.5
HALF, THREE_TO_ONE, ONE_TO_THREE = 0.0, 2 * log(3), -2 * log(3)
"""Margins h at which beta h has the logistic function 1/2, 3/4 and 1/4."""
MARGINS = torch.tensor([HALF, THREE_TO_ONE, ONE_TO_THREE], dtype=torch.float64)
NO_LEAD = torch.zeros(3, dtype=torch.float64)

LOSSES = {
    "sigmoid": partial(sigmoid, beta=BETA),
    "ipo": partial(ipo, beta=BETA),
    "hinge": partial(hinge, beta=BETA),
    "conservative": partial(conservative, beta=BETA, label_smoothing=0.2),
    "robust": partial(robust, beta=BETA, label_smoothing=0.2),
    "bradley_terry": lambda margins: bradley_terry(margins, torch.zeros_like(margins), 0.2),
}
BY_HAND = {
    "sigmoid": [log(2), log(4 / 3), log(4)],
    "ipo": [1.0, (2 * log(3) - 1) ** 2, (2 * log(3) + 1) ** 2],
    "hinge": [1.0, 0.0, 1 + log(3)],
    "conservative": [log(2), 0.8 * log(4 / 3) + 0.2 * log(4), 0.8 * log(4) + 0.2 * log(4 / 3)],
    "robust": [log(2), (0.8 * log(4 / 3) - 0.2 * log(4)) / 0.6, (0.8 * log(4) - 0.2 * log(4 / 3)) / 0.6],
    "bradley_terry": [log(2), 0.8 * log(10 / 9) + 0.2 * log(10), 0.8 * log(10) + 0.2 * log(10 / 9)],
}
SLOPES_AT_10_000 = {
    "sigmoid": (0.0, -0.5),
    "ipo": (19_998.0, -20_002.0),
    "hinge": (0.0, -0.5),
    "conservative": (0.1, -0.4),
    "robust": (-0.5 * 0.2 / 0.6, -0.5 * 0.8 / 0.6),
    "bradley_terry": (0.2, -0.8),
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@each_loss
def test_by_hand(name):
    close(LOSSES[name](MARGINS), BY_HAND[name])


@each_loss
def test_gradcheck(name):
    assert gradcheck(LOSSES[name], (MARGINS.clone().requires_grad_(),))


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_margins_have_the_right_slopes(name, dtype):
    margins = torch.tensor([1e4, -1e4], dtype=dtype).requires_grad_()
    values = LOSSES[name](margins)
    assert values.isfinite().all()
    values.sum().backward()
    expected = torch.tensor(SLOPES_AT_10_000[name], dtype=dtype)
    torch.testing.assert_close(margins.grad, expected)


def test_a_margin_for_strength_asks_for_a_lead_on_either_side():
    """A lead of log 3 with log 3 asked for is level; flipped, it is behind by 2 log 3 = log 9."""
    lead = torch.tensor([log(3)], dtype=torch.float64)
    close(bradley_terry(lead, lead), [log(2)])
    close(bradley_terry(lead, lead, 0.2), [0.8 * log(2) + 0.2 * log(10)])


def test_without_smoothing_the_default_is_bradley_terry_itself():
    close(bradley_terry(MARGINS / 2, NO_LEAD), [log(2), log(4 / 3), log(4)])


@pytest.mark.parametrize("loss", [conservative, robust])
def test_no_smoothing_is_sigmoid(loss):
    close(loss(MARGINS, BETA, 0.0), BY_HAND["sigmoid"])


@each_loss
def test_a_tie_is_even_and_least_at_0(name):
    there, back = (half_each(LOSSES[name], side) for side in (MARGINS, -MARGINS))
    torch.testing.assert_close(there, back)
    assert there[0] <= there[1:].min()
    expected = (BY_HAND[name][1] + BY_HAND[name][2]) / 2
    close(there, [BY_HAND[name][0], expected, expected])


@each_loss
def test_no_pairs_give_no_numbers(name):
    assert LOSSES[name](MARGINS[:0]).shape == (0,)


@each_loss
def test_wrong_shapes_are_refused(name):
    with pytest.raises(TypeCheckError, match="margins"):
        LOSSES[name](MARGINS[:, None])


def test_a_strength_margin_for_each_pair():
    with pytest.raises(TypeCheckError, match="strength_margins"):
        bradley_terry(MARGINS, NO_LEAD[:2])


@pytest.mark.parametrize("beta", [0.0, -0.1, float("nan")])
@pytest.mark.parametrize("loss", [sigmoid, ipo, hinge])
def test_a_beta_that_is_not_positive_is_refused(loss, beta):
    with pytest.raises(ValueError, match=f"beta = {beta}: a preference loss needs a price per nat above 0"):
        loss(MARGINS, beta)


@pytest.mark.parametrize("share", [-0.1, 0.5, 1.0])
def test_a_share_of_wrong_labels_that_no_loss_can_use_is_refused(share):
    for loss in (conservative, robust):
        with pytest.raises(ValueError, match=f"label_smoothing = {share}: a share of wrong labels .* swap chosen"):
            loss(MARGINS, BETA, share)
    with pytest.raises(ValueError, match=f"label_smoothing = {share}"):
        bradley_terry(MARGINS, NO_LEAD, share)
