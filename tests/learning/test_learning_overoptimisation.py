"""Overoptimisation in seconds: a policy of 2 layers meets a proxy, and what is read of its path."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from kleash.frontier.points import read_run  # noqa: E402
from kleash.runs.reader import RunReader  # noqa: E402
from recipes.evidence.training import finished_runs  # noqa: E402
from recipes.overoptimisation import paths, said  # noqa: E402

REWARDS = '''
def vowels(completions, **columns):
    """The proxy: share of vowels."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]


def different_letters(completions, **columns):
    """Gold: share of letters that are not there before. One vowel over and over has next to none."""
    return [len(set(text)) / max(1, len(text)) for text in completions]
'''
RUN = """\
model = {{ name = "{model}", dtype = "float32" }}
prompts = {{ path = "{folder}/prompts.txt", held_out = 4 }}
reward = {{ functions = ["{folder}/reward.py:vowels"], gold = "{folder}/reward.py:different_letters", rescale = true }}
algorithm.num_generations = 4
rollout.max_completion_length = 10
training = {{ steps = 30, prompts_per_step = 8, learning_rate = 0.01, eval_every = 3, eval_samples = 16 }}
"""


@pytest.fixture
def run_file(tiny_model_dir, tmp_path):
    """A run.toml on the tiny model."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"prompt number {i} says" for i in range(12)))
    (tmp_path / "reward.py").write_text(REWARDS)
    path = tmp_path / "run.toml"
    path.write_text(RUN.format(model=tiny_model_dir, folder=tmp_path))
    return path


def test_gold_falls_where_the_proxy_goes_on(run_file, tmp_path):
    runs = finished_runs(run_file, ("training.seed=0", "algorithm.kl.beta=0,0.5"), tmp_path / "runs" / "sizes", jobs=2)
    found = []
    for run in runs:
        with RunReader(run.path) as reader:
            samples = paths.held_out_samples(reader)
        found.append(paths.in_sd(read_run(run.path), paths.spread(samples), "vowels"))
    free, priced = found
    gold = [paths.value(point, "gold") for point in free]
    assert gold[-1] < gold[0] - 0.1
    assert said.proxy_after_peak([paths.plain(point) for point in free]) > 0
    assert paths.root(priced[-1]) < 0.8 * paths.root(free[-1])

    by_length = paths.by_judge(free, samples, lambda prompts, completions: [len(text) for text in completions])
    assert by_length[0].gold.value == pytest.approx(0.0)
    strands = {strand["by"]: strand for strand in paths.strands(free)}
    assert strands["gold"]["smooth"]["turns_over"]
