"""Rewards of an experience: shaping, rescaling, and sequences without a score."""

import numpy as np
import pytest
import torch
from tiny_run import session, settings

from kleash.config.schema import Reward
from kleash.data.prompts import Prompt
from kleash.data.render import RenderedPrompt
from kleash.rewards.function import resolve
from kleash.rollout.sampler import Completion
from kleash.training.experience import Rewarder, Spread, unrewarded
from kleash.training.step import on_policy_step

PROMPTS = [
    RenderedPrompt(Prompt(None, text, {"answer": text[::-1]}, "here"), None, text, (1,)) for text in ("ab", "cd")
]
REPLIES = [Completion((1, 2, 3), (0.0,) * 3, True), Completion((1, 2, 3, 4, 5), (0.0,) * 5, False)]
TEXTS = ["xyz", "hello"]


def length(completions):
    return [float(len(text)) for text in completions]


def matches(completions, answer):
    return [1.0 if text == right else 0.0 for text, right in zip(completions, answer, strict=True)]


def some(completions):
    return [None if text == "xyz" else 2.0 for text in completions]


def rewarder(*functions, gold=None, **table):
    settings = Reward(functions=tuple(f.__name__ for f in functions), **table)
    return Rewarder(settings, [resolve(f) for f in functions], None if gold is None else resolve(gold))


def test_functions_are_added_with_their_weights_and_gold_stays_apart():
    rewards = rewarder(length, matches, gold=some, weights=(0.5, 10.0))(PROMPTS, REPLIES, ["ba", "hello"])
    assert rewards.raw.tolist() == [11.0, 2.5]
    assert rewards.shaped.tolist() == [11.0, 2.5]
    assert rewards.gold.tolist() == [2.0, 2.0]


def test_the_scores_of_each_of_several_functions_are_kept():
    rewards = rewarder(length, matches)(PROMPTS, REPLIES, ["ba", "hello"])
    assert {name: values.tolist() for name, values in rewards.by_function.items()} == {
        "length": [2.0, 5.0],
        "matches": [1.0, 0.0],
    }
    assert rewarder(length)(PROMPTS, REPLIES, TEXTS).by_function == {}


def test_functions_of_one_name_are_told_apart_by_their_full_reference():
    def other_length(completions):
        return [0.0] * len(completions)

    other_length.__name__ = "length"
    made = Rewarder.from_settings(Reward(functions=("a", "b", "c")), [length, matches, other_length])
    names = list(made(PROMPTS, REPLIES, TEXTS).by_function)
    place = "test_functions_of_one_name_are_told_apart_by_their_full_reference.<locals>.other_length"
    assert names == [f"{__name__}:length", "matches", f"{__name__}:{place}"]


def test_shaping_comes_after_and_clipped_rewards_are_counted():
    table = {"clip": (0.0, 4.0), "missing_stop_penalty": 1.5, "length_penalty": 0.1, "length_penalty_from": 2}
    rewards = rewarder(length, **table)(PROMPTS, REPLIES, TEXTS)
    assert rewards.raw.tolist() == [3.0, 5.0]
    assert rewards.shaped.tolist() == pytest.approx([3.0 - 0.1, 4.0 - 1.5 - 0.3])
    assert rewards.num_clipped == 1


def test_rescaling_takes_the_starting_policys_spread():
    made = rewarder(length, rescale=True)
    assert made(PROMPTS, REPLIES, TEXTS).shaped.tolist() == [3.0, 5.0]
    made.spread = Spread(4.0, 2.0, 10)
    rewards = made(PROMPTS, REPLIES, TEXTS)
    assert (rewards.raw.tolist(), rewards.shaped.tolist()) == ([3.0, 5.0], [-0.5, 0.5])


def test_a_sequence_without_a_score_is_marked_and_not_shaped():
    rewards = rewarder(length, some, missing_stop_penalty=1.0)(PROMPTS, REPLIES, TEXTS)
    assert rewards.scored.tolist() == [False, True]
    assert np.isnan([rewards.raw[0], rewards.shaped[0]]).all()
    assert rewards.shaped[1] == 6.0
    assert not unrewarded(3).scored.any()


def test_a_step_leaves_sequences_without_a_score_out_of_the_update(tiny_model_dir, tmp_path):
    (tmp_path / "reward.py").write_text(
        "def vowels(completions):\n    return [None if i % 4 == 0 else float(i % 4) for i in range(len(completions))]\n"
    )
    running = session(settings(tiny_model_dir, tmp_path))
    seen = []
    inner = running.updater

    def updater(experience, scored, advantages, **rest):
        seen.append(advantages)
        return inner(experience, scored, advantages, **rest)

    updater.plan, updater.score = inner.plan, inner.score
    running.updater = updater
    numbers = on_policy_step(running, 0).numbers
    torch.testing.assert_close(seen[0].view(4, 4), torch.tensor([[0.0, -1.5, 0.0, 1.5]] * 4))
    assert numbers.metrics["reward/unscored_share"] == 0.25
    assert numbers.metrics["reward/proxy"] == 2.0
