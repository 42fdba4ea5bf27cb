import io
import math

import pytest
from rich.console import Console

from kleash.cli.demo import held_sentence, print_summary, settings
from kleash.cli.summary import Held, Mean, change, held, mean, summarize
from kleash.errors import ConfigError
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample, Step
from kleash.runs.writer import RunWriter

CONFIG = {"algorithm": {"type": "rloo", "kl": {"target_nats_per_sequence": 6.0}}}
KL = "kl/exact_per_sequence"


def sample(split, prompt, reward, kl=0.0, *, index=0, tokens=("a", "b", "c")):
    share = kl / len(tokens)
    step = 0 if split == "before" else 40
    text = "".join(tokens)
    return Sample(
        step, split, prompt, index, f"opener {prompt}", text, tokens, (share,) * len(tokens), reward, None, kl, False
    )


def a_run(path, samples, steps=(), config=CONFIG):
    with RunWriter.create(path, config, {}) as writer:
        for step in steps:
            writer.write_step(step)
        writer.write_samples(samples)
    return RunReader(path)


def test_a_mean_has_its_standard_error():
    # 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, variance 7, standard error sqrt(7 / 3)
    assert mean([1.0, 2.0, 6.0]) == Mean(3.0, pytest.approx(math.sqrt(7 / 3), rel=1e-12), 3)
    assert mean([4.0]) == Mean(4.0, None, 1)


def test_the_difference_is_paired_by_prompt():
    before = [sample("before", prompt, reward) for prompt, reward in enumerate([0.0, 0.5, -0.5])]
    after = [sample("after", prompt, reward) for prompt, reward in enumerate([0.25, 0.75, 0.25])]
    found = change(before, after, lambda one: one.reward)
    # differences 0.25, 0.25, 0.75: mean 5/12, deviations -1/6, -1/6, 1/3, variance 1/12, error sqrt(1/36) = 1/6
    assert found.difference.value == pytest.approx(5 / 12, rel=1e-12)
    assert found.difference.stderr == pytest.approx(1 / 6, rel=1e-12)
    assert found.before == Mean(0.0, pytest.approx(math.sqrt(0.25 / 3), rel=1e-12), 3)
    assert found.after.value == pytest.approx(1.25 / 3, rel=1e-12)


def test_samples_of_a_prompt_are_averaged_first():
    before = [sample("before", 0, 0.0), sample("before", 0, 1.0, index=1), sample("before", 1, 0.0)]
    after = [sample("after", 0, 1.0), sample("after", 1, 0.5), sample("after", 1, 1.5, index=1)]
    found = change(before, after, lambda one: one.reward)
    assert (found.before.value, found.after.value, found.difference.count) == (0.25, 1.0, 2)
    assert found.difference == Mean(0.75, pytest.approx(0.25, rel=1e-12), 2)


def test_a_prompt_without_a_score_on_one_side_is_left_out():
    before = [sample("before", 0, None), sample("before", 1, 0.5)]
    after = [sample("after", 0, 1.0), sample("after", 1, 1.0), sample("after", 2, 9.0)]
    assert change(before, after, lambda one: one.reward).difference == Mean(0.5, None, 1)
    assert change(before[:1], after, lambda one: one.reward) is None


def test_the_summary_of_a_run(tmp_path):
    looped = ("x", "y", "x", "y", "x", "y")
    samples = [
        sample("before", 0, 0.0),
        sample("before", 1, 0.5, tokens=("a", "b", "d")),
        sample("after", 0, 0.5, 3.0, tokens=looped),
        sample("after", 1, 0.75, 6.0, tokens=("a", "b", "c", "d")),
    ]
    steps = [Step(at, {KL: float(at), "control/target": 6.0}) for at in range(30)]
    with a_run(tmp_path / "run", samples, steps) as reader:
        found = summarize(reader)
    assert found.reward.difference.value == pytest.approx(0.375)
    assert (found.kl.before.value, found.kl.after.value) == (0.0, 4.5)
    # bigrams before: ab bc ab bd, 3 of 4 differ; after: xy yx xy yx xy, ab bc cd, 5 of 8 differ
    assert found.distinct_2 == (3 / 4, 5 / 8)
    # 4-grams after: xyxy yxyx xyxy of the first, abcd of the second: 1 of 4 repeats
    assert found.repeated_4gram == (0.0, 1 / 4)
    assert found.held == Held(19.5, 20, KL, 6.0)  # steps 10 to 29
    assert [(before.prompt_index, after.prompt_index) for before, after in found.pairs] == [(0, 0), (1, 1)]


def test_a_run_that_has_not_ended_has_no_summary(tmp_path):
    with a_run(tmp_path / "run", [sample("before", 0, 0.0)]) as reader:
        assert summarize(reader) is None
        assert held(reader) is None


def test_the_kl_is_held_in_the_unit_of_the_target(tmp_path):
    config = {"algorithm": {"kl": {"target_nats_per_token": 0.1}}}
    steps = [Step(0, {KL: 6.0, "kl/exact_per_token": 0.25})]
    with a_run(tmp_path / "run", [], steps, config) as reader:
        assert held(reader) == Held(0.25, 1, "kl/exact_per_token", None)


def test_how_well_the_kl_was_held_in_words():
    assert held_sentence(Held(6.6, 20, KL, 6.0)) == (
        "KL over the last 20 steps: 6.60 nats per sequence, 10\u202f% above the target of 6."
    )
    assert held_sentence(Held(0.09, 5, "kl/exact_per_token", 0.1)) == (
        "KL over the last 5 steps: 0.0900 nats per token, 10\u202f% below the target of 0.100."
    )
    assert held_sentence(Held(0.09, 5, KL, None)).endswith("nats per sequence; no target was set.")


def test_the_printed_summary(tmp_path):
    samples = [sample("before", prompt, 0.0) for prompt in range(4)]
    samples += [sample("after", prompt, 0.5 + prompt / 4, 6.0) for prompt in range(4)]
    with a_run(tmp_path / "run", samples, [Step(0, {KL: 6.0, "control/target": 6.0})]) as reader:
        found = summarize(reader)
    console = Console(file=io.StringIO(), width=100, markup=False)
    print_summary(console, found)
    lines = console.file.getvalue().splitlines()
    assert lines[1].split("   ")[0] == "4 held-out prompts"
    # rewards 0.5, 0.75, 1, 1.25: mean 0.875, variance 0.3125 / 3, standard error 0.161
    assert lines[2].split() == ["reward", "0", "±", "0", "0.88", "±", "0.16", "+0.88", "±", "0.16"]
    assert lines[3].split() == ["KL,", "nats", "per", "sequence", "0", "±", "0", "6", "±", "0", "+6", "±", "0"]
    assert lines[4].split() == ["distinct-2", "0.250", "0.250", "+0.000"]
    openers = [line for line in lines if line.startswith("opener")]
    assert openers == ["opener 0 ...", "opener 1 ...", "opener 2 ..."]
    assert "  after  reward 0.750, KL 6: abc" in lines


def test_the_demo_is_the_documented_run(tmp_path):
    config = settings(None, None, None).config
    assert (config.model.name, config.prompts.path, config.prompts.held_out) == ("demo", "demo", 36)
    assert config.reward.functions == ("kleash.demo.sentiment:positive",)
    assert (config.algorithm.type, config.algorithm.num_generations) == ("rloo", 4)
    assert config.algorithm.kl.target_nats_per_sequence == 6
    assert (config.training.steps, config.training.prompts_per_step, config.training.learning_rate) == (60, 8, 5e-4)
    assert (config.rollout.max_completion_length, config.model.lora.r) == (24, 16)
    changed = settings(7, tmp_path / 'a "b"', 3).config
    assert (changed.training.steps, changed.training.seed) == (7, 3)
    assert changed.output_dir == str(tmp_path / 'a "b"')


def test_a_demo_of_no_steps_is_refused():
    with pytest.raises(ConfigError, match=r"training\.steps"):
        settings(0, None, None)
