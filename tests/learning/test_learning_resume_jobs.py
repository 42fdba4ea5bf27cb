"""A killed reward model, PPO, DPO or SFT run goes on as if it had not been: the same numbers, samples and weights."""

import signal

import pytest
import torch
from tiny_jobs import killed_at, settings_of, write_data
from tiny_model import save_tiny_model

from kleash.config.loader import load
from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.training import state
from kleash.training.observer import Silent
from kleash.training.run import resume, train

TIMED = ("time/", "throughput/", "eval/time/")
IN_STEP_3 = 3 * 4 + 3
"""The optimisers' call to die at where a step has two updates of the policy, then two of the critic: between those."""
PPO = ("algorithm.kl.target_nats_per_sequence=0.5",)
JOBS = [
    # the job, more settings, and the optimiser's call in step 3 at which it dies
    pytest.param("reward_model", ("algorithm.members=2",), 3 * 2 + 1, id="reward_model"),
    pytest.param("ppo", PPO, IN_STEP_3, id="ppo"),
    pytest.param("ppo", (*PPO, "algorithm.critic.start={reward_model}"), IN_STEP_3, id="ppo_from_reward_model"),
    pytest.param("dpo", (), 4, id="dpo"),
    pytest.param("sft", (), 4, id="sft", marks=pytest.mark.slow),
    pytest.param("mixed", ("training.num_minibatches=2",), 3 * 2 + 1, id="mixed", marks=pytest.mark.slow),
    pytest.param("online_dpo", (), 4, id="online_dpo", marks=pytest.mark.slow),
]


class Interrupting(Silent):
    """Ends a run in its step 3, after the checkpoint of step 2."""

    def stepped(self, row):
        if row.step == 3:
            raise KeyboardInterrupt


def story(path):
    """All that a run recorded of its steps and samples, timings apart."""
    with RunReader(path) as reader:
        steps = [
            (step.step, {k: v for k, v in step.metrics.items() if not k.startswith(TIMED)}, step.stderr, step.notes)
            for step in reader.steps()
        ]
        return steps, reader.samples(), reader.meta.get("reward_health")


def last_checkpoint(path):
    """Its training state as {path of keys: value}, the critic's too, and its weights as they lie on the disk."""
    with RunReader(path) as reader:
        folder = reader.latest_checkpoint().path
    weights = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.safetensors")}
    return flat(state.read(folder)), weights


def flat(value, name=""):
    """Nested dictionaries as one."""
    if not isinstance(value, dict):
        return {name: value}
    return {key: leaf for part, inner in value.items() for key, leaf in flat(inner, f"{name}/{part}").items()}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """What a reference said is kept here, and not in the user's own cache."""
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def reward_model(tiny_model_dir, tmp_path_factory):
    """The folder of a run whose head is no longer zero."""
    folder = tmp_path_factory.mktemp("reward_model")
    write_data(folder)
    return train(load(None, settings_of("reward_model", tiny_model_dir, folder)).config, observer=Silent())


@pytest.fixture
def own_model(tmp_path):
    """The tiny model in a folder that may be spoilt."""
    return save_tiny_model(tmp_path / "model")


@pytest.mark.parametrize(("job", "more", "call"), JOBS)
def test_a_killed_job_resumes_to_the_numbers_of_an_uninterrupted_one(
    tiny_model_dir, reward_model, tmp_path, job, more, call
):
    more = [setting.format(reward_model=reward_model) for setting in more]
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
    (found, weights), (expected, expected_weights) = last_checkpoint(path), last_checkpoint(uninterrupted)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value, name
    assert weights == expected_weights
    assert weights
    critics = [value for name, value in found.items() if name.startswith("/critic/masters/")]
    assert any(tensor.abs().sum() > 0 for tensor in critics) == (job == "ppo")


def interrupted(job, model, folder):
    """The folder of a run that ended in its step 3."""
    write_data(folder)
    with pytest.raises(KeyboardInterrupt):
        train(load(None, settings_of(job, model, folder)).config, observer=Interrupting())
    return folder / "runs" / "run"


@pytest.mark.parametrize("job", ["dpo", "reward_model"])
def test_comparisons_that_have_changed_are_refused_on_resume(tiny_model_dir, tmp_path, job):
    path = interrupted(job, tiny_model_dir, tmp_path)
    before = story(path)
    data = tmp_path / "comparisons.jsonl"
    rows = data.read_text().splitlines()
    for i in range(12):  # one comparison of each prompt: some are learned from, the others are held out
        changed = [*rows[:i], rows[i].replace('"chosen": " ', '"chosen": " e'), *rows[i + 1 :]]
        assert changed != rows
        data.write_text("\n".join(changed))
        with pytest.raises(
            RunDirError, match=r"data of .*run have changed since it began .*comparisons.jsonl"
        ) as caught:
            resume(path, observer=Silent())
        assert caught.value.exit_code == 2
    assert story(path) == before
    data.write_text("\n".join(rows))
    resume(path, observer=Silent())
    assert [step for step, *_ in story(path)[0]] == list(range(7))


def test_a_text_that_has_changed_is_refused_on_resume(tiny_model_dir, tmp_path):
    path = interrupted("mixed", tiny_model_dir, tmp_path)
    text = tmp_path / "text.txt"
    text.write_text(text.read_text().replace("fox", "cat"))
    with pytest.raises(RunDirError, match=r"data of .*run have changed since it began .*text.txt"):
        resume(path, observer=Silent())


@pytest.mark.parametrize(
    ("job", "what"),
    [("dpo", "reference"), ("reward_model", "base"), ("ppo", "reference"), ("sft", "starting model")],
)
def test_a_base_that_has_changed_is_refused_on_resume(own_model, tmp_path, job, what):
    path = interrupted(job, own_model, tmp_path)
    before = story(path)
    file = own_model / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunDirError, match=f"the {what} has changed: its weights hash to .*start a new run") as caught:
        resume(path, observer=Silent())
    assert caught.value.exit_code == 2
    assert story(path) == before
