"""Resuming any controller from its saved state equals never having stopped."""

import json
import math

import pytest

from kleash.control.dual import Dual
from kleash.control.fixed import Fixed
from kleash.control.schedule import Loosening
from kleash.control.target import Target
from kleash.control.ziegler import Ziegler
from kleash.errors import RunDirError

MAKERS = {
    "fixed": lambda: Fixed(beta=0.05),
    "ziegler": lambda: Ziegler(beta=0.05, target_nats_per_sequence=6, horizon=320),
    "dual": lambda: Dual(beta=0.05, target_nats_per_sequence=6),
    "target": lambda: Target(beta=0.05, target_nats_per_sequence=6),
}
KLS = [0.0, *(6 * (1 + math.sin(0.7 * step)) for step in range(40))]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("stop", [0, 1, 5, 20])
def test_resumed_equals_uninterrupted(name, stop):
    whole, first, second = MAKERS[name](), MAKERS[name](), MAKERS[name]()
    expected = [whole.update(kl, 32) for kl in KLS]
    for kl in KLS[:stop]:
        first.update(kl, 32)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.beta == first.beta
    assert [second.update(kl, 32) for kl in KLS[stop:]] == expected[stop:]
    assert second.state_dict() == whole.state_dict()
    assert (second.saturated, second.reason) == (whole.saturated, whole.reason)


def test_a_retargeted_run_resumes_at_its_new_target():
    first = Target(beta=0.05, target_nats_per_sequence=6, ramp_steps=0)
    first.retarget(8)
    second = Target(beta=0.05, target_nats_per_sequence=6, ramp_steps=0)
    second.load_state_dict(first.state_dict())
    assert second.final_target == 8


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_that_does_not_fit_is_refused(name):
    controller = MAKERS[name]()
    state = controller.state_dict()
    with pytest.raises(RunDirError, match=r"unknown key 'betta'\. Did you mean 'beta'\?"):
        controller.load_state_dict(state | {"betta": 1.0})
    with pytest.raises(RunDirError, match=f"saved {name} state lacks beta, so resuming would not repeat"):
        controller.load_state_dict({key: value for key, value in state.items() if key != "beta"})
    with pytest.raises(RunDirError, match=rf"is of 'other', and this run uses '{name}'"):
        controller.load_state_dict(state | {"controller": "other"})
    with pytest.raises(RunDirError, match=r"has beta = nan"):
        controller.load_state_dict(state | {"beta": math.nan})
    assert controller.state_dict() == state


def test_loosening_resumes_with_its_counts():
    whole = Loosening(raise_by=1, limit=9, patience=4)
    first = Loosening(raise_by=1, limit=9, patience=4)
    rewards = [0.5, 0.4, 0.5, 0.3, 0.4, 0.2, 0.5, 0.1, 0.4]
    expected = [whole.update(target=6, kl=6, reward=reward, beta_at_floor=False) for reward in rewards]
    for reward in rewards[:3]:
        first.update(target=6, kl=6, reward=reward, beta_at_floor=False)
    second = Loosening(raise_by=1, limit=9, patience=4)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    resumed = [second.update(target=6, kl=6, reward=reward, beta_at_floor=False) for reward in rewards[3:]]
    assert resumed == expected[3:] == [6, 7, 6, 6, 6, 7]
