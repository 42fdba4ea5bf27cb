"""A shorter leash, whoever holds it: the target or a fixed beta, from the next update on, kept in the saved state."""

import json

import pytest

from kleash.control.dual import Dual
from kleash.control.fixed import Fixed
from kleash.control.target import Target
from kleash.control.ziegler import Ziegler
from kleash.errors import ConfigError

TARGETED = {
    "ziegler": lambda target: Ziegler(beta=0.05, target_nats_per_sequence=target, horizon=320),
    "dual": lambda target: Dual(beta=0.05, target_nats_per_sequence=target),
    "target": lambda target: Target(beta=0.05, target_nats_per_sequence=target, ramp_steps=0),
}


@pytest.mark.parametrize("name", TARGETED)
def test_a_tightened_target_is_held_as_if_it_had_been_given(name):
    tightened, given = TARGETED[name](8.0), TARGETED[name](6.0)
    moved = tightened.tighten(0.75)
    assert (moved.what, moved.before, moved.after) == ("target", 8.0, 6.0)
    assert str(moved) == "target 8 -> 6 nats per sequence"
    assert [tightened.update(kl, 32) for kl in (2.0, 7.0, 5.0)] == [given.update(kl, 32) for kl in (2.0, 7.0, 5.0)]
    assert tightened.target == 6.0


@pytest.mark.parametrize("name", TARGETED)
def test_a_tightened_target_is_in_the_saved_state(name):
    first, second = TARGETED[name](8.0), TARGETED[name](8.0)
    first.tighten(0.5)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.update(5.0, 32) == first.update(5.0, 32)
    assert second.target == first.target == 4.0


@pytest.mark.parametrize("name", ["ziegler", "dual"])
def test_a_state_from_before_targets_could_move_keeps_the_target_given(name):
    controller = TARGETED[name](8.0)
    state = controller.state_dict()
    del state["target"]
    controller.load_state_dict(state | {"beta": 0.25})
    assert (controller.target, controller.beta) == (8.0, 0.25)


def test_a_fixed_beta_is_divided():
    fixed = Fixed(beta=0.05)
    assert str(fixed.tighten(0.5)) == "beta 0.05 -> 0.1 reward per nat"
    assert fixed.update(3.0, 8) == 0.1


def test_beta_zero_cannot_be_tightened():
    with pytest.raises(ConfigError, match="beta = 0 cannot be tightened: it stays 0 whatever it is divided by"):
        Fixed(beta=0).tighten(0.5)


@pytest.mark.parametrize("factor", [0.0, 1.0, -0.5, float("nan")])
@pytest.mark.parametrize("make", [lambda: Fixed(beta=1.0), *(lambda m=m: m(6.0) for m in TARGETED.values())])
def test_a_factor_that_does_not_shorten_is_refused(make, factor):
    controller = make()
    with pytest.raises(ConfigError, match=r"cannot tighten: .* Give a number between 0 and 1"):
        controller.tighten(factor)
    assert controller.state_dict() == make().state_dict()
