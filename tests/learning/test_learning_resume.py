"""However a run ends, it goes on as if it had not: killed, interrupted, or left by its reward."""

import shutil
import signal
import subprocess
import time

import pytest
from run_process import RESUMABLE, arguments, call
from tiny_run import Remembering, settings

from kleash.errors import DataError, RunDirError
from kleash.runs.reader import RunReader
from kleash.training.observer import Silent
from kleash.training.run import resume, train

TIMED = ("time/", "throughput/", "eval/time/")


def story(path):
    """All that a run recorded of its steps and samples, timings apart."""
    with RunReader(path) as reader:
        steps = [
            (step.step, {k: v for k, v in step.metrics.items() if not k.startswith(TIMED)}, step.stderr, step.notes)
            for step in reader.steps()
        ]
        samples = reader.samples()
    return steps, samples


@pytest.fixture(scope="module")
def uninterrupted(tiny_model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return train(settings(tiny_model_dir, folder, *RESUMABLE), observer=Silent())


@pytest.mark.parametrize(
    ("die", "recorded", "from_step"),
    [
        ("before a checkpoint of its own", 1, 0),
        ("in an update", 5, 4),
        ("in a checkpoint", 4, 2),
        ("after the last checkpoint", 7, 7),
    ],
)
def test_a_killed_run_resumes_to_the_numbers_of_an_uninterrupted_one(
    tiny_model_dir, tmp_path, uninterrupted, die, recorded, from_step
):
    killed = call("start", tiny_model_dir, tmp_path, die, *RESUMABLE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    path = tmp_path / "runs" / "run"
    with RunReader(path) as reader:
        assert reader.status == "running"
        assert len(reader.steps()) == recorded
    observer = Remembering()
    resume(path, observer=observer)
    assert observer.facts[0].endswith(f"resumed at step {from_step} from step_{from_step}")
    steps, samples = story(path)
    expected_steps, expected_samples = story(uninterrupted)
    assert [step[0] for step in steps] == list(range(8))
    assert steps == expected_steps
    assert samples == expected_samples
    with RunReader(path) as reader, RunReader(uninterrupted) as whole:
        assert reader.status == "finished"
        assert reader.meta["reference_fingerprint"] == whole.meta["reference_fingerprint"]
    mirrored = (path / "metrics.jsonl").read_text().splitlines()
    assert len(mirrored) == 8
    assert (path / "report.html").is_file()


def test_a_run_that_is_killed_twice_resumes_twice(tiny_model_dir, tmp_path, uninterrupted):
    path = tmp_path / "runs" / "run"
    for action, die in (("start", "in an update"), ("resume", "before a checkpoint of its own")):
        killed = call(action, tiny_model_dir, tmp_path, die, *RESUMABLE)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with RunReader(path) as reader:
            assert len(reader.steps()) == 5
            assert reader.latest_checkpoint().step == 4
    resume(path, observer=Silent())
    assert story(path) == story(uninterrupted)


def test_a_changed_reference_is_refused_on_resume(tiny_model_dir, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model)
    (tmp_path / "reward.py").write_text(
        "def vowels(completions):\n    return [float(i) for i in range(len(completions))]\n"
    )
    config = settings(
        model, tmp_path, "training.steps=4", "training.checkpoint_every=2", "algorithm.kl.stop_above=1e-9"
    )
    with pytest.raises(Exception, match="stop_above"):
        train(config, observer=Silent())
    path = tmp_path / "runs" / "run"
    before = story(path)
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(RunDirError, match="the reference has changed: its weights hash to") as caught:
        resume(path, observer=Silent())
    assert caught.value.exit_code == 2
    assert story(path) == before
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(Exception, match="stop_above"):
        resume(path, observer=Silent())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(tiny_model_dir, tmp_path, number):
    slow = (
        "import time\n\n\ndef vowels(completions):\n    time.sleep(0.2)\n"
        "    return [float('a' in text) + len(text) for text in completions]\n"
    )
    (tmp_path / "reward.py").write_text(slow)
    settings_ = ["training.steps=50", "training.checkpoint_every=50"]
    process = subprocess.Popen(
        arguments("start", tiny_model_dir, tmp_path, "never", *settings_), stderr=subprocess.PIPE, text=True
    )
    path = tmp_path / "runs" / "run"
    _wait_for_steps(path, 2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT or "KeyboardInterrupt" in errors
    with RunReader(path) as reader:
        done = len(reader.steps())
        assert 2 <= done < 50
        assert (reader.status, reader.status_reason) == ("interrupted", "by Ctrl-C or SIGTERM")
        assert reader.latest_checkpoint().step == done
        before = reader.steps()
    (tmp_path / "reward.py").write_text(slow.replace("time.sleep(0.2)", "raise ValueError('enough')"))
    observer = Remembering()
    with pytest.raises(DataError, match="enough"):
        resume(path, observer=observer)
    assert f"resumed at step {done}" in observer.facts[0]
    with RunReader(path) as reader:
        assert reader.steps() == before


def _wait_for_steps(path, number):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = path / "metrics.jsonl"
        if lines.is_file() and len(lines.read_text().splitlines()) >= number:
            return
        time.sleep(0.05)
    raise AssertionError("the run never got there")


@pytest.mark.parametrize(("fails_at", "checkpoint"), [(9, 9), (0, 0)])
def test_a_reward_that_raises_leaves_a_checkpoint_that_resumes(tiny_model_dir, tmp_path, fails_at, checkpoint):
    """The reward is called once by preflight for the samples and once for each of three odd answers."""
    overrides = ["training.steps=12", "training.checkpoint_every=5"]
    whole = tmp_path / "whole"
    whole.mkdir()
    expected = story(train(settings(tiny_model_dir, whole, *overrides), observer=Silent()))
    calls = tmp_path / "calls"
    calls.write_text("0")
    (tmp_path / "reward.py").write_text(
        f"""
from pathlib import Path


def vowels(completions, **columns):
    calls = Path({str(calls)!r})
    number = int(calls.read_text())
    calls.write_text(str(number + 1))
    if number == {4 + fails_at}:
        raise KeyError("the judge is out")
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
"""
    )
    path = tmp_path / "runs" / "run"
    with pytest.raises(DataError, match="the judge is out"):
        train(settings(tiny_model_dir, tmp_path, *overrides), observer=Silent())
    with RunReader(path) as reader:
        assert reader.status == "failed"
        assert "the judge is out" in reader.status_reason
        assert reader.latest_checkpoint().step == checkpoint
        assert len(reader.steps()) == fails_at
    resume(path, observer=Silent())
    assert story(path) == expected
