"""The folder of a sweep: written once, found again, never mixed up with another."""

import json
import os
import subprocess
import sys

import pytest

from kleash.errors import ConfigError, RunDirError
from kleash.sweep.grid import read_grid
from kleash.sweep.points import check_points
from kleash.sweep.record import begin, freeze, open_sweep

BASE = ["model=demo", "prompts=demo", "reward=json:dumps", "reward.clip=[-1,1]"]


def begun(folder, *words):
    grid = read_grid([*BASE, *words])
    return begin(folder, grid.swept, check_points(grid).points)


def test_a_sweep_is_read_as_it_was_written(tmp_path):
    begun(tmp_path / "a", "algorithm.kl.beta=0,0.02")
    stored = json.loads((tmp_path / "a" / "sweep.json").read_text())
    assert stored["swept"] == {"algorithm.kl.beta": ["0", "0.02"]}
    assert [point["name"] for point in stored["points"]] == ["beta_0", "beta_0.02"]
    assert stored["points"][1]["settings"]["algorithm.kl.beta"] == 0.02
    assert {"kleash", "torch", "python"} <= stored["versions"].keys()
    sweep = open_sweep(tmp_path / "a")
    assert sweep.swept == {"algorithm.kl.beta": ("0", "0.02")}
    assert [point.label for point in sweep.points] == ["beta=0", "beta=0.02"]
    assert sweep.run_dir(sweep.points[1]) == tmp_path / "a" / "beta_0.02"


def test_the_same_sweep_is_found_and_not_written_again(tmp_path):
    first = begun(tmp_path / "a", "algorithm.kl.beta=0,0.02")
    before = (tmp_path / "a" / "sweep.json").read_bytes()
    (tmp_path / "a" / "beta_0").mkdir()
    again = begun(tmp_path / "a", "algorithm.kl.beta=0,0.02")
    assert [point.name for point in again.points] == [point.name for point in first.points]
    assert (tmp_path / "a" / "sweep.json").read_bytes() == before


def test_a_start_that_was_killed_while_it_wrote_its_record_is_no_obstacle(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "sweep.json.new").write_text("{")
    begun(tmp_path / "a", "training.seed=0,1")
    assert len(open_sweep(tmp_path / "a").points) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["algorithm.kl.beta=0,0.1"],
            r"is another sweep: there algorithm.kl.beta = 0, 0.02, here algorithm.kl.beta = 0, 0.1. Give this sweep "
            r"another name with name=..., or go on with that one: kleash sweep --resume",
        ),
        (["training.seed=0,1"], "is another sweep: there algorithm.kl.beta = 0, 0.02, here training.seed = 0, 1"),
        (
            ["algorithm.kl.beta=0,0.02", "training.steps=5"],
            "of other settings: training.steps is not set there and 5 here",
        ),
        (
            ["algorithm.kl.beta=0,0.02", "reward.clip=[0,1]"],
            r"of other settings: reward.clip is \[-1.0, 1.0\] there and \[0.0, 1.0\] here",
        ),
    ],
)
def test_another_sweep_in_the_folder_is_refused(tmp_path, words, said):
    begun(tmp_path / "a", "algorithm.kl.beta=0,0.02")
    with pytest.raises(ConfigError, match=said):
        begun(tmp_path / "a", *words)


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"is not empty and holds no sweep.json"):
        begun(tmp_path, "training.seed=0,1")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunDirError, match="file/a cannot be written: Not a directory"):
        begun(tmp_path / "file" / "a", "training.seed=0,1")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not a sweep: it holds no sweep.json"),
        ("{", "sweep.json cannot be read"),
        ('{"format": 9}', "has format 9; this Kleash reads format 1"),
        ("[]", "has format None"),
    ],
)
def test_what_is_no_sweep_is_refused(tmp_path, content, said):
    if content is not None:
        (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(RunDirError, match=said):
        open_sweep(tmp_path)


def test_a_lock_is_held_by_who_inherited_it_and_free_when_that_process_is_gone(tmp_path):
    sweep = begun(tmp_path / "a", "training.seed=0,1")
    point, other = sweep.points
    lock = sweep.take(point)
    holder = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(lock,)
    )
    os.close(lock)
    assert sweep.take(point) is None
    free = sweep.take(other)
    assert free is not None
    os.close(free)
    holder.kill()
    holder.communicate()
    again = sweep.take(point)
    assert again is not None
    os.close(again)


def test_settings_are_frozen_for_points_that_start_later(tmp_path):
    sweep = begun(tmp_path / "a", "training.seed=0,1")
    text = freeze(sweep, sweep.points[1]).read_text()
    assert "training.seed = 1\n" in text
    assert "reward.clip = [-1.0, 1.0]\n" in text
