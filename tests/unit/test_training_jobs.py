"""Each job on the tiny model: where it starts, what one step does, and what must not move."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_jobs
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.config.loader import load
from kleash.errors import ConfigError, DataError
from kleash.rewards.function import resolve
from kleash.training import preference
from kleash.training.credit import assign
from kleash.training.critic import Credit
from kleash.training.evaluate import evaluate
from kleash.training.experience import Rewarder, Rewards, gather
from kleash.training.given import Given
from kleash.training.job import quiet
from kleash.training.jobs import prepare
from kleash.training.observer import Silent
from kleash.training.pretraining import text_loss
from kleash.training.rewards import pinned
from kleash.training.run import train
from kleash.training.seeds import prompts_of_step, seed_for


@pytest.fixture
def make(tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))
    tiny_jobs.write_data(tmp_path)

    def make(job, *overrides):
        config = load(None, tiny_jobs.settings_of(job, tiny_model_dir, tmp_path, *overrides)).config
        return prepare(config).build(Accelerator())

    return make


def scored_alone(job, rows, adapter_off):
    """Log-probability of chosen and rejected of each row, by the model's own logits, one text at a time."""
    found = []
    for row in rows:
        for side in (row.chosen_ids, row.rejected_ids):
            ids = torch.tensor([[*row.prompt.token_ids, *side]])
            if adapter_off:
                with job.policy.switched(None):
                    logits = job.policy.causal_lm(ids).logits
            else:
                logits = job.policy.causal_lm(ids).logits
            logprobs = logits[0, len(row.prompt.token_ids) - 1 : -1].log_softmax(dim=-1)
            found.append(logprobs.gather(1, torch.tensor(side)[:, None]).sum())
    return torch.stack(found).view(-1, 2)


def test_dpo_starts_at_the_reference_and_steps_along_its_gradient(make):
    job = make("dpo", "training.prompts_per_step=5")
    job.read_with_reference(job.fingerprint())
    rows = [job.data.train[i] for i in range(5)]
    start = job._measure(job.data.train, range(5), job._reference_logprobs["train"])
    assert np.abs(start["margin"]).max() < 1e-4
    assert start["loss"] == pytest.approx(np.full(5, np.log(2)), abs=1e-5)

    with torch.no_grad():
        for name, parameter in job.policy.trained():
            if "lora_B" in name:
                parameter.add_(0.05)
    job._optimizer.zero()
    job._measure(job.data.train, range(5), job._reference_logprobs["train"], learn=True)
    found = {name: parameter.grad.clone() for name, parameter in job.policy.trained()}
    job._optimizer.zero()
    with torch.no_grad():
        reference = scored_alone(job, rows, adapter_off=True)
    ratio = scored_alone(job, rows, adapter_off=False) - reference
    margin = 0.1 * (ratio[:, 0] - ratio[:, 1])
    won, lost = -torch.nn.functional.logsigmoid(margin), -torch.nn.functional.logsigmoid(-margin)
    tied = torch.tensor([row.comparison.strength == 0 for row in rows])
    torch.where(tied, (won + lost) / 2, won).mean().backward()
    for name, parameter in job.policy.trained():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_the_reference_is_read_once(make, monkeypatch):
    first = make("dpo")
    first.read_with_reference(first.fingerprint())
    second = make("dpo")

    def fail(*arguments):
        raise AssertionError("read again")

    monkeypatch.setattr(preference.PreferenceJob, "_read", fail)
    second.read_with_reference(second.fingerprint())
    for split in ("train", "held_out"):
        assert np.array_equal(first._reference_logprobs[split], second._reference_logprobs[split])
    other = make("dpo", "comparisons.append_stop=false")
    with pytest.raises(AssertionError, match="read again"):
        other.read_with_reference(other.fingerprint())


@pytest.mark.parametrize("placement", ["loss", "reward"])
def test_ppo_learns_its_critic_and_leaves_the_policy_to_its_own_updates(make, placement):
    penalty = [] if placement == "loss" else ["algorithm.kl.estimator=k1", "algorithm.kl.placement=reward"]
    job = make("ppo", "training.num_minibatches=1", "training.learning_rate=3e-3", *penalty)
    session = job.session
    frozen = [parameter.detach().clone() for _, parameter in session.policy.frozen()]
    made = [job.step(step, quiet) for step in range(3)]
    assert made[0].numbers.metrics["critic/loss"] > 0
    assert made[0].numbers.metrics["critic/explained_variance"] <= 0.01  # a head of zeros knows nothing
    assert all(torch.equal(a, b) for a, (_, b) in zip(frozen, session.policy.frozen(), strict=True))
    names = {name for name, _ in session.policy.trained()}
    assert names
    assert not any("critic" in name for name in names)
    before = [parameter.detach().clone() for _, parameter in session.policy.trained()]
    experience = made_experience(job)
    values = session.critic.values(experience)
    credit = Credit(torch.zeros_like(values), torch.ones_like(values), values)
    losses = [session.critic.update(experience, credit, 3).loss for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(torch.equal(a, b) for a, (_, b) in zip(before, session.policy.trained(), strict=True))


def made_experience(job, samples=4):
    """Fresh samples of the policy."""
    session = job.session
    prompts = list(session.data.train[:4])
    completions = session.make_sampler().sample(
        [prompt.token_ids for prompt in prompts], num_samples=samples, max_length=10, temperature=1.0, seed=0
    )
    return gather(prompts, completions, session.policy.tokenizer, session.rewarder)


def test_the_mix_adds_gamma_times_the_mean_loss_of_its_tokens(make):
    job = make("mixed", "pretraining.gamma=3", "pretraining.rows_per_update=2")
    policy, mix = job.session.policy, job.session.updater._mix
    job.session.optimizer.zero()
    loss = mix.backward(policy, 0)
    found = [parameter.grad.clone() for _, parameter in policy.trained()]
    job.session.optimizer.zero()
    chosen = [mix._rows[i] for i in prompts_of_step(len(mix._rows), 2, 0, seed_for(0, "text"))]
    ids = [torch.tensor([row]) for row in chosen]
    means = [-policy.causal_lm(i).logits[0, :-1].log_softmax(dim=-1).gather(1, i[0, 1:, None]).mean() for i in ids]
    assert float(loss) == pytest.approx(float(sum(means).detach()) / 2, rel=1e-4)
    (3 * sum(means) / 2).backward()
    for expected, (_, parameter) in zip(found, policy.trained(), strict=True):
        torch.testing.assert_close(expected, parameter.grad, rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        assert float(text_loss(policy, chosen[:1])) == pytest.approx(float(means[0].detach()) * 63, rel=1e-4)


def test_a_reward_model_starts_at_zero_and_its_members_part(make):
    job = make("reward_model", "algorithm.members=2", "training.learning_rate=3e-3")
    assert np.array_equal(job.scores(job.data.held_out, quiet), np.zeros((2, len(job.data.held_out), 2)))
    for step in range(16):
        job.step(step, quiet)
    scores = job.scores(job.data.held_out, quiet)
    assert not np.allclose(scores[0], scores[1])
    assert (scores[:, :, 0] > scores[:, :, 1]).mean() > 0.8


def test_sft_divides_by_tokens_however_it_is_packed(make):
    wide, narrow = make("sft"), make("sft", "demonstrations.row_length=40")
    texts = wide.data.train[:6]
    with torch.no_grad():
        one, counts = wide._loss(texts, learn=False)
        two, _ = narrow._loss(texts, learn=False)
    assert counts.tolist() == [len(text.completion_ids) for text in texts]
    assert one == pytest.approx(two, rel=1e-5)


def test_ppo_starts_with_one_sample_a_prompt(make):
    job = make(
        "ppo", "algorithm.num_generations=1", "algorithm.kl.target_nats_per_sequence=0.5", "training.prompts_per_step=9"
    )
    job.preflight(Silent(), job.fingerprint())
    rewards = job.session.rewarder.spread.sd
    assert job.session.starting_beta == pytest.approx(rewards, rel=1e-6)  # sd / sqrt(2 * 0.5)


def test_a_loaded_model_learns_from_comparisons_and_is_no_reward_model(tiny_model_dir, tmp_path):
    tiny_jobs.write_data(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "comparisons.jsonl").read_text().splitlines()]
    given = Given(
        comparisons=rows[:40],
        held_out=rows[40:50],
        model=AutoModelForCausalLM.from_pretrained(tiny_model_dir),
        tokenizer=AutoTokenizer.from_pretrained(tiny_model_dir),
    )
    config = load(None, tiny_jobs.settings_of("dpo", "(in memory)", tmp_path)).config
    job = prepare(config, given).build(Accelerator())
    assert (len(job.data.train), len(job.data.held_out)) == (40, 10)
    config = load(None, tiny_jobs.settings_of("reward_model", "(in memory)", tmp_path)).config
    with pytest.raises(ConfigError, match="model is a loaded LlamaForCausalLM, and a reward model"):
        prepare(config, given)


def test_a_held_out_prompt_leaves_room_for_the_samples_that_measure_it(make, tmp_path):
    rows = [{"prompt": f"{i}" * 495, "chosen": " yes", "rejected": " no"} for i in range(3)]
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    settings = [f"comparisons.path={tmp_path / 'long.jsonl'}", "comparisons.held_out=1"]
    make("dpo", *settings, "rollout.max_completion_length=8")
    with pytest.raises(DataError, match="with max_completion_length = 64 it needs"):
        make("dpo", *settings, "rollout.max_completion_length=64")


def test_online_dpo_is_the_mean_over_pairs_that_compare(make):
    job = make("online_dpo", "training.prompts_per_step=4")
    experience = made_experience(job, samples=2)
    rewards = np.array([1.0, 0.0, 0.5, 0.5, 0.0, 1.0, np.nan, 1.0])  # two compared, one tied, one half unscored
    known = Rewards(rewards, rewards.copy(), None, ~np.isnan(rewards), 0)
    experience = replace(experience, rewards=known)
    updater = job.session.updater
    scored = updater.score(experience, 0)
    credit = assign(job.session, experience, scored, 0.0)
    updated = updater(experience, scored, credit.advantages, beta=0.0, step=0)
    assert float(updated.totals.policy_loss) == pytest.approx(np.log(2), rel=1e-5)


def test_a_reward_model_is_pinned_to_the_checkpoint_it_is_at(tiny_model_dir, tmp_path):
    tiny_jobs.write_data(tmp_path)
    path = train(load(None, tiny_jobs.settings_of("reward_model", tiny_model_dir, tmp_path)).config, observer=Silent())
    more = (f"reward.model={path}", "reward.functions=[]", f"algorithm.critic.start={path}")
    config = load(None, tiny_jobs.settings_of("ppo", tiny_model_dir, tmp_path, *more)).config
    found = pinned(config)
    assert found.reward.model == found.algorithm.critic.start == str(path / "checkpoints" / "step_6")
    (path / "checkpoints" / "step_9").mkdir()
    assert pinned(found) == found


def test_held_out_opponents_do_not_share_the_policys_random_numbers(make):
    told = []

    def versus(prompts, completions, reference_completions):
        told.extend(zip(completions, reference_completions, strict=True))
        return [0.0] * len(completions)

    job = make("mixed")
    rewarder = Rewarder(job.config.reward, [resolve(versus)], None)
    evaluate(replace(job.session.bench, rewarder=rewarder), 0, "before")
    assert len(told) == 3
    assert any(ours != theirs for ours, theirs in told)
