"""A killed reward model, PPO, DPO or SFT run goes on as if it had not been: the same numbers, samples and weights."""

import signal

import pytest
import torch
from tiny_jobs import killed_at, settings_of, write_data

from kleash.config.loader import load
from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.training import state
from kleash.training.observer import Silent
from kleash.training.run import resume, train

TIMED = ("time/", "throughput/", "eval/time/")
JOBS = [
    # the job, more settings, the optimiser's call in step 3 at which it dies, and the checkpoint to go on from
    ("reward_model", ("algorithm.members=2",), 4),
    ("ppo", ("algorithm.kl.target_nats_per_sequence=0.5",), 3 * 4 + 3),  # two updates of policy and critic each a step
    ("dpo", (), 4),
    pytest.param("sft", (), 4, marks=pytest.mark.slow),
    pytest.param("mixed", (), 4, marks=pytest.mark.slow),
    pytest.param("online_dpo", (), 4, marks=pytest.mark.slow),
]


def story(path):
    """All that a run recorded of its steps and samples, timings apart."""
    with RunReader(path) as reader:
        steps = [
            (step.step, {k: v for k, v in step.metrics.items() if not k.startswith(TIMED)}, step.stderr, step.notes)
            for step in reader.steps()
        ]
        return steps, reader.samples(), reader.meta.get("reward_health")


def weights(path):
    """The trained weights of the last checkpoint, the critic's too."""
    with RunReader(path) as reader:
        saved = state.read(reader.latest_checkpoint().path)
    found = dict(saved["optimizer"]["masters"])
    if saved.get("critic"):
        found |= {f"critic {name}": tensor for name, tensor in saved["critic"]["masters"].items()}
    return found


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """What a reference said is kept here, and not in the user's own cache."""
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(("job", "more", "call"), JOBS)
def test_a_killed_job_resumes_to_the_numbers_of_an_uninterrupted_one(tiny_model_dir, tmp_path, job, more, call):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        write_data(folder)
    uninterrupted = train(load(None, settings_of(job, tiny_model_dir, whole, *more)).config, observer=Silent())
    killed = killed_at(call, settings_of(job, tiny_model_dir, broken, *more))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    path = broken / "runs" / "run"
    with RunReader(path) as reader:
        assert reader.status == "running"
        assert reader.latest_checkpoint().step == 2
        assert [step.step for step in reader.steps()] == [0, 1, 2]
    resume(path, observer=Silent())
    assert story(path) == story(uninterrupted)
    expected = weights(uninterrupted)
    found = weights(path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    if job == "ppo":
        assert any(name.startswith("critic") and tensor.abs().sum() > 0 for name, tensor in found.items())


def test_comparisons_that_have_changed_are_refused_on_resume(tiny_model_dir, tmp_path):
    write_data(tmp_path)
    killed = killed_at(4, settings_of("dpo", tiny_model_dir, tmp_path))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    data = tmp_path / "comparisons.jsonl"
    data.write_text(data.read_text().replace("aaa", "eee"))
    with pytest.raises(RunDirError, match=r"the data of .*run have changed since it began .*comparisons.jsonl"):
        resume(tmp_path / "runs" / "run", observer=Silent())
