"""Gradients of one update, and what micro-batches, minibatches, epochs and beta do to them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_run import experience, perturb, session, settings

from kleash.errors import RunStopped
from kleash.training.scoring import TokenRecord, check_finite
from kleash.training.step import on_policy_step
from kleash.training.update import Updater

PROMPTS = [[256, 97, 98, 99], [256, 100], [256, 101, 102]]
REPLIES = [[103, 104, 105], [106], [107, 108], [109, 110, 111, 112], [113], [114, 115]]
ADVANTAGES = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0])


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        return session(settings(tiny_model_dir, tmp_path, "algorithm.num_generations=2", *overrides))

    return made


def told():
    return experience(PROMPTS, REPLIES, [0.0] * 6)


def updated_by(updater, samples, advantages, *, beta, step):
    """What the updates of a step come to."""
    return updater(samples, updater.score(samples, step), advantages, beta=beta, step=step)


def weights(running):
    return torch.cat([p.detach().flatten().float() for _, p in running.policy.trained()])


def spied(running, **plan):
    """The session's updater with a list of what its policy loss was called with, minibatch by minibatch."""
    seen = []
    inner = running.objective

    def policy_loss(rows, advantages, mean_length):
        loss = inner.policy_loss(rows, advantages, mean_length)
        seen.append((rows, advantages, loss.ratio))
        return loss

    updater = Updater(
        running.policy,
        running.reference,
        replace(inner, policy_loss=policy_loss),
        running.optimizer,
        running.accelerator,
        replace(running.updater.plan, **plan),
    )
    return updater, seen


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["algorithm.type=grpo", "algorithm.loss_normalization=sequence", "algorithm.scale_rewards=group"],
        ["model.lora=false", "training.learning_rate=1e-4"],
        ["training.num_minibatches=2", "training.num_epochs=2"],
        ["algorithm.kl.estimator=k1", "algorithm.kl.placement=reward"],
    ],
    ids=["rloo", "grpo", "whole", "several updates", "k1 in the reward"],
)
def test_cutting_an_update_into_micro_batches_changes_nothing(make, overrides):
    results = []
    for pieces in (1, 2):
        running = make(f"training.gradient_accumulation_steps={pieces}", "algorithm.kl.beta=0.5", *overrides)
        metrics = [on_policy_step(running, step).numbers.metrics for step in range(3)]
        results.append((weights(running), metrics[-1]))
    (one, first), (many, second) = results
    torch.testing.assert_close(one, many, rtol=0, atol=1e-6)
    for key in ("kl/exact_per_sequence", "loss/policy", "loss/kl", "optim/grad_norm", "ratio/max"):
        assert first[key] == pytest.approx(second[key], rel=1e-4, abs=1e-6), key


def by_hand(running, value_of_row):
    """Gradient norm of the mean over replies of `value_of_row(logprobs, kl)`, by whole logits and plain autograd."""
    total = 0.0
    for row, reply in enumerate(REPLIES):
        prompt = PROMPTS[row // 2]
        ids = torch.tensor([prompt + reply])
        log_p = running.policy.causal_lm(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        with torch.no_grad(), running.policy.switched(None):
            log_q = running.policy.causal_lm(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        chosen = log_p.gather(1, torch.tensor(reply)[:, None])[:, 0]
        total = total + value_of_row(row, chosen, (log_p.exp() * (log_p - log_q)).sum(-1)) / len(REPLIES)
    parameters = [p for _, p in running.policy.trained()]
    return float(torch.stack([g.norm() for g in torch.autograd.grad(total, parameters)]).norm())


def test_the_policy_gradient_is_reinforce_per_sequence(make):
    running = make()
    perturb(running.policy)
    expected = by_hand(running, lambda row, chosen, kl: -ADVANTAGES[row] * chosen.sum())
    updated = updated_by(running.updater, told(), ADVANTAGES, beta=0.0, step=0)
    assert float(updated.totals.grad_norm) == pytest.approx(expected, rel=1e-4)


def test_the_penalty_is_beta_times_the_mean_kl_of_a_reply(make):
    running = make("algorithm.kl.scope=token")
    perturb(running.policy)
    expected = by_hand(running, lambda row, chosen, kl: 0.7 * kl.sum())
    updated = updated_by(running.updater, told(), torch.zeros(6), beta=0.7, step=0)
    assert float(updated.totals.grad_norm) == pytest.approx(expected, rel=1e-4)
    assert float(updated.totals.kl_loss) == pytest.approx(0.7 * updated.record.reverse_kl.sum() / 6, rel=1e-5)


def test_the_default_penalty_adds_the_drift_that_a_token_causes_later(make):
    """Gradient of KL_s, plus each token's score times the KL after it less the other reply's at that position."""

    def surrogate(row, chosen, kl):
        other = later[row ^ 1]
        baseline = torch.tensor([other[t] if t < len(other) else 0.0 for t in range(len(kl))])
        return kl.sum() + (chosen * (torch.tensor(later[row]) - baseline)).sum()

    running = make()
    perturb(running.policy)
    measured: dict[int, list[float]] = {}
    by_hand(running, lambda row, chosen, kl: measured.update({row: kl.detach().tolist()}) or kl.sum())
    later = [[sum(measured[row][t + 1 :]) for t in range(len(measured[row]))] for row in range(6)]
    expected = by_hand(running, surrogate)
    updated = updated_by(running.updater, told(), torch.zeros(6), beta=1.0, step=0)
    assert float(updated.totals.grad_norm) == pytest.approx(expected, rel=1e-4)


def test_at_beta_zero_kl_is_measured_and_costs_nothing(make):
    running = make()
    perturb(running.policy)
    before = weights(running)
    updated = updated_by(running.updater, told(), torch.zeros(6), beta=0.0, step=0)
    assert updated.record.reverse_kl.min() > 0
    assert float(updated.totals.kl_loss) == float(updated.totals.grad_norm) == 0.0
    assert torch.equal(weights(running), before)


def test_the_gradient_is_linear_in_beta(make):
    norms = []
    for beta in (0.5, 1.5):
        running = make()
        perturb(running.policy)
        norms.append(float(updated_by(running.updater, told(), torch.zeros(6), beta=beta, step=0).totals.grad_norm))
    assert norms[1] == pytest.approx(3 * norms[0], rel=1e-4)
    assert norms[0] > 0


def test_of_several_updates_the_first_is_on_policy_and_the_later_ones_are_weighed(make):
    running = make("training.learning_rate=0.01")
    perturb(running.policy)
    updater, seen = spied(running, num_epochs=2, num_minibatches=1, groups_per_batch=3)
    updated = updated_by(updater, told(), ADVANTAGES, beta=0.1, step=0)
    assert updated.num_updates == len(seen) == 2
    assert seen[0][2].tolist() == pytest.approx([1.0] * 6, abs=1e-5)
    rows, _, ratio = seen[1]
    gap = torch.where(rows.response_mask, rows.measured.policy_logprobs - rows.behavior_logprobs, 0.0).sum(dim=1)
    torch.testing.assert_close(ratio, gap.detach().exp())
    assert (ratio - 1).abs().min() > 1e-3
    order = [4, 5, 2, 3, 0, 1]  # micro-batches go from short groups to long ones: 5, 6 and 7 tokens
    lengths = [len(reply) for reply in REPLIES]
    starts = np.cumsum([0, *lengths])
    for place, row in enumerate(order):
        stored = updated.record.policy_logprobs[starts[row] : starts[row + 1]]
        assert rows.behavior_logprobs[place, : lengths[row]].tolist() == pytest.approx(stored.tolist(), abs=1e-6)


def test_every_epoch_sees_every_group_once_in_an_order_of_its_own(make):
    running = make()
    updater, seen = spied(running, num_epochs=4, num_minibatches=3, groups_per_batch=1)
    tagged = torch.arange(6.0)
    updated_by(updater, told(), tagged, beta=0.0, step=0)
    groups = [int(advantages[0]) // 2 for _, advantages, _ in seen]
    epochs = [tuple(groups[i : i + 3]) for i in range(0, 12, 3)]
    assert all(sorted(epoch) == [0, 1, 2] for epoch in epochs)
    assert len(set(epochs)) > 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("overrides", [[], ["model.lora=false", "training.learning_rate=1e-4"]], ids=["lora", "whole"])
@pytest.mark.parametrize("updates", [1, 2])
def test_kl_of_the_first_step_is_exactly_zero_and_then_is_not(make, dtype, overrides, updates):
    running = make(f"model.dtype={dtype}", f"training.num_epochs={updates}", *overrides)
    first = on_policy_step(running, 0)
    assert first.numbers.metrics["kl/exact_per_sequence"] == 0.0
    assert not first.record.reverse_kl.any()
    for step in range(1, 4):
        on_policy_step(running, step)
    assert on_policy_step(running, 4).numbers.metrics["kl/exact_per_sequence"] > 0.0


@pytest.mark.parametrize("updates", [1, 2])
def test_a_number_that_is_none_stops_before_the_update_and_is_placed(make, updates):
    """The embedding of byte 107 is NaN, which attention spreads over its whole reply and over no other."""
    running = make(f"training.num_epochs={updates}")
    before = weights(running)
    running.policy.causal_lm.get_input_embeddings().weight = torch.nn.Parameter(
        running.policy.head.clone(), requires_grad=False
    )
    with torch.no_grad():
        running.policy.causal_lm.get_input_embeddings().weight[107] = float("nan")
    with pytest.raises(RunStopped) as caught:
        updated_by(running.updater, told(), ADVANTAGES, beta=0.1, step=5)
    text = str(caught.value)
    assert text.startswith("step 5: policy_logprobs is nan at sequence 2, token 0 (id 107), and 2 values in all")
    assert "The weights are left as they were before this update" in text
    assert caught.value.exit_code == 3
    assert torch.equal(weights(running), before)
    assert not running.updater.midway


def test_a_bad_number_of_a_later_minibatch_is_placed_too(make):
    """The embedding of byte 107 becomes NaN after the first of six updates."""
    running = make("training.num_minibatches=3", "training.num_epochs=2")
    embedding = running.policy.causal_lm.get_input_embeddings()
    embedding.weight = torch.nn.Parameter(running.policy.head.clone(), requires_grad=False)
    inner, made = running.optimizer.step, []

    def step(number):
        made.append(number)
        embedding.weight[107] = float("nan")
        return inner(number)

    running.optimizer.step = step
    with pytest.raises(RunStopped) as caught:
        updated_by(running.updater, told(), ADVANTAGES, beta=0.1, step=5)
    text = str(caught.value)
    assert text.startswith("step 5: policy_logprobs is nan at sequence 2, token 0 (id 107), and 2 values in all")
    assert 1 <= len(made) < 6
    assert running.updater.midway


def with_and_without(make, beta, *overrides):
    """What an update makes of groups of 3 with one unscored reply, and of the same groups of 2 without it."""
    prompts, nan = PROMPTS[:2], float("nan")
    whole = experience(prompts, REPLIES, [1.0, nan, 3.0, 7.0, 2.0, nan])
    less = experience(prompts, [REPLIES[row] for row in (0, 2, 3, 4)], [1.0, 3.0, 7.0, 2.0])
    results = []
    for told_of in (whole, less):
        running = make(f"algorithm.num_generations={told_of.group_size}", *overrides)
        perturb(running.policy)
        groups = (len(prompts), told_of.group_size)
        rewards = torch.tensor(told_of.rewards.shaped, dtype=torch.float32).view(groups)
        scored = torch.tensor(told_of.rewards.scored).view(groups)
        advantages = running.objective.advantages(rewards, scored).flatten()
        gradients = []

        def step(number, running=running, gradients=gradients):
            gradients.append(torch.cat([g.flatten().clone() for g in running.optimizer.gradients()]))
            return torch.zeros(())

        running.optimizer.step = step
        updated = updated_by(running.updater, told_of, advantages, beta=beta, step=0)
        results.append((gradients[0], updated.totals))
    return results


@pytest.mark.parametrize(("beta", "overrides"), [(0.0, []), (0.7, ["algorithm.kl.scope=token"])])
def test_an_unscored_reply_leaves_the_gradient_as_if_it_were_not_there(make, beta, overrides):
    (gradient, totals), (expected, without) = with_and_without(make, beta, *overrides)
    assert expected.norm() > 0.1
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    assert float(totals.policy_loss) == pytest.approx(float(without.policy_loss), rel=1e-5)
    assert float(totals.kl_loss) == pytest.approx(float(without.kl_loss), rel=1e-5)


def test_an_unscored_reply_pays_no_penalty(make):
    """By default it still serves as a baseline, which has no value: the scored four share what they drifted."""
    running = make("algorithm.num_generations=3")
    perturb(running.policy)
    given = experience(PROMPTS[:2], REPLIES, [1.0, float("nan"), 3.0, 7.0, 2.0, float("nan")])
    updated = updated_by(running.updater, given, torch.zeros(6), beta=0.7, step=0)
    kl = np.split(updated.record.reverse_kl, np.cumsum([len(reply) for reply in REPLIES])[:-1])
    expected = 0.7 * sum(kl[row].sum() for row in (0, 2, 3, 4)) / 4
    assert float(updated.totals.kl_loss) == pytest.approx(expected, rel=1e-5)
    assert min(kl[row].sum() for row in (1, 5)) > 0


def test_an_update_without_any_score_changes_nothing(make):
    running = make()
    perturb(running.policy)
    given = experience(PROMPTS, REPLIES, [float("nan")] * 6)
    updated = updated_by(running.updater, given, torch.zeros(6), beta=0.7, step=0)
    assert float(updated.totals.grad_norm) == float(updated.totals.kl_loss) == 0.0


@pytest.mark.parametrize(("index", "place"), [(0, "sequence 0, token 0 (id 103)"), (8, "sequence 3, token 2 (id 111)")])
@pytest.mark.parametrize("name", ["reverse_kl", "entropy"])
def test_the_place_of_a_bad_number_is_counted_from_the_start(index, place, name):
    fields = {field: np.zeros(13) for field in TokenRecord.__dataclass_fields__}
    fields[name][index] = fields[name][11] = np.inf
    with pytest.raises(RunStopped) as caught:
        check_finite(told(), TokenRecord(**fields), 2)
    assert str(caught.value).startswith(f"step 2: {name} is inf at {place}, and 2 values in all")


def test_a_weight_that_is_nan_stops_the_step(make):
    running = make()
    with torch.no_grad():
        running.policy.trained()[1][1].view(-1)[0] = float("nan")
    with pytest.raises(RunStopped, match=r"step 3: policy_logprobs is nan at sequence \d+, token \d+ \(id \d+\)"):
        on_policy_step(running, 3)
