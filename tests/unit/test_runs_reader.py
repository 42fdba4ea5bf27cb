import math
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader, list_runs
from kleash.runs.records import Cause, Checkpoint, Event, Sample, Step
from kleash.runs.writer import RunWriter

NAN = float("nan")


def test_everything_written_is_read_back(tmp_path):
    step = Step(2, {"kl": 1.5, "gold": None}, {"kl": 0.25}, {"beta": "KL above target"})
    sample = Sample(2, "eval", 3, 1, "A\x00b", " c\n", (" c", "\n"), (0.5, 1.0), 0.25, None, 1.5, True)
    causes = (Cause("a rate that is too high", "optim/learning_rate"), Cause("a bug", "the code"))
    event = Event(2, "critical", "kl/spike", "too far", {"kl": 1.5, "beta": math.inf}, 1, causes, "Lower it.")
    over = Event(9, "info", "kl/spike", "over", {"last": 5}, 1, ends=True)
    checkpoint = Checkpoint(2, tmp_path / "run" / "checkpoints" / "step_2", {"kl": 1.5})
    config = {"model": "toy", "algorithm": {"kl": {"target": 6}}}
    with RunWriter.create(tmp_path / "run", config, {"kleash": "0.1.0"}) as writer:
        writer.write_step(step, [sample])
        writer.write_event(event)
        writer.write_event(over)
        writer.write_checkpoint(checkpoint)
        writer.update_meta({"reference": {"fingerprint": "ab"}, "kleash": "0.1.1"})
        writer.set_status("stopped", "KL limit")
    with RunReader(tmp_path / "run") as reader:
        assert reader.steps() == [step]
        assert reader.samples() == [sample]
        assert reader.events() == [event, over]
        assert reader.checkpoints() == [checkpoint]
        assert reader.config == config
        assert reader.meta == {
            "schema_version": 2, "kleash": "0.1.1", "reference": {"fingerprint": "ab"},
        }  # fmt: skip
        assert (reader.status, reader.status_reason) == ("stopped", "KL limit")
        assert reader.created_at.endswith("+00:00")


def test_a_broken_number_comes_back_broken_and_a_missing_one_missing(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_step(Step(1, {"kl": None}))
        writer.write_step(Step(2, {"kl": math.inf}, {"kl": NAN}))
        writer.write_step(Step(3, {}))
        writer.write_samples([Sample(3, "train", 0, 0, "", "a", ("a",), (NAN,), -math.inf, NAN, NAN, True)])
    with RunReader(tmp_path / "run") as reader:
        ((step, value, stderr),) = reader.series("kl")
        assert (step, value) == (2, math.inf)
        assert math.isnan(stderr)
        assert [step.metrics for step in reader.steps()] == [{"kl": None}, {"kl": math.inf}, {}]
        (sample,) = reader.samples()
        assert math.isnan(sample.token_kl[0])
        assert math.isnan(sample.kl)
        assert math.isnan(sample.gold)
        assert sample.reward == -math.inf


def test_samples_are_chosen_by_split_and_step(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        writer.write_samples(
            Sample(step, split, 0, 0, "", "", (), (), None, None, 0.0, True)
            for step in (1, 2)
            for split in ("train", "eval")
        )
    with RunReader(tmp_path / "run") as reader:
        assert [(s.step, s.split) for s in reader.samples("eval")] == [(1, "eval"), (2, "eval")]
        assert [(s.step, s.split) for s in reader.samples(step=2)] == [(2, "eval"), (2, "train")]
        assert [(s.step, s.split) for s in reader.samples("train", 1)] == [(1, "train")]


def test_a_reader_sees_each_step_as_the_writer_writes_it(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer, RunReader(tmp_path / "run") as reader:
        assert reader.steps() == []
        writer.write_step(Step(1, {"kl": 1.0}))
        assert reader.series("kl") == [(1, 1.0, None)]
        writer.write_step(Step(2, {"kl": 2.0}))
        assert reader.series("kl") == [(1, 1.0, None), (2, 2.0, None)]


def test_a_moved_run_finds_its_checkpoints(tmp_path):
    with RunWriter.create(tmp_path / "old", {}, {}) as writer:
        for step in (1, 2):
            writer.write_checkpoint(Checkpoint(step, tmp_path / "old" / "checkpoints" / f"step_{step}"))
        (tmp_path / "old" / "checkpoints" / "step_1").mkdir(parents=True)
    (tmp_path / "old").rename(tmp_path / "new")
    with RunReader(tmp_path / "new") as reader:
        assert reader.latest_checkpoint() == Checkpoint(1, tmp_path / "new" / "checkpoints" / "step_1")


def test_a_run_without_checkpoints_has_no_latest_one(tmp_path):
    RunWriter.create(tmp_path / "run", {}, {}).close()
    with RunReader(tmp_path / "run") as reader:
        assert reader.latest_checkpoint() is None


def test_missing_folders_and_folders_that_are_no_run_are_said(tmp_path):
    with pytest.raises(RunDirError, match=r"There is no run directory .*gone.*kleash runs list"):
        RunReader(tmp_path / "gone")
    with pytest.raises(RunDirError, match=r"is not a run: it holds no run\.db"):
        RunReader(tmp_path)


def test_runs_are_listed_by_name(tmp_path):
    for name in ("b", "a"):
        RunWriter.create(tmp_path / name, {}, {}).close()
    (tmp_path / "notes").mkdir()
    assert list_runs(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(RunDirError, match=r"There is no folder .*gone"):
        list_runs(tmp_path / "gone")


@contextmanager
def as_plain_user():
    """Act as a user whom a read-only folder binds, which root is not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def shared_folder():
    """A folder that the plain user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("held_open", [False, True])
def test_a_run_is_read_from_a_read_only_folder(shared_folder, held_open):
    run = shared_folder / "run"
    writer = RunWriter.create(run, {}, {})
    writer.write_step(Step(1, {"kl": 1.0}))
    reader = RunReader(run) if held_open else None
    writer.close()  # with a reader on it, the database stays in WAL mode
    if reader is not None:
        reader.close()
    run.chmod(0o555)
    with as_plain_user(), RunReader(run) as reader:
        assert reader.series("kl") == [(1, 1.0, None)]


def test_steps_that_only_the_log_holds_are_not_passed_over_in_silence(shared_folder):
    run = shared_folder / "run"
    with RunWriter.create(run, {}, {}) as writer:
        writer.write_step(Step(1, {"kl": 1.0}))
        saved = {name: (run / name).read_bytes() for name in ("run.db", "run.db-wal")}
    for name, content in saved.items():
        (run / name).write_bytes(content)
    run.chmod(0o555)
    with as_plain_user(), pytest.raises(RunDirError, match=r"its last steps wait in run\.db-wal"):
        RunReader(run)
