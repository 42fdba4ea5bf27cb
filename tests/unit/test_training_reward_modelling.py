"""The reward-model job: its start, one step of each member against plain autograd, ties, margins and the report."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tiny_run import Remembering
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer

from kleash.config.loader import load
from kleash.errors import RunDirError, RunStopped
from kleash.models.batch import collate
from kleash.rewards.reward_model import RewardModel
from kleash.training import reward_modelling, state
from kleash.training.given import Given
from kleash.training.job import quiet
from kleash.training.reward_modelling import prepare

ROWS = [
    {"prompt": "ab", "chosen": " yes", "rejected": " no, no"},
    {"prompt": "cde", "chosen": " a longer answer", "rejected": " b"},
    {"prompt": "f", "chosen": " one", "rejected": " two", "strength": 0},
    {"prompt": "gh", "chosen": " x", "rejected": " yy", "strength": 3},
]
STRENGTHS = [0, 0, 0, 3]
TIED = [False, False, True, False]
STOP = 257


@pytest.fixture
def make(tiny_model_dir):
    """A job on `ROWS`, all of them in each step, none held out unless a setting says so."""

    def made(*overrides, rows=ROWS):
        base = [
            f"model={tiny_model_dir}",
            "model.dtype=float32",
            "comparisons=given",
            "algorithm.type=reward_model",
            "training.prompts_per_step=4",
            "training.max_grad_norm=1e9",
        ]
        if not any("held_out" in override for override in overrides):
            base.append("comparisons.held_out=0")
        config = load(None, [*base, *overrides]).config
        return prepare(config, Given(comparisons=rows)).build(Accelerator())

    return made


def perturbed(job):
    """The same job with trained weights that are random, so that no two members agree."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in job.model.trained():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return job


def scores_by_hand(job, folder, member):
    """Scores `[n, 2]` of chosen and rejected, each text alone and without padding; call it inside `active`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for row in ROWS:
        prompt = tokenizer(row["prompt"]).input_ids
        for side in ("chosen", "rejected"):
            answer = [*tokenizer(row[side], add_special_tokens=False).input_ids, STOP]
            states = job.model.model.base_model(torch.tensor([prompt + answer])).last_hidden_state
            found.append(job.model.members[member].head(states[0, -1])[0])
    return torch.stack(found).view(-1, 2)


def loss_by_hand(scores, *, margin=0.0, smoothing=0.0, center=0.0, leave_out=False):
    """Mean of (1 - e) L(d - m s) + e L(-d - m s), a tie being half of L(d) and of L(-d), with the scores' centring."""
    losses = []
    for (chosen, rejected), strength, tied in zip(scores, STRENGTHS, TIED, strict=True):
        if tied and leave_out:
            continue
        lead, asked = chosen - rejected, margin * strength
        wrong = 0.5 if tied else smoothing
        loss = -(1 - wrong) * logsigmoid(lead - asked) - wrong * logsigmoid(-lead - asked)
        losses.append(loss + center * (chosen + rejected) ** 2)
    return torch.stack(losses).mean()


SETTINGS = {
    "plain": ([], {}),
    "margin": (["algorithm.margin=0.4"], {"margin": 0.4}),
    "smoothing": (["algorithm.label_smoothing=0.1"], {"smoothing": 0.1}),
    "centred": (["algorithm.center=0.05"], {"center": 0.05}),
    "without ties": (["algorithm.ties=leave_out"], {"leave_out": True}),
}


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_is_the_gradient_of_the_mean_loss_of_each_member(make, tiny_model_dir, name, pieces):
    overrides, how = SETTINGS[name]
    job = perturbed(make("algorithm.members=2", f"training.gradient_accumulation_steps={pieces}", *overrides))
    trained, gradients, losses = job.model.trained(), {}, []
    for member in range(2):
        marker = f".{job.model.members[member].adapter}."
        own = [(key, parameter) for key, parameter in trained if marker in key]
        with job.model.active(member):
            scores = scores_by_hand(job, tiny_model_dir, member)
            loss = loss_by_hand(scores, **how)
            found = torch.autograd.grad(loss, [parameter for _, parameter in own])
        gradients |= {key: gradient for (key, _), gradient in zip(own, found, strict=True)}
        losses.append(loss_by_hand(scores, **{k: v for k, v in how.items() if k != "center"}).item())
    assert gradients.keys() == {key for key, _ in trained}
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    metrics = job.step(0, quiet).numbers.metrics
    assert job.midway
    assert metrics["loss/preference"] == pytest.approx(losses[0], rel=1e-4)
    norms = [
        torch.stack([gradient.norm() for key, gradient in gradients.items() if f".{member.adapter}." in key]).norm()
        for member in job.model.members
    ]
    assert metrics["optim/grad_norm"] == pytest.approx(sum(norms).item() / 2, rel=1e-4)
    for key, parameter in trained:
        torch.testing.assert_close(parameter.grad, gradients[key], atol=1e-5, rtol=1e-3)


def test_at_the_start_every_score_is_0(make):
    job = make("training.learning_rate=0.01")
    first = job.step(0, quiet).numbers.metrics
    assert first["loss/preference"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["preference/accuracy"] == 0.5
    for key in ("margin", "chosen_score", "rejected_score"):
        assert first[f"preference/{key}"] == 0.0
    for step in range(1, 12):
        last = job.step(step, quiet).numbers.metrics
    assert last["preference/accuracy"] == 1.0
    assert last["preference/margin"] > 0.1


def test_a_tie_counts_neither_for_nor_against(make, tiny_model_dir):
    job = perturbed(make())
    with torch.no_grad(), job.model.active(0):
        scores = scores_by_hand(job, tiny_model_dir, 0)
    margins = (scores[:, 0] - scores[:, 1])[[0, 1, 3]]
    metrics = job.step(0, quiet).numbers.metrics
    assert metrics["preference/accuracy"] == pytest.approx((margins > 0).float().mean().item())
    assert metrics["preference/margin"] == pytest.approx(margins.mean().item(), rel=1e-4)


def test_members_learn_in_orders_of_their_own(make, monkeypatch):
    rows = [{"prompt": f"p{i}", "chosen": " a", "rejected": " b"} for i in range(16)]
    job = make("algorithm.members=2", rows=rows)
    learned = {0: [], 1: []}

    def learn(rows, member):
        learned[member].append([row.prompt.text for row in rows])
        return np.zeros((len(rows), 2))

    monkeypatch.setattr(job, "_learn", learn)
    for step in range(4):
        job.step(step, quiet)
    for batches in learned.values():
        assert sorted(text for batch in batches for text in batch) == sorted(row["prompt"] for row in rows)
    assert learned[0] != learned[1]


HELD_OUT = ["comparisons.held_out=4", "training.prompts_per_step=4"]


def many():
    return [
        {"prompt": f"prompt {i}", "chosen": " " + "a" * (1 + i % 3), "rejected": " " + "b" * (1 + i % 4)}
        | ({"strength": 0} if i % 4 == 0 else {})
        for i in range(12)
    ]


def test_an_evaluation_is_of_the_members_mean(make):
    job = perturbed(make("algorithm.members=2", *HELD_OUT, rows=many()))
    metrics = job.evaluate(0, "before", quiet).numbers.metrics
    each = np.zeros((2, 4, 2))
    for member in range(2):
        for i, row in enumerate(job.data.held_out):
            for side, answer in enumerate((row.chosen_ids, row.rejected_ids)):
                one = collate([row.prompt.token_ids], [answer], pad=258, device=torch.device("cpu"))
                each[member, i, side] = float(job.model.scores(one, member).detach())
    mean = each.mean(axis=0)
    decided = np.array([row.comparison.strength != 0 for row in job.data.held_out])
    margins = (mean[:, 0] - mean[:, 1])[decided]
    assert metrics["eval/preference/margin"] == pytest.approx(margins.mean(), rel=1e-4)
    assert metrics["eval/preference/accuracy"] == (margins > 0).mean()
    assert metrics["eval/preference/chosen_score"] == pytest.approx(mean[:, 0].mean(), rel=1e-4, abs=1e-5)
    prefers = each[:, :, 0] > each[:, :, 1]
    assert metrics["eval/preference/agreement"] == (prefers[0] == prefers[1]).mean()


def test_the_finished_run_keeps_a_report_of_its_health(make):
    job = perturbed(make("algorithm.members=2", *HELD_OUT, rows=many()))
    job.evaluate(3, "after", quiet)
    report = job.conclude()["reward_health"]
    ties = sum(row.comparison.strength == 0 for row in job.data.held_out)
    assert (report["comparisons"], report["ties"]) == (4, ties)
    assert len(report["accuracy_by_member"]) == 2
    assert len(report["scores"]) == 8
    assert set(report["odd_answers"]) == {"chosen", "rejected", "empty", "repeated", "truncated"}
    assert report["odd_answers"]["chosen"]["mean"] == pytest.approx(np.mean(report["scores"][::2]), abs=1e-4)
    assert report["tail_index"] is None
    assert make().conclude() == {}


def test_a_step_of_ties_alone_that_are_left_out_changes_nothing(make):
    rows = [{"prompt": f"p{i}", "chosen": " a", "rejected": " b", "strength": 0} for i in range(4)]
    job = perturbed(make("algorithm.ties=leave_out", rows=rows))
    before = [parameter.clone() for _, parameter in job.model.trained()]
    metrics = job.step(0, quiet).numbers.metrics
    assert metrics["optim/grad_norm"] == 0.0
    assert "loss/preference" not in metrics
    for (_, parameter), value in zip(job.model.trained(), before, strict=True):
        assert torch.equal(parameter, value)


def test_preflight_sees_that_padding_moves_no_score(make, monkeypatch):
    observer, job = Remembering(), perturbed(make())
    job.preflight(observer, job.fingerprint())
    (check,) = observer.checks
    assert (check.name, check.passed) == ("padding", True)
    assert any(fact.startswith("data       4 comparisons to learn from") for fact in observer.facts)
    monkeypatch.setattr(reward_modelling, "PADDING_LIMIT", {torch.float32: -1.0})
    with pytest.raises(RunStopped) as caught:
        job.preflight(Remembering(), job.fingerprint())
    text = str(caught.value)
    assert text.startswith("preflight failed: padding moves a score by ")
    assert text.endswith(' at most: this model does not mask padding. Mend that, or set skip_checks = ["padding"]')


def test_scores_that_are_none_stop_before_the_update_and_name_the_row(make):
    job = make()
    with torch.no_grad():
        job.model.members[0].head.weight[0, 0] = float("nan")
    before = [parameter.clone() for _, parameter in job.model.trained()]
    with pytest.raises(RunStopped, match=r"step 5: the scores of the comparison of .* are \[nan nan\]"):
        job.step(5, quiet)
    assert not job.midway
    for (_, parameter), value in zip(job.model.trained(), before, strict=True):
        torch.testing.assert_close(parameter, value, rtol=0, atol=0, equal_nan=True)


def test_a_checkpoint_goes_on_as_the_job_does(make, tmp_path):
    job = make("algorithm.members=2")
    job.step(0, quiet)
    job.save(tmp_path / "step_1", 1, job.fingerprint())
    expected = job.step(1, quiet).numbers.metrics
    assert (tmp_path / "step_1" / "member_1" / "adapter_model.safetensors").is_file()
    resumed = make("algorithm.members=2")
    assert resumed.restore(state.read(tmp_path / "step_1"), resumed.fingerprint()) == 1
    again = resumed.step(1, quiet).numbers.metrics
    for key in ("loss/preference", "optim/grad_norm", "preference/margin"):
        assert again[key] == expected[key]
    with pytest.raises(RunDirError, match="the base has changed: its weights hash to other"):
        resumed.restore(state.read(tmp_path / "step_1"), "other")


def test_a_member_is_clipped_for_its_own_gradient_alone(make):
    """Two members take the steps that each would take alone, however long the other's gradient is."""
    tight = ("training.max_grad_norm=0.01", "training.learning_rate=1e-2")
    alone, two = make("algorithm.members=1", *tight), make("algorithm.members=2", *tight)
    for step in range(4):
        alone.step(step, quiet)
        two.step(step, quiet)
    found = dict(two.model.trained_by(0))
    for key, parameter in alone.model.trained_by(0):
        torch.testing.assert_close(found[key], parameter, rtol=0, atol=1e-6)


def test_members_are_compared_from_their_own_origins(make, tmp_path):
    job = make("algorithm.members=2")
    with torch.no_grad():
        for member, size in zip(job.model.members, (0.05, 0.5), strict=True):
            member.head.weight.fill_(size)
    job.save(tmp_path / "saved", 0, job.fingerprint())
    reward = RewardModel.from_folder(tmp_path / "saved")
    rows = job.data.held_out or job.data.train
    raw = job.scores(rows, quiet).mean(axis=(1, 2))
    assert reward.saved.origins == pytest.approx(tuple(raw), rel=1e-5)
    assert abs(raw[0] - raw[1]) > 1
    prompts = [row.comparison.prompt.text for row in rows for _ in range(2)]
    texts = [text for row in rows for text in (row.comparison.chosen, row.comparison.rejected)]
    assert reward.member_scores(prompts, texts).mean(axis=1) == pytest.approx(
        [0.0, 0.0], abs=0.05
    )  # read in bfloat16 where there is any
