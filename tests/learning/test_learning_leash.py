"""A policy of 2 layers learns to write vowels: the reward rises, and the KL ends where it was told to."""

import numpy as np
import pytest
from tiny_run import settings

from kleash.runs.reader import RunReader
from kleash.training.observer import Silent
from kleash.training.run import train

TARGET = 3.0
LEARNABLE = ["training.steps=150", "training.prompts_per_step=12", "training.learning_rate=0.001"]
SHORT = ["training.steps=40", "training.prompts_per_step=8", "training.learning_rate=0.003"]


@pytest.fixture
def series(tiny_model_dir, tmp_path):
    """Train, and return what was recorded under each key, step by step."""

    def trained(*overrides):
        name = f"name=run-{len(list(tmp_path.glob('runs/*')))}"
        path = train(settings(tiny_model_dir, tmp_path, name, *overrides), observer=Silent())
        with RunReader(path) as reader:
            keys = ("kl/exact_per_sequence", "kl/exact_per_token", "kl/k1_per_sequence", "reward/proxy")
            return {key: np.array([value for _, value, _ in reader.series(key)]) for key in keys}

    return trained


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        pytest.param(["algorithm.type=grpo", "training.steps=220"], marks=pytest.mark.slow),
        pytest.param(["model.lora=false"], marks=pytest.mark.slow),
    ],
    ids=["rloo", "grpo", "whole"],
)
def test_the_reward_rises_while_kl_ends_within_30_percent_of_its_target(series, overrides):
    told = series(
        *LEARNABLE, f"algorithm.kl.target_nats_per_sequence={TARGET}", "algorithm.num_generations=4", *overrides
    )
    reward, kl = told["reward/proxy"], told["kl/exact_per_sequence"]
    assert reward[:10].mean() < 0.05
    assert reward[-20:].mean() > 0.2
    assert kl[-30:].mean() == pytest.approx(TARGET, rel=0.3)
    assert np.convolve(kl, np.ones(10) / 10, mode="valid").max() < 2 * TARGET
    assert told["kl/k1_per_sequence"][-30:].mean() == pytest.approx(kl[-30:].mean(), rel=0.15)


def test_beta_is_a_leash(series):
    """A huge beta pins the policy to the reference; none lets it drift further than a little; all see their KL."""
    drift, reward = {}, {}
    for beta in (0, 0.05, 100):
        told = series(*SHORT, f"algorithm.kl.beta={beta}")
        drift[beta], reward[beta] = told["kl/exact_per_sequence"][-10:].mean(), told["reward/proxy"][-10:].mean()
    assert 0 < drift[100] < 0.02
    assert drift[0] > 5 * drift[0.05] > 25 * drift[100]
    assert reward[0] > 2 * reward[0.05] > 0
    assert reward[100] < 0.05


@pytest.mark.slow
def test_a_target_per_token_is_held(series):
    told = series(*LEARNABLE, "algorithm.kl.target_nats_per_token=0.25", "rollout.max_completion_length=20")
    assert told["reward/proxy"][-20:].mean() > 3 * told["reward/proxy"][:10].mean()
    assert told["kl/exact_per_token"][-30:].mean() == pytest.approx(0.25, rel=0.3)
