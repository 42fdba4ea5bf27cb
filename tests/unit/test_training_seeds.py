"""Seeds of their own for each purpose, and prompts that all get their turn."""

import pytest

from kleash.training.seeds import prompts_of_step, seed_for


def test_each_purpose_and_seed_has_its_own_number():
    made = {seed_for(seed, purpose, step) for seed in (0, 1) for purpose in ("rollout", "eval") for step in range(50)}
    assert len(made) == 200
    assert all(0 <= number < 2**63 for number in made)


def test_seeds_are_the_same_on_every_machine():
    assert seed_for(0, "rollout", 3) == 3013096543775522488


@pytest.mark.parametrize(("prompts", "per_step"), [(12, 4), (10, 3), (3, 8), (7, 7)])
def test_every_prompt_comes_once_an_epoch(prompts, per_step):
    steps = 5 * prompts
    drawn = [i for step in range(steps) for i in prompts_of_step(prompts, per_step, step, seed=1)]
    for epoch in range(len(drawn) // prompts):
        assert sorted(drawn[epoch * prompts : (epoch + 1) * prompts]) == list(range(prompts))
    if prompts > 3:
        assert drawn[:prompts] != drawn[prompts : 2 * prompts]


def test_the_order_depends_on_the_seed_and_not_on_what_was_asked_before():
    later = prompts_of_step(20, 5, 9, seed=0)
    for step in range(9):
        prompts_of_step(20, 5, step, seed=0)
    assert prompts_of_step(20, 5, 9, seed=0) == later
    assert prompts_of_step(20, 5, 9, seed=1) != later
