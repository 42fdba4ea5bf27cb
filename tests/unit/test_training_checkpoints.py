"""Which checkpoints stay, and which can be gone back to."""

import pytest

from kleash.config.schema import Training
from kleash.runs.records import Event
from kleash.training.checkpoints import kept_at_the_end, newest_trusted, on_disk, superseded

TRAINING = Training(steps=1055, checkpoint_every=10, keep_checkpoints=2)


def alarm(began):
    return Event(began, "warning", "kl/spike", "", began=began)


def test_folders_are_listed_by_step_and_nothing_else_is(tmp_path):
    for name in ("step_100", "step_20", "step_9", ".step_30.unfinished", "step_x", "other"):
        (tmp_path / name).mkdir()
    assert list(on_disk(tmp_path)) == [9, 20, 100]
    assert on_disk(tmp_path / "gone") == {}


def test_the_newest_of_the_schedule_stay():
    assert superseded([0, 10, 20], 20, [], TRAINING) == []
    assert superseded([10, 20, 30], 30, [], TRAINING) == [10]


def test_the_newest_trusted_one_stays_besides():
    assert superseded([10, 20, 30, 40], 40, [alarm(15)], TRAINING) == [20]
    assert superseded([10, 20, 30, 40], 40, [alarm(5)], TRAINING) == [10, 20]


def test_one_that_was_saved_when_the_run_was_left_goes_when_the_next_is_saved():
    assert superseded([20, 30, 37], 37, [], TRAINING) == []
    assert superseded([20, 30, 37, 40], 40, [], TRAINING) == [20, 37]


def test_the_last_step_is_on_the_schedule():
    assert superseded([1030, 1040, 1050, 1055], 1055, [], TRAINING) == [1030, 1040]
    assert newest_trusted([1050, 1055], [], TRAINING) == 1055


def test_what_a_killed_run_left_over_goes_and_pushes_nothing_out():
    assert superseded([20, 30, 33, 40], 33, [], TRAINING) == [40]
    assert superseded([30, 40, 60], 40, [], TRAINING) == [60]


def kept_after(training, last):
    """The steps on disk after each scheduled checkpoint of a run without alarms."""
    disk, story = set(), {}
    for now in range(0, last + 1, training.checkpoint_every):
        disk.add(now)
        disk -= set(superseded(disk, now, [], training))
        story[now] = sorted(disk)
    return story


def test_a_thinned_past_stays():
    story = kept_after(Training(steps=2000, checkpoint_every=10, keep_checkpoints=3), 1000)
    assert story[40] == [0, 20, 30, 40]
    assert story[390] == [0, 200, 300, 350, 370, 380, 390]
    assert story[1000] == [600, 800, 900, 950, 980, 990, 1000]
    assert max(map(len, story.values())) == 8


@pytest.mark.parametrize("every", [1, 7, 10, 20])
def test_each_age_band_has_a_checkpoint(every):
    """As nearly as the schedule allows."""
    for now, kept in kept_after(Training(steps=2000, checkpoint_every=every), 1000).items():
        for youngest, oldest in ((50, 100), (100, 200), (200, 400), (400, 600)):
            if now >= oldest:
                assert any(youngest - every < now - step < oldest + every for step in kept), (now, youngest)
        assert len(kept) <= 3 + 5


def test_a_sparse_schedule_has_no_past_besides():
    story = kept_after(Training(steps=4000, checkpoint_every=200, keep_checkpoints=3), 2000)
    assert story[2000] == [1600, 1800, 2000]


@pytest.mark.parametrize(("steps", "kept"), [(4, 2), (30, 4), (1000, 7), (1005, 7)])
def test_what_is_left_at_the_end_is_known_before(steps, kept):
    assert kept_at_the_end(Training(steps=steps)) == kept


def test_only_what_is_on_the_schedule_and_under_no_alarm_can_be_gone_back_to():
    assert newest_trusted([20, 30, 37], [], TRAINING) == 30
    assert newest_trusted([20, 30, 37], [alarm(21)], TRAINING) == 20
    assert newest_trusted([20, 30], [alarm(3)], TRAINING) is None
    assert newest_trusted([], [], TRAINING) is None
