"""How a step's samples are cut into updates."""

import pytest

from kleash.training.plan import Plan


def plan(minibatches, epochs, seed=0):
    return Plan(temperature=1.0, groups_per_batch=1, num_minibatches=minibatches, num_epochs=epochs, seed=seed)


def test_one_update_takes_all_groups_in_their_order():
    assert plan(1, 1).single
    assert plan(1, 1).minibatches(5, step=3) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(("minibatches", "epochs"), [(2, 1), (1, 2), (3, 4)])
def test_every_epoch_takes_every_group_once_in_nearly_equal_parts(minibatches, epochs):
    cut = plan(minibatches, epochs)
    assert not cut.single
    updates = cut.minibatches(7, step=3)
    assert len(updates) == minibatches * epochs
    for start in range(0, len(updates), minibatches):
        epoch = updates[start : start + minibatches]
        assert sorted(group for update in epoch for group in update) == list(range(7))
        sizes = [len(update) for update in epoch]
        assert max(sizes) - min(sizes) <= 1


def test_the_order_follows_from_seed_step_and_epoch_alone():
    cut = plan(2, 2)
    assert cut.minibatches(8, step=3) == plan(2, 2).minibatches(8, step=3)
    first, second = cut.minibatches(8, step=3)[:2], cut.minibatches(8, step=3)[2:]
    assert first != second
    assert cut.minibatches(8, step=3) != cut.minibatches(8, step=4)
    assert cut.minibatches(8, step=3) != plan(2, 2, seed=1).minibatches(8, step=3)
