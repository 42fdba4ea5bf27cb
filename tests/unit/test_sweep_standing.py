"""What a point's run directory says is to be done with it, and what of it may be removed."""

import sqlite3

import pytest

from kleash.errors import RunDirError
from kleash.runs.records import Checkpoint, Step
from kleash.runs.writer import RunWriter
from kleash.sweep.standing import Standing, standing


def begin(folder, name="beta_0", steps=0, checkpoint=None, status=None):
    with RunWriter.create(folder, {"name": name}, {}) as writer:
        for step in range(steps):
            writer.write_step(Step(step))
        if checkpoint is not None:
            path = folder / "checkpoints" / f"step_{checkpoint}"
            path.mkdir(parents=True)
            writer.write_checkpoint(Checkpoint(checkpoint, path))
        if status is not None:
            writer.set_status(status)
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "beta_0"


@pytest.mark.parametrize(
    ("status", "stands"),
    [
        (None, Standing.TO_RESUME),
        ("interrupted", Standing.TO_RESUME),
        ("failed", Standing.TO_RESUME),
        ("finished", Standing.FINISHED),
        ("stopped", Standing.STOPPED),
    ],
)
def test_a_run_with_a_checkpoint(folder, status, stands):
    assert standing(begin(folder, steps=2, checkpoint=1, status=status)) is stands
    assert (folder / "run.db").exists()


def test_no_folder(folder):
    assert standing(folder) is Standing.TO_START


@pytest.mark.parametrize("files", [(), ("run.db",), ("run.db", "run.db-journal"), ("run.db", "metrics.jsonl")])
def test_a_start_that_was_killed_before_its_record_is_removed(folder, files):
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    assert standing(folder) is Standing.TO_START
    assert not folder.exists()


def test_a_start_that_was_killed_before_its_first_checkpoint_is_removed(folder):
    begin(folder)
    (folder / "checkpoints" / ".step_0.unfinished").mkdir(parents=True)
    assert standing(folder) is Standing.TO_START
    assert not folder.exists()


def test_a_run_of_another_name_is_kept(folder):
    begin(folder, name="another")
    with pytest.raises(RunDirError, match="has 0 steps of the run 'another' but no checkpoint"):
        standing(folder)
    assert (folder / "run.db").exists()


def test_steps_without_a_checkpoint_are_kept(folder):
    begin(folder, steps=3)
    with pytest.raises(RunDirError, match="has 3 steps of the run 'beta_0' but no checkpoint"):
        standing(folder)
    assert (folder / "run.db").exists()


@pytest.mark.parametrize("content", [b"no database at all", b""])
def test_a_folder_with_other_files_is_kept(folder, content):
    folder.mkdir()
    (folder / "run.db").write_bytes(content)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RunDirError, match=r"run\.db"):
        standing(folder)
    assert (folder / "notes.txt").exists()


def test_a_database_of_another_program_is_kept(folder):
    folder.mkdir()
    with sqlite3.connect(folder / "run.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(RunDirError, match="some other program wrote"):
        standing(folder)
    assert (folder / "run.db").exists()
