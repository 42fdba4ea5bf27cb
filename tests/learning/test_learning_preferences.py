"""Each way to learn from preferences learns a rule that is known: vowels beat consonants."""

import numpy as np
import pytest
from tiny_jobs import settings_of, write_data

from kleash.config.loader import load
from kleash.rewards.reward_model import RewardModel
from kleash.runs.reader import RunReader
from kleash.training.observer import Silent
from kleash.training.run import train

FAST = ("training.learning_rate=3e-3", "training.prompts_per_step=16")


@pytest.fixture
def learn(tiny_model_dir, tmp_path, monkeypatch):
    """Train a job; return what it recorded as {metric: [values]}, and where."""
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))
    write_data(tmp_path)

    def learn(job, *overrides):
        path = train(
            load(None, settings_of(job, tiny_model_dir, tmp_path, *FAST, *overrides)).config, observer=Silent()
        )
        with RunReader(path) as reader:
            keys = {key for step in reader.steps() for key in step.metrics}
            return {key: [value for _, value, _ in reader.series(key)] for key in keys}, path

    return learn


def test_a_reward_model_finds_the_rule_and_its_worst_case_is_below_its_mean(learn):
    found, path = learn("reward_model", "training.steps=30", "algorithm.members=2", "algorithm.ties=leave_out")
    assert found["eval/preference/accuracy"][0] == 0.5
    assert found["eval/preference/accuracy"][-1] > 0.95
    assert found["eval/preference/agreement"][-1] > 0.95
    with RunReader(path) as reader:
        health = reader.meta["reward_health"]
    assert health["accuracy"]["value"] > 0.95
    prompts, completions = ["prompt 0 says"] * 4, [" aeio", " bcdf", " aaee", " ttrr"]
    mean = np.array(RewardModel.from_folder(path)(prompts, completions))
    worst = np.array(RewardModel.from_folder(path, combine="worst_case")(prompts, completions))
    assert (worst <= mean).all()
    assert (worst < mean).any()
    assert min(mean[[0, 2]]) > max(mean[[1, 3]])


def test_dpo_finds_the_rule_and_a_tenfold_beta_keeps_it_nearer(learn):
    more = ("training.steps=30", "training.eval_samples=64", "training.eval_every=30")
    free, _ = learn("dpo", *more, "algorithm.beta=0.1")
    held, _ = learn("dpo", *more, "algorithm.beta=1", "name=held")
    assert free["loss/preference"][0] == pytest.approx(np.log(2), abs=1e-5)
    assert free["eval/preference/accuracy"][0] == 0.5
    assert free["eval/preference/accuracy"][-1] > 0.95
    assert free["eval/reward/gold"][-1] > free["eval/reward/gold"][0] + 0.03
    assert free["eval/kl/exact_per_sequence"][0] == 0
    assert 0 < held["eval/kl/exact_per_sequence"][-1] < 0.5 * free["eval/kl/exact_per_sequence"][-1]
    assert free["eval/preference/chosen_drift"][-1] > free["eval/preference/rejected_drift"][-1]


def test_sft_lowers_the_loss_on_what_it_has_not_seen(learn):
    found, _ = learn("sft", "training.steps=20")
    assert found["eval/loss/sft"][-1] < 0.7 * found["eval/loss/sft"][0]
    assert found["eval/kl/exact_per_sequence"][-1] > 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_ppo_holds_its_target_once_the_reward_has_risen(learn, seed):
    """While the reward rises fastest, around step 40, the KL is above its target; the controller brings it back."""
    found, _ = learn(
        "ppo",
        "training.steps=120",
        "training.learning_rate=2e-3",
        "training.eval_every=120",
        "algorithm.kl.target_nats_per_sequence=2",
        "algorithm.kl.controller.ramp_steps=10",
        f"training.seed={seed}",
    )
    assert np.mean(found["reward/proxy"][-15:]) > np.mean(found["reward/proxy"][:5]) + 0.1
    assert np.mean(found["kl/exact_per_sequence"][-30:]) == pytest.approx(2, rel=0.35)
    assert np.mean(found["critic/explained_variance"][-30:]) > 0.1


def test_online_dpo_raises_the_reward_that_compares(learn):
    found, _ = learn("online_dpo", "training.steps=60", "training.eval_every=60", "algorithm.beta=0.02")
    assert np.mean(found["reward/proxy"][-10:]) > np.mean(found["reward/proxy"][:5]) + 0.1


def test_the_mix_lowers_the_loss_of_its_text(learn):
    more = ("training.steps=15", "training.prompts_per_step=4", "training.eval_every=15")
    mixed, _ = learn("mixed", *more)
    hardly, _ = learn("mixed", *more, "pretraining.gamma=1e-9", "name=hardly")
    assert mixed["loss/pretraining"][0] == hardly["loss/pretraining"][0]
    assert mixed["loss/pretraining"][-1] < hardly["loss/pretraining"][-1] - 0.5
