"""The recipes of evidence in seconds: on a policy of 2 layers, and on a language that can be enumerated."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.evidence.recipe import Run  # noqa: E402
from recipes.evidence.training import finished_runs  # noqa: E402
from recipes.hold_the_target import evidence as hold_the_target  # noqa: E402
from recipes.posterior import enumerable  # noqa: E402
from recipes.too_tight_too_loose import evidence as too_tight_too_loose  # noqa: E402
from recipes.wrong_gradients import evidence as wrong_gradients  # noqa: E402
from recipes.zero_kl import evidence as zero_kl  # noqa: E402

VOWELS = '''
def vowels(completions, **columns):
    """Share of vowels."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''
RUN = """\
model = {{ name = "{model}", dtype = "float32" }}
prompts = {{ path = "{folder}/prompts.txt", held_out = 4 }}
reward = "{folder}/reward.py:vowels"
algorithm.num_generations = 4
rollout.max_completion_length = 10
training = {{ steps = 60, prompts_per_step = 8, learning_rate = 0.003, eval_every = 100, eval_samples = 8 }}
"""


@pytest.fixture
def run_file(tiny_model_dir, tmp_path):
    """A run.toml on the tiny model."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"prompt number {i} says" for i in range(12)))
    (tmp_path / "reward.py").write_text(VOWELS)
    path = tmp_path / "run.toml"
    path.write_text(RUN.format(model=tiny_model_dir, folder=tmp_path))
    return path


def test_without_a_penalty_reward_and_kl_rise_and_the_text_stops_varying(run_file, tmp_path):
    folder = tmp_path / "runs" / "zero_kl"
    sweep = ("training.seed=0", "algorithm.kl.beta=0,0.1")
    runs = finished_runs(run_file, sweep, folder, jobs=2)
    assert [run.values for run in runs] == [{"algorithm.kl.beta": "0"}, {"algorithm.kl.beta": "0.1"}]
    written = [(run.path / "run.db").stat().st_mtime_ns for run in runs]
    assert finished_runs(run_file, sweep, folder, jobs=2) == runs
    assert [(run.path / "run.db").stat().st_mtime_ns for run in runs] == written

    free, held = (zero_kl.measure_run(zero_kl.Run({**run.values, zero_kl.SEED: "0"}, run.path)) for run in runs)
    assert free["after"]["reward"] > held["after"]["reward"] + 0.1 > free["before"]["reward"]
    assert free["after"]["kl"] > 5 * held["after"]["kl"] > 0
    assert free["after"]["entropy"] < 0.8 * held["after"]["entropy"]
    assert free["after"]["distinct_2"] < held["after"]["distinct_2"]
    assert free["before"] == pytest.approx(held["before"])


def test_target_holds_where_a_slow_rule_does_not_arrive(run_file, tmp_path):
    keys = hold_the_target
    controllers, common = f"{keys.CONTROLLER}=target,ziegler", (f"{keys.TARGET}=1", f"{keys.SEED}=0")
    found = finished_runs(run_file, (controllers, *common), tmp_path / "runs" / "held", jobs=2)
    held, slow = (keys.measure_run(Run({**run.values, keys.TARGET: "1", keys.SEED: "0"}, run.path)) for run in found)
    assert 0.5 < held["kl"] < 1.7
    assert held["error"] < 0.5 * slow["error"]


def test_the_larger_beta_the_less_proxy_and_kl(run_file, tmp_path):
    keys = too_tight_too_loose
    settings = (f"{keys.BETA}=0.001,10", f"reward.gold={tmp_path}/reward.py:vowels", f"{keys.SEED}=0")
    found = finished_runs(run_file, settings, tmp_path / "runs" / "tight", jobs=2)
    loose, tight = (
        keys.measure_run(
            Run({**run.values, keys.SEED: "0"}, run.path), lambda _, texts: [float(len(one)) for one in texts]
        )
        for run in found
    )
    assert loose["after"]["proxy"] > tight["after"]["proxy"] + 0.3
    assert loose["after"]["kl"] > 100 * tight["after"]["kl"]
    assert loose["after"]["distinct_2"] < 0.8 * tight["after"]["distinct_2"]
    assert tight["after"]["kl"] < keys.AT_HOME


def test_k1_in_the_loss_holds_nothing_where_exact_does(run_file, tmp_path):
    ends = {}
    for name in (wrong_gradients.EXACT, wrong_gradients.K1_LOSS):
        settings = (*wrong_gradients.PENALTIES[name], "algorithm.kl.beta=0.3", "training.seed=0,1")
        found = finished_runs(run_file, settings, tmp_path / "runs" / name.replace(" ", "_"), jobs=2)
        runs = [Run({**run.values, wrong_gradients.PENALTY: name}, run.path) for run in found]
        ends[name] = [wrong_gradients.measure_run(run)["after"]["kl"] for run in runs]
    assert min(ends[wrong_gradients.K1_LOSS]) > 10 * max(ends[wrong_gradients.EXACT])


REWARDS, BEST = enumerable.rewards_with_two_best()
REFERENCE = enumerable.TOY.sequence_logprobs(enumerable.TOY.reference_logits).exp().numpy()


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_on_the_toy_training_ends_at_the_posterior(beta):
    unnormalized = REFERENCE * np.exp(REWARDS.numpy() / beta)
    trained = enumerable.train(beta, REWARDS, steps=1500).exp().numpy()
    np.testing.assert_allclose(trained, unnormalized / unnormalized.sum(), rtol=0, atol=1e-7)
    first, second = BEST
    assert trained[first] / trained[second] == pytest.approx(REFERENCE[first] / REFERENCE[second], rel=1e-6)


def test_on_the_toy_without_a_penalty_one_answer_is_left():
    trained = enumerable.train(0.0, REWARDS, steps=1500).exp()
    assert trained.max() > 0.99
    first, second = BEST
    assert abs(torch.log(trained[first] / trained[second]) - np.log(REFERENCE[first] / REFERENCE[second])) > 0.1
