"""The recipes of evidence about rewards and skills in seconds, on a policy of 2 layers."""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.ai_feedback import evidence as ai_feedback  # noqa: E402
from recipes.alignment_tax import evidence as alignment_tax  # noqa: E402
from recipes.alignment_tax import skills  # noqa: E402
from recipes.copying import evidence as copying  # noqa: E402
from recipes.ensembles import evidence as ensembles  # noqa: E402
from recipes.evidence.recipe import Run  # noqa: E402
from recipes.evidence.training import finished_runs  # noqa: E402
from recipes.small_model import proxies  # noqa: E402
from recipes.small_model.make import MODEL  # noqa: E402

REWARDS = '''
def share(text, letters):
    return sum(letter in letters for letter in text) / max(1, len(text))


def vowels(completions, **columns):
    """Gold: share of vowels."""
    return [share(text, "aeiou") for text in completions]


def holed(completions, **columns):
    """Vowels, and twice as much for what gold does not pay for."""
    return [share(text, "aeiou") + 2 * share(text, "mnprst") for text in completions]
'''
RUN = """\
model = {{ name = "{model}", dtype = "float32" }}
prompts = {{ path = "{folder}/prompts.txt", held_out = 4 }}
algorithm.num_generations = 4
rollout.max_completion_length = 10
training = {{ steps = 60, prompts_per_step = 8, learning_rate = 0.003, eval_every = 100, eval_samples = 8 }}
"""


@pytest.fixture
def run_file(tiny_model_dir, tmp_path):
    """A run.toml on the tiny model, without its reward."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"prompt number {i} says" for i in range(12)))
    (tmp_path / "reward.py").write_text(REWARDS)
    path = tmp_path / "run.toml"
    path.write_text(RUN.format(model=tiny_model_dir, folder=tmp_path))
    return path


def test_a_leash_limits_a_hole_and_does_not_mend_it(run_file, tmp_path):
    gold = f"reward.gold={tmp_path}/reward.py:vowels"
    holed = (f'reward.functions=["{tmp_path}/reward.py:holed"]', f"{copying.BETA}=0,0.1", gold, f"{copying.SEED}=0")
    right = (f'reward.functions=["{tmp_path}/reward.py:vowels"]', f"{copying.BETA}=0,0.1", gold, f"{copying.SEED}=0")
    ends = {}
    for name, settings in ((copying.HOLED, holed), (copying.GOLD, right)):
        for run in finished_runs(run_file, settings, tmp_path / "runs" / name.replace(" ", "_"), jobs=2):
            values = {**run.values, copying.REWARD: name, copying.SEED: "0"}
            ends[name, run.values[copying.BETA]] = copying.measure_run(Run(values, run.path))["after"]
    assert ends[copying.HOLED, "0"]["kl"] > 2 * ends[copying.HOLED, "0.1"]["kl"]
    assert ends[copying.HOLED, "0"]["proxy"] > ends[copying.HOLED, "0.1"]["proxy"]
    assert ends[copying.GOLD, "0"]["gold"] > ends[copying.HOLED, "0"]["gold"] + 0.1


def comparison(rng, prompt):
    """Two strings of letters, the one with more vowels chosen."""
    texts = ["".join(rng.choices("aeioubcdfgh", k=8)) for _ in range(2)]
    rejected, chosen = sorted(texts, key=lambda text: sum(letter in "aeiou" for letter in text))
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def write_comparisons(path, count, seed=0):
    rng = random.Random(seed)
    rows = (comparison(rng, f"prompt number {i % 12} says") for i in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row["chosen"] != row["rejected"]))


def test_an_ensemble_is_optimised_in_each_way(run_file, tiny_model_dir, tmp_path):
    shutil.copytree(tiny_model_dir, tmp_path / "data" / MODEL.name)
    write_comparisons(tmp_path / "data" / "comparisons.jsonl", 400)
    write_comparisons(tmp_path / "data" / "comparisons_test.jsonl", 50, seed=1)
    proxy = proxies.reward_model(160, seed=0, members=2, folder=tmp_path / "data")
    written = (proxy / "run.db").stat().st_mtime_ns
    assert proxies.reward_model(160, seed=0, members=2, folder=tmp_path / "data") == proxy
    assert (proxy / "run.db").stat().st_mtime_ns == written

    ways = f"{ensembles.COMBINE}=mean,worst_case"
    shared = (f"{ensembles.MODEL}={proxy}", "reward.rescale=true", f"reward.gold={tmp_path}/reward.py:vowels")
    found = finished_runs(run_file, (ways, *shared, "algorithm.kl.beta=0.1"), tmp_path / "runs" / "ensemble", jobs=2)
    for run in found:
        path = ensembles.measure_run(Run({**run.values, ensembles.SEED: "0"}, run.path))
        assert path["proxy"][-1] > path["proxy"][0] + 0.15
        assert path["kl"][-1] > 0.05


def test_a_mix_lowers_the_loss_that_a_price_leaves(run_file, tiny_model_dir, tmp_path, monkeypatch):
    for kind in skills.GENERAL:
        (tmp_path / f"{kind}_held_out.txt").write_text("the loss of general text\nof the text that is mixed in\n")
    (tmp_path / "mix.txt").write_text("\n\n".join(["the loss of general text that is mixed in"] * 40))
    monkeypatch.setattr(skills, "DATA", tmp_path)
    monkeypatch.setattr(skills, "made", lambda: tiny_model_dir)
    shared = (f"reward={tmp_path}/reward.py:vowels", "algorithm.kl.beta=0.1", "training.checkpoint_every=60")
    mix = (f"pretraining.path={tmp_path}/mix.txt", "pretraining.row_length=32", f"{alignment_tax.GAMMA}=0.001,3")
    slight, full = finished_runs(run_file, (*shared, *mix), tmp_path / "runs" / "mixed", jobs=2)
    before, without, after = (
        skills.measure(adapter)
        for adapter in (None, *(alignment_tax.last_checkpoint(run.path) for run in (slight, full)))
    )
    assert after.loss < min(before.loss, without.loss) - 0.2
    assert before.sums == 0.0


def test_a_judges_comparisons_make_a_policy_better(run_file, tmp_path):
    write_comparisons(tmp_path / "judge.jsonl", 400)
    run_file.write_text(
        run_file.read_text()
        .replace("prompts = {", "comparisons = {")
        .replace("prompts.txt", "judge.jsonl")
        .replace("held_out = 4", "held_out = 60")
        .replace("algorithm.num_generations = 4", 'algorithm.type = "dpo"')
    )
    gold = f"reward.gold={tmp_path}/reward.py:vowels"
    quick = "training.learning_rate=0.02"
    found = finished_runs(run_file, (gold, quick, f"{ai_feedback.SEED}=0,1"), tmp_path / "runs" / "dpo", jobs=2)
    for run in found:
        end = ai_feedback.measure_run(Run({ai_feedback.LABELS: ai_feedback.JUDGE, **run.values}, run.path))
        assert end["gold"] > end["gold_before"] + 0.03
        assert end["kl"] > 0.1
