"""AdamW, its schedule, clipping, and float32 masters for narrow weights."""

import math

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from kleash.config.schema import Training
from kleash.errors import RunStopped
from kleash.training.optimizer import Optimizer, lr_factor


def optimizer(parameter, **settings):
    return Optimizer([("weight", parameter)], Training(**settings), Accelerator())


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1]),
        ("linear", [1 / 3, 2 / 3, 1, 3 / 4, 2 / 4, 1 / 4]),
        ("cosine", [1 / 3, 2 / 3, 1, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4]),
    ],
)
def test_the_learning_rate_warms_up_and_follows_its_schedule(schedule, expected):
    settings = Training(steps=6, warmup_steps=2, lr_schedule=schedule)
    assert [lr_factor(settings, step) for step in range(6)] == pytest.approx(expected)


def test_the_first_update_is_a_step_of_the_rate_against_the_sign():
    weight = nn.Parameter(torch.tensor([1.0, 1.0]))
    made = optimizer(weight, learning_rate=0.1, steps=10)
    (weight * torch.tensor([0.3, -0.4])).sum().backward()
    assert made.step(0) == pytest.approx(0.5)
    assert weight.tolist() == pytest.approx([0.9, 1.1], abs=1e-6)


def test_the_rate_of_a_step_is_the_one_that_is_used():
    weight = nn.Parameter(torch.tensor([1.0]))
    made = optimizer(weight, learning_rate=0.1, steps=10, lr_schedule="linear")
    weight.sum().backward()
    made.step(5)
    assert weight.item() == pytest.approx(1 - 0.05, abs=1e-6)
    assert made.learning_rate(5) == pytest.approx(0.05)


def test_long_gradients_are_scaled_down_and_reported_as_they_were():
    weight = nn.Parameter(torch.zeros(2))
    made = optimizer(weight, max_grad_norm=1.0)
    (weight * torch.tensor([3.0, 4.0])).sum().backward()
    assert made.step(0) == pytest.approx(5.0)
    assert made.gradients()[0].tolist() == pytest.approx([0.6, 0.8], abs=1e-5)


def test_a_gradient_that_is_no_number_stops_the_run_before_the_weights_change():
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    made = optimizer(weight)
    (weight * torch.tensor([1.0, float("inf")])).sum().backward()
    with pytest.raises(RunStopped, match=r"step 7: the gradient's norm is .*weights are left as they were") as caught:
        made.step(7)
    assert caught.value.exit_code == 3
    assert weight.tolist() == [1.0, 2.0]


def test_small_steps_are_not_lost_in_bfloat16():
    """100 steps of 1e-4 move 1.0 to 0.99, though bfloat16 alone cannot tell 0.9999 from 1."""
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))
    assert (weight - 1e-4).item() == 1.0
    made = optimizer(weight, learning_rate=1e-4)
    for step in range(100):
        made.zero()
        weight.sum().backward()
        made.step(step)
    assert made.state_dict()["masters"]["weight"].item() == pytest.approx(0.99, abs=1e-5)
    assert weight.item() == torch.tensor(0.99).bfloat16().item()


def test_narrow_gradients_are_added_up_in_float32():
    weight = nn.Parameter(torch.tensor([0.0], dtype=torch.bfloat16))
    made = optimizer(weight)
    (weight * 256).sum().backward()
    for _ in range(8):
        (weight * 0.5).sum().backward()
    assert made.gradients()[0].tolist() == [260.0]
    assert weight.grad is None
    made.zero()
    assert made.gradients() == []


def test_weight_decay_pulls_towards_zero():
    weight = nn.Parameter(torch.tensor([1.0]))
    made = optimizer(weight, learning_rate=0.1, weight_decay=0.5)
    (weight * 0.0).sum().backward()
    made.step(0)
    assert weight.item() == pytest.approx(1 - 0.1 * 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_and_restored_it_goes_on_as_if_nothing_had_happened(dtype):
    def run(weight, made, steps):
        for step in steps:
            made.zero()
            (weight.float() ** 2 * torch.tensor([1.0, 3.0])).sum().backward()
            made.step(step)

    whole = nn.Parameter(torch.tensor([1.0, -2.0], dtype=dtype))
    uninterrupted = optimizer(whole)
    run(whole, uninterrupted, range(3))
    saved = {key: value for key, value in uninterrupted.state_dict().items()}
    saved["masters"] = {name: master.clone() for name, master in saved["masters"].items()}
    import copy

    saved["adamw"] = copy.deepcopy(saved["adamw"])
    run(whole, uninterrupted, range(3, 6))

    second = nn.Parameter(torch.zeros(2, dtype=dtype))
    resumed = optimizer(second)
    resumed.load_state_dict(saved)
    run(second, resumed, range(3, 6))
    assert torch.equal(second, whole)
