import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from plain_user import as_plain_user

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.runs.records import Checkpoint, Event, Sample, Step
from kleash.runs.writer import RunWriter, choose_journal


def sample(step, split="train", index=0):
    return Sample(step, split, index, 0, "Once", " upon", (" up", "on"), (0.5, 0.25), 1.0, None, 0.75, False)


def mirror(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def record(folder, steps):
    with RunWriter.create(folder, {"seed": 0}, {}) as writer:
        for step in range(1, steps + 1):
            writer.write_step(Step(step, {"kl": step / 2}), [sample(step)], [Event(step, "info", "e", "")])
            writer.write_checkpoint(Checkpoint(step, folder / "checkpoints" / f"step_{step}"))


@pytest.fixture
def shared_folder():
    """A folder that the plain user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_run_that_exists_is_not_overwritten(tmp_path):
    record(tmp_path / "run", 1)
    with pytest.raises(RunDirError, match=r"run exists.*never overwritten.*--resume.*another name"):
        RunWriter.create(tmp_path / "run", {}, {})
    assert [line["step"] for line in mirror(tmp_path / "run")] == [1]


def test_a_folder_with_other_files_is_not_taken(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunDirError, match=r"not empty and holds no run\.db"):
        RunWriter.create(tmp_path, {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"file/run cannot be written: Not a directory\. Choose a folder"):
        RunWriter.create(tmp_path / "file" / "run", {}, {})


def test_a_read_only_folder_is_said(shared_folder):
    shared_folder.chmod(0o555)
    with as_plain_user(), pytest.raises(RunDirError, match=r"cannot be written: Permission denied\. Choose"):
        RunWriter.create(shared_folder / "run", {}, {})


def test_the_mirror_is_flat_and_keeps_what_json_cannot_say(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_step(Step(1, {"a": 0.5, "b": None, "c": float("nan")}, {"a": 0.1}, {"beta": 'said "ü"'}))
        assert mirror(tmp_path / "run") == [
            {"step": 1, "a": 0.5, "b": None, "c": "nan", "a.stderr": 0.1, "note.beta": 'said "ü"'}
        ]


def test_a_step_is_written_whole_or_not_at_all(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        with pytest.raises(RunDirError, match=r"Could not record step 1 .*recorded already"):
            writer.write_step(Step(1, {"a": 1.0}), [sample(1), sample(1)])
        with RunReader(tmp_path / "run") as reader:
            assert reader.steps() == []
        assert mirror(tmp_path / "run") == []
        writer.write_step(Step(1, {"a": 2.0}))
        with pytest.raises(RunDirError, match="Could not record step 1"):
            writer.write_step(Step(1, {"a": 3.0}))
        assert mirror(tmp_path / "run") == [{"step": 1, "a": 2.0}]


def test_resume_drops_what_came_later_everywhere(tmp_path):
    record(tmp_path / "run", 5)
    with RunWriter.resume(tmp_path / "run", 3) as writer:
        assert [line["step"] for line in mirror(tmp_path / "run")] == [1, 2, 3]
        writer.write_step(Step(4, {"kl": 9.0}), [sample(4)])
    with RunReader(tmp_path / "run") as reader:
        assert reader.series("kl") == [(1, 0.5, None), (2, 1.0, None), (3, 1.5, None), (4, 9.0, None)]
        assert [found.step for found in reader.samples()] == [1, 2, 3, 4]
        assert [found.step for found in reader.events()] == [1, 2, 3]
        assert [found.step for found in reader.checkpoints()] == [1, 2, 3, 4]  # 4 was saved right after step 3
    assert mirror(tmp_path / "run")[-1] == {"step": 4, "kl": 9.0}


def test_a_checkpoint_between_two_records_stays_where_the_resumed_training_says_so(tmp_path):
    """Trainers that log every ten steps and save every five have checkpoints beyond the newest record."""
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        for step in (0, 10, 20, 30):
            writer.write_step(Step(step, {"kl": 1.0}))
        for step in (15, 25, 30):
            writer.write_checkpoint(Checkpoint(step, tmp_path / f"checkpoint-{step}"))
    RunWriter.resume(tmp_path / "run", 20, checkpoint=25).close()
    with RunReader(tmp_path / "run") as reader:
        assert [step.step for step in reader.steps()] == [0, 10, 20]
        assert [found.step for found in reader.checkpoints()] == [15, 25]


@pytest.mark.parametrize("saved", [0, 2])
def test_a_run_that_is_killed_again_resumes_from_the_same_checkpoint(tmp_path, saved):
    run = tmp_path / "run"
    with RunWriter.create(run, {}, {}) as writer:
        for step in range(4):
            if step % 2 == 0:
                (run / "checkpoints" / f"step_{step}").mkdir(parents=True)
                writer.write_checkpoint(Checkpoint(step, run / "checkpoints" / f"step_{step}"))
            writer.write_step(Step(step, {"kl": step / 2}))
    for _ in range(2):
        with RunWriter.resume(run, saved - 1) as writer, RunReader(run) as reader:
            assert [step.step for step in reader.steps()] == list(range(saved))
            assert reader.latest_checkpoint().step == saved
            writer.write_step(Step(saved, {"kl": 9.0}))
    assert [line["step"] for line in mirror(run)] == list(range(saved + 1))


def test_resume_forgets_the_samples_of_the_former_end(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_step(Step(1, {}))
        writer.write_samples([sample(0, "before"), sample(1, "after")])
        writer.set_status("finished")
    RunWriter.resume(tmp_path / "run", 1).close()
    with RunReader(tmp_path / "run") as reader:
        assert [found.split for found in reader.samples()] == ["before"]
        assert reader.status == "running"


def test_resume_mends_a_torn_line(tmp_path):
    record(tmp_path / "run", 2)
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text()[:-6])
    RunWriter.resume(tmp_path / "run", 2).close()
    assert mirror(tmp_path / "run") == [{"step": 1, "kl": 0.5}, {"step": 2, "kl": 1.0}]


def test_resume_past_the_record_is_refused(tmp_path):
    record(tmp_path / "run", 2)
    with pytest.raises(RunDirError, match="cannot resume after step 5: its record ends at step 2"):
        RunWriter.resume(tmp_path / "run", 5)


def test_resume_needs_a_run(tmp_path):
    with pytest.raises(RunDirError, match=r"no run to resume in .*holds no run\.db"):
        RunWriter.resume(tmp_path, 0)


def test_a_killed_writer_loses_nothing_that_was_written(tmp_path):
    code = """
        import os, signal, sys
        from kleash.runs.records import Step
        from kleash.runs.writer import RunWriter
        writer = RunWriter.create(sys.argv[1], {}, {})
        for step in range(1, 8):
            writer.write_step(Step(step, {"kl": float(step)}))
        writer._connection.execute("BEGIN IMMEDIATE")
        writer._connection.execute("INSERT INTO steps VALUES (8, '{}')")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    folder = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), folder], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with RunReader(folder) as reader:
        assert [step.step for step in reader.steps()] == [1, 2, 3, 4, 5, 6, 7]
        assert reader.status == "running"
    with RunWriter.resume(folder, 7) as writer:
        writer.write_step(Step(8, {"kl": 8.0}))
    assert [line["step"] for line in mirror(folder)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_closed_run_is_one_plain_file(tmp_path):
    record(tmp_path / "run", 1)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["metrics.jsonl", "run.db"]


def test_a_read_only_database_is_not_resumed_silently(shared_folder):
    record(shared_folder / "run", 1)
    (shared_folder / "run").chmod(0o555)
    with as_plain_user(), pytest.raises(RunDirError, match=r"Could not resume the run .*readonly database"):
        RunWriter.resume(shared_folder / "run", 1)


class WithoutWriteAheadLog:
    """A connection on a file system that has no shared memory."""

    def execute(self, statement):
        if statement == "PRAGMA journal_mode = WAL":
            raise sqlite3.OperationalError("locking protocol")
        assert statement == "PRAGMA journal_mode = DELETE"
        return self

    def fetchone(self):
        return ("delete",)


def test_the_rollback_journal_is_said_once():
    (notice,) = choose_journal(WithoutWriteAheadLog())
    assert "cannot hold SQLite's write-ahead log" in notice
    assert "'delete' journal" in notice


def test_the_write_ahead_log_needs_no_notice(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        assert writer.notices == []
        writer.write_step(Step(1, {}))
        assert (tmp_path / "run" / "run.db-wal").exists()
