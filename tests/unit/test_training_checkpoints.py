"""Which checkpoints stay, and which can be gone back to."""

from kleash.config.schema import Training
from kleash.runs.records import Event
from kleash.training.checkpoints import newest_trusted, on_disk, superseded

TRAINING = Training(steps=55, checkpoint_every=10, keep_checkpoints=2)


def alarm(began):
    return Event(began, "warning", "kl/spike", "", began=began)


def test_folders_are_listed_by_step_and_nothing_else_is(tmp_path):
    for name in ("step_100", "step_20", "step_9", ".step_30.unfinished", "step_x", "other"):
        (tmp_path / name).mkdir()
    assert list(on_disk(tmp_path)) == [9, 20, 100]
    assert on_disk(tmp_path / "gone") == {}


def test_the_newest_of_the_schedule_stay():
    assert superseded([0, 10, 20], 20, [], TRAINING) == [0]
    assert superseded([10, 20, 30], 30, [], TRAINING) == [10]


def test_the_newest_trusted_one_stays_besides():
    assert superseded([10, 20, 30, 40], 40, [alarm(15)], TRAINING) == [20]
    assert superseded([10, 20, 30, 40], 40, [alarm(5)], TRAINING) == [10, 20]


def test_one_that_was_saved_when_the_run_was_left_goes_when_the_next_is_saved():
    assert superseded([20, 30, 37], 37, [], TRAINING) == []
    assert superseded([20, 30, 37, 40], 40, [], TRAINING) == [20, 37]


def test_the_last_step_is_on_the_schedule():
    assert superseded([30, 40, 50, 55], 55, [], TRAINING) == [30, 40]
    assert newest_trusted([50, 55], [], TRAINING) == 55


def test_what_a_killed_run_left_over_goes_and_pushes_nothing_out():
    assert superseded([20, 30, 33, 40], 33, [], TRAINING) == [40]
    assert superseded([30, 40, 50], 40, [], TRAINING) == [50]


def test_only_what_is_on_the_schedule_and_under_no_alarm_can_be_gone_back_to():
    assert newest_trusted([20, 30, 37], [], TRAINING) == 30
    assert newest_trusted([20, 30, 37], [alarm(21)], TRAINING) == 20
    assert newest_trusted([20, 30], [alarm(3)], TRAINING) is None
    assert newest_trusted([], [], TRAINING) is None
