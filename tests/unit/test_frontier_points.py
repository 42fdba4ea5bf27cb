"""What is read from runs and best-of-n files, and what is said where there is nothing to read."""

import json

import pytest
from frontier_runs import write_best_of_n, write_run

from kleash.errors import DataError, RunDirError
from kleash.frontier.points import Mean, read_best_of_n, read_run
from kleash.runs.records import Event

ROWS = {0: (0.0, 0.2, 0.15), 10: (1.0, 0.4, 0.5), 20: (4.0, 0.6, None)}


def test_a_run_gives_a_point_for_each_evaluation(tmp_path):
    start, middle, last = read_run(write_run(tmp_path / "a", ROWS, saved=[10, 20]))
    assert middle.source.name == str(tmp_path / "a")
    assert (middle.source.method, middle.source.unit) == ("RLOO", "nats per sequence")
    assert "exact over the vocabulary" in middle.source.estimator
    assert (middle.source.proxy, middle.source.gold) == ("functions reward.py:cheer", "gold.py:people")
    assert (middle.at, middle.kl, middle.proxy, middle.gold) == (10, Mean(1.0, 0.03), Mean(0.4, 0.02), Mean(0.5, 0.02))
    assert middle.checkpoint == tmp_path / "a" / "checkpoints" / "step_10"
    assert (start.is_start, start.checkpoint) == (True, None)
    assert (last.is_start, last.gold) == (False, None)


def test_a_checkpoint_that_is_gone_is_none(tmp_path):
    folder = write_run(tmp_path / "a", ROWS, saved=[10, 20])
    (folder / "checkpoints" / "step_10").rmdir()
    assert [point.checkpoint is not None for point in read_run(folder)] == [False, False, True]


def test_what_lies_in_an_alarms_window_is_suspect(tmp_path):
    events = [
        Event(12, "warning", "kl/ramp", "It rises.", began=8),
        Event(18, "info", "kl/ramp", "It is over.", values={"last": 15}, ends=True),
        Event(20, "info", "run/note", "Harmless.", began=20),
    ]
    assert [point.alarms for point in read_run(write_run(tmp_path / "a", ROWS, events=events))] == [
        (),
        ("kl/ramp",),
        (),
    ]


def test_a_checkpoint_of_the_callback_is_measured_in_the_next_step_as_well(tmp_path):
    events = [Event(11, "critical", "kl/spike", "It jumps.", began=11)]
    folder = write_run(tmp_path / "a", ROWS, events=events, settings={"callback": {}})
    assert [point.alarms for point in read_run(folder)] == [(), ("kl/spike",), ("kl/spike",)]


def test_a_moving_reference_is_measured_from_the_start(tmp_path):
    folder = write_run(tmp_path / "a", ROWS, kl_key="eval/kl/original_per_sequence")
    assert [point.kl.value for point in read_run(folder)] == [0.0, 1.0, 4.0]


def test_equal_reward_models_have_equal_words(tmp_path):
    named = {"model": "x/../runs/rm", "combine": "mean", "sd_weight": 1.0, "functions": [], "judge": None}
    ensemble = {"model": "runs/rm", "combine": "mean_minus_sd", "sd_weight": 0.5}
    sources = [
        read_run(write_run(tmp_path / str(i), ROWS, reward=one))[0].source for i, one in enumerate([named, ensemble])
    ]
    assert [source.proxy for source in sources] == [
        "model runs/rm",
        "model runs/rm, combine mean_minus_sd, sd_weight 0.5",
    ]
    assert sources[0].gold is None


def test_best_of_n_has_a_point_for_each_n(tmp_path):
    first, second, *_ = read_best_of_n(write_best_of_n(tmp_path / "best.json"))
    assert (first.source.method, first.where, first.is_start) == ("best-of-n", "n = 1", True)
    assert "at most log n" in first.source.estimator
    assert second.kl.value == pytest.approx(0.193147, abs=1e-6)
    assert second.source.proxy == "functions reward.py:cheer"
    assert second.checkpoint is None


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ({}, "rloo", "no held-out evaluation that measured KL.*prompts.held_out and set training.eval_every"),
        ({10: (1.0, None, None)}, "sft", "measured KL on held-out prompts but no reward.*Set reward.gold"),
        ({}, "reward_model", "trained a reward model, which has no drift"),
    ],
)
def test_a_run_without_a_point_says_why(tmp_path, rows, kind, said):
    with pytest.raises(DataError, match=said):
        read_run(write_run(tmp_path / "a", rows, kind=kind))


def test_no_run_there(tmp_path):
    with pytest.raises(RunDirError, match="There is no run directory"):
        read_run(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read as best-of-n.*`kleash bestofn --json FILE` writes it"),
        ("not json", "cannot be read as best-of-n"),
        (json.dumps({"schema_version": 2, "sizes": []}), "holds no best-of-n of version 1"),
        (json.dumps([1]), "holds no best-of-n of version 1"),
    ],
)
def test_a_file_that_is_no_best_of_n(tmp_path, text, said):
    path = tmp_path / "best.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_best_of_n(path)
