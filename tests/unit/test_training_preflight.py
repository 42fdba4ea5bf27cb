"""Checks that must pass on a sound session and fail, by name, on a broken one."""

import math

import numpy as np
import pytest
import torch
from tiny_run import Remembering, perturb, session, settings

from kleash.errors import RunStopped
from kleash.rollout.decoding import DecodingSampler
from kleash.training import preflight as checks
from kleash.training.experience import gather
from kleash.training.preflight import preflight

NAMES = [
    "logits_agree",
    "kl_at_start",
    "scores_repeat",
    "padding",
    "sampler_agrees",
    "beta_has_gradient",
    "reward_varies",
]


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        return session(settings(tiny_model_dir, tmp_path, *overrides))

    return made


def results(running):
    observer = Remembering()
    stopped = ""
    try:
        preflight(running, observer, "f" * 64)
    except RunStopped as error:
        stopped = str(error)
    return observer, {result.name: result for result in observer.checks}, stopped


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "overrides",
    [[], ["model.lora=false"], ["model.lora=false", "model.gradient_checkpointing=true"], ["training.num_epochs=2"]],
    ids=["lora", "whole", "whole, checkpointing", "two epochs"],
)
def test_a_sound_session_passes_and_is_left_as_it_was(make, dtype, overrides):
    running = make(f"model.dtype={dtype}", *overrides)
    before = [p.detach().clone() for _, p in running.policy.trained()]
    observer, found, stopped = results(running)
    assert stopped == ""
    assert [result.name for result in observer.checks] == NAMES
    assert all(result.passed for result in found.values())
    assert all(torch.equal(p, value) for (_, p), value in zip(running.policy.trained(), before, strict=True))
    assert running.optimizer.gradients() == []


def test_facts_say_who_is_measured_against_whom_and_what_odd_answers_earn(make):
    observer, _, _ = results(make())
    facts = {fact.split()[0]: fact for fact in observer.facts}
    assert "with the adapter off" in facts["reference"]
    assert "fingerprint ffffffffffffffff" in facts["reference"]
    assert facts["KL"].split() == ["KL", "exact,", "scope", "sequence,", "in", "the", "loss,", "nats"]
    # "the the the the" has 4 vowels in 15 letters; "prompt number 7 says" has 4 in 20, two digits more make it 4 in 21
    assert "pays empty 0, constant 0.267, echoed 0.2" in facts["reward"]
    assert "weights to train" in facts["cost"]


def test_logits_that_are_not_head_times_state_are_noticed(make):
    running = make()
    running.policy.causal_lm.lm_head.register_forward_hook(lambda module, args, out: out / 2)
    _, found, stopped = results(running)
    assert not found["logits_agree"].passed
    assert "is off the model's own logits by 1 of the largest: it scales, caps or shifts" in stopped


def test_a_policy_that_has_moved_already_is_named(make):
    running = make()
    perturb(running.policy)
    _, found, stopped = results(running)
    assert not found["kl_at_start"].passed
    assert stopped.startswith("preflight failed: kl_at_start: KL is ")
    assert 'set skip_checks = ["kl_at_start"] if it is meant' in stopped


def test_skipped_checks_may_fail(make):
    running = make('skip_checks=["kl_at_start"]')
    perturb(running.policy)
    _, found, stopped = results(running)
    assert not found["kl_at_start"].passed
    assert stopped == ""


def test_dropout_is_noticed(make):
    running = make()
    running.policy.causal_lm.model.layers[0].mlp.register_forward_hook(
        lambda module, args, out: torch.nn.functional.dropout(out, 0.2)
    )
    _, found, _ = results(running)
    assert "dropout or another randomness is on" in found["scores_repeat"].detail
    assert not found["scores_repeat"].passed


def test_a_sampler_of_another_model_is_noticed(make):
    running = make()
    running.make_sampler = lambda: DecodingSampler(running.policy.sampling.model, running.policy.tokenizer)
    _, found, _ = results(running)
    assert [name for name in NAMES if not found[name].passed] == ["sampler_agrees"]
    assert "they do not run the same model" in found["sampler_agrees"].detail


def test_a_penalty_that_reaches_nothing_is_noticed(make):
    running = make()

    def cut(module, arguments, out):
        out.last_hidden_state = out.last_hidden_state.detach()

    running.policy.causal_lm.base_model.register_forward_hook(cut)
    _, found, _ = results(running)
    assert [name for name in NAMES if not found[name].passed] == ["beta_has_gradient"]
    assert "the penalty does not reach the trained weights" in found["beta_has_gradient"].detail


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("0.5", "all samples of a prompt are paid the same: there is nothing to learn from"),
        ("float(prompt.split()[2])", "all samples of a prompt are paid the same: there is nothing to learn from"),
        ("None", "the reward gave no score (None)"),
    ],
)
def test_a_reward_that_says_nothing_is_noticed(make, tmp_path, reward, message):
    (tmp_path / "reward.py").write_text(f"def vowels(prompts):\n    return [{reward} for prompt in prompts]\n")
    _, found, stopped = results(make())
    assert message in found["reward_varies"].detail
    assert "reward_varies" in stopped


def within(rewards):
    """Root of the mean variance among the 4 samples of a prompt, by hand."""
    groups = rewards.reshape(-1, 4)
    deviations = groups - groups.sum(axis=1, keepdims=True) / 4
    return math.sqrt((deviations**2).sum() / 3 / len(groups))


@pytest.fixture
def probed(monkeypatch):
    """The experience that preflight gathers."""
    kept = []

    def keeping(*arguments):
        kept.append(gather(*arguments))
        return kept[-1]

    monkeypatch.setattr(checks, "gather", keeping)
    return kept


PER_SEQUENCE = "algorithm.kl.target_nats_per_sequence=8"
BY_GROUP = ["algorithm.type=grpo", "algorithm.scale_rewards=group"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([PER_SEQUENCE], lambda raw, length: within(raw) / 4),
        ([PER_SEQUENCE, "algorithm.type=grpo"], lambda raw, length: within(raw) / 4),
        ([PER_SEQUENCE, "reward.rescale=true"], lambda raw, length: within(raw) / raw.std(ddof=1) / 4),
        ([PER_SEQUENCE, *BY_GROUP], lambda raw, length: 1 / 4),
        ([PER_SEQUENCE, *BY_GROUP, "reward.rescale=true"], lambda raw, length: 1 / 4),
        (["algorithm.kl.target_nats_per_token=0.5"], lambda raw, length: within(raw) / math.sqrt(length)),
        ([PER_SEQUENCE, "algorithm.kl.beta=0.3"], lambda raw, length: 0.3),
        ([], lambda raw, length: 0.05),
    ],
    ids=["RLOO", "Dr. GRPO", "rescaled", "GRPO", "GRPO, rescaled", "per token", "as set", "default"],
)
def test_beta_starts_at_spread_over_the_root_of_twice_the_target(make, probed, overrides, expected):
    running = make(*overrides)
    results(running)
    raw, length = probed[0].rewards.raw, np.mean([len(c.token_ids) for c in probed[0].completions])
    assert running.controller.beta == pytest.approx(expected(raw, length), rel=1e-9)
    assert running.starting_beta == running.controller.beta
    assert running.rewarder.spread.sd == pytest.approx(raw.std(ddof=1))
    assert running.rewarder.spread.count == 16


def test_shaping_is_in_the_units_of_the_rescaled_reward(make, probed, tmp_path):
    """Rewards of 100 to 103 that are clipped to one sd: unscaled, all would be cut to the same."""
    (tmp_path / "reward.py").write_text(
        "def vowels(completions):\n    return [100.0 + i % 4 for i in range(len(completions))]\n"
    )
    running = make(PER_SEQUENCE, "reward.rescale=true", "reward.clip=[-1, 1]")
    _, found, _ = results(running)
    assert found["reward_varies"].passed
    sd = np.std([0.0, 1.0, 2.0, 3.0] * 4, ddof=1)
    clipped = np.array([-1.0, -0.5 / sd, 0.5 / sd, 1.0] * 4)
    assert running.controller.beta == pytest.approx(within(clipped) / 4, rel=1e-9)
