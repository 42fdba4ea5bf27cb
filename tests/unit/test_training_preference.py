"""The DPO job: its start, one step against plain autograd, ties, and what it keeps of the reference."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tiny_run import Remembering, perturb
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer

from kleash.config.loader import load
from kleash.errors import RunDirError, RunStopped
from kleash.training import state
from kleash.training.given import Given
from kleash.training.job import quiet
from kleash.training.preference import PreferenceJob, prepare

ROWS = [
    {"prompt": "ab", "chosen": " yes", "rejected": " no, no"},
    {"prompt": "cde", "chosen": " a longer answer", "rejected": " b"},
    {"prompt": "f", "chosen": " one", "rejected": " two", "strength": 0},
    {"prompt": "gh", "chosen": " x", "rejected": " yy", "strength": 3},
]
STOP = 257


@pytest.fixture
def make(tiny_model_dir, tmp_path, monkeypatch):
    """A job on `ROWS`, all of them in each step, none held out unless a setting says so."""
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))

    def made(*overrides, rows=ROWS):
        base = [
            f"model={tiny_model_dir}",
            "model.dtype=float32",
            "comparisons=given",
            "comparisons.held_out=0",
            "algorithm.type=dpo",
            "training.prompts_per_step=4",
            "training.max_grad_norm=1e9",
        ]
        config = load(None, [*base, *overrides]).config
        return prepare(config, Given(comparisons=rows)).build(Accelerator())

    return made


def ready(job):
    job.read_with_reference(job.fingerprint())
    return job


def logprobs_by_hand(job, folder, rows=ROWS):
    """Log-probability of both sides `[n, 2]` in nats, each text alone, by whole logits."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for row in rows:
        prompt = tokenizer(row["prompt"]).input_ids
        for side in ("chosen", "rejected"):
            answer = [*tokenizer(row[side], add_special_tokens=False).input_ids, STOP]
            logits = job.policy.causal_lm(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            found.append(logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum())
    return torch.stack(found).view(-1, 2)


def by_hand(job, folder, loss_of):
    """Mean loss, margins and drifts of `ROWS`; a tie is half a win each way."""
    policy = logprobs_by_hand(job, folder)
    with torch.no_grad(), job.policy.switched(None):
        reference = logprobs_by_hand(job, folder)
    drift = policy - reference
    margins = drift[:, 0] - drift[:, 1]
    losses = [
        (loss_of(h) + loss_of(-h)) / 2 if row.get("strength") == 0 else loss_of(h)
        for row, h in zip(ROWS, margins, strict=True)
    ]
    return torch.stack(losses).mean(), margins.detach(), drift.detach()


LOSSES = {
    "sigmoid": ([], lambda h: -logsigmoid(0.3 * h)),
    "ipo": ([], lambda h: (h - 1 / (2 * 0.3)) ** 2),
    "hinge": ([], lambda h: torch.relu(1 - 0.3 * h)),
    "conservative": (
        ["algorithm.label_smoothing=0.1"],
        lambda h: -0.9 * logsigmoid(0.3 * h) - 0.1 * logsigmoid(-0.3 * h),
    ),
    "robust": (
        ["algorithm.label_smoothing=0.1"],
        lambda h: (-0.9 * logsigmoid(0.3 * h) + 0.1 * logsigmoid(-0.3 * h)) / 0.8,
    ),
}


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_is_the_gradient_of_the_mean_loss(make, tiny_model_dir, loss, pieces):
    more, loss_of = LOSSES[loss]
    job = ready(
        make(f"algorithm.loss={loss}", "algorithm.beta=0.3", f"training.gradient_accumulation_steps={pieces}", *more)
    )
    perturb(job.policy)
    expected, margins, drift = by_hand(job, tiny_model_dir, loss_of)
    parameters = [p for _, p in job.policy.trained()]
    gradient = torch.autograd.grad(expected, parameters)
    metrics = job.step(0, quiet).numbers.metrics
    assert job.midway
    assert margins.abs().min() > 0.01
    assert metrics["loss/preference"] == pytest.approx(expected.item(), rel=1e-4)
    decided = margins[[i for i, row in enumerate(ROWS) if row.get("strength") != 0]]
    assert len(decided) == len(ROWS) - 1
    assert metrics["preference/margin"] == pytest.approx(0.3 * decided.mean().item(), rel=1e-3)
    assert metrics["preference/accuracy"] == (decided > 0).double().mean().item()
    assert metrics["preference/chosen_drift"] == pytest.approx(drift[:, 0].mean().item(), rel=1e-3)
    assert metrics["preference/rejected_drift"] == pytest.approx(drift[:, 1].mean().item(), rel=1e-3)
    norm = torch.stack([one.norm() for one in gradient]).norm()
    assert metrics["optim/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for parameter, one in zip(parameters, gradient, strict=True):
        torch.testing.assert_close(parameter.grad, one, atol=1e-5, rtol=1e-3)


def test_at_the_start_every_margin_is_0(make):
    job = ready(make("training.learning_rate=0.01"))
    first = job.step(0, quiet).numbers.metrics
    assert first["loss/preference"] == pytest.approx(math.log(2), abs=1e-5)
    for key in ("margin", "chosen_drift", "rejected_drift"):
        assert first[f"preference/{key}"] == pytest.approx(0.0, abs=1e-4)
    for step in range(1, 8):
        last = job.step(step, quiet).numbers.metrics
    assert last["loss/preference"] < 0.6
    assert last["preference/margin"] > 0.1


def test_which_side_of_a_tie_is_called_chosen_changes_nothing(make):
    swapped = [
        {**row, "chosen": row["rejected"], "rejected": row["chosen"]} if row.get("strength") == 0 else row
        for row in ROWS
    ]
    metrics = []
    for rows in (ROWS, swapped):
        job = ready(make(rows=rows))
        perturb(job.policy)
        metrics.append(job.step(0, quiet).numbers.metrics)
    for key in ("loss/preference", "optim/grad_norm"):
        assert metrics[0][key] == pytest.approx(metrics[1][key], rel=1e-5)


def test_the_reference_reads_each_comparison_once_and_is_remembered(make, tiny_model_dir, monkeypatch):
    read = []
    inner = PreferenceJob._read

    def counting(self, rows, progress):
        read.append(len(rows))
        return inner(self, rows, progress)

    monkeypatch.setattr(PreferenceJob, "_read", counting)
    job = ready(make())
    with torch.no_grad():
        expected = logprobs_by_hand(job, tiny_model_dir).numpy()
    np.testing.assert_allclose(job._reference_logprobs["train"], expected, rtol=1e-5)
    assert sum(read) == 4
    again = ready(make())
    assert sum(read) == 4
    np.testing.assert_array_equal(again._reference_logprobs["train"], job._reference_logprobs["train"])
    ready(make(rows=ROWS[:3]))
    assert sum(read) == 7
    make().read_with_reference("another reference")
    assert sum(read) == 11


HELD_OUT = ["comparisons.held_out=2", "rollout.max_completion_length=6", "training.prompts_per_step=2"]


def test_an_evaluation_compares_held_out_rows_and_samples_on_their_prompts(make):
    job = ready(make(*HELD_OUT))
    made = job.evaluate(0, "before", quiet)
    assert made.numbers.metrics["eval/loss/preference"] == pytest.approx(math.log(2), abs=1e-5)
    assert made.numbers.metrics["eval/kl/exact_per_sequence"] == 0.0
    held_out = {row.prompt.text for row in job.data.held_out}
    assert {sample.prompt for sample in made.samples} == held_out
    assert held_out.isdisjoint(row.prompt.text for row in job.data.train)
    perturb(job.policy)
    moved = job.evaluate(1, "eval", quiet).numbers.metrics
    assert moved["eval/kl/exact_per_sequence"] > 0.0
    assert moved["eval/loss/preference"] != pytest.approx(math.log(2), abs=1e-3)
    assert make().evaluate(0, "before", quiet).numbers.metrics == {}


def test_preflight_sees_that_the_policy_starts_at_its_reference(make):
    observer, job = Remembering(), make()
    job.preflight(observer, job.fingerprint())
    (check,) = observer.checks
    assert (check.name, check.passed) == ("starts_at_reference", True)
    assert any(fact.startswith("data       4 comparisons to learn from") for fact in observer.facts)
    moved = make()
    perturb(moved.policy, scale=1.0)
    with pytest.raises(RunStopped) as caught:
        moved.preflight(Remembering(), moved.fingerprint())
    text = str(caught.value)
    assert text.startswith("preflight failed: before any update policy and reference differ by ")
    assert text.endswith(
        "nats per sequence at most: another adapter, dtype or template. Mend that, or set skip_checks ="
        ' ["starts_at_reference"]'
    )
    skipping = make('skip_checks=["starts_at_reference"]')
    perturb(skipping.policy, scale=1.0)
    observer = Remembering()
    skipping.preflight(observer, skipping.fingerprint())
    assert [check.passed for check in observer.checks] == [False]


def test_a_loss_that_is_none_stops_before_the_update_and_names_the_row(make):
    job = ready(make())
    job._reference_logprobs["train"] = job._reference_logprobs["train"].copy()
    job._reference_logprobs["train"][1, 0] = np.nan
    before = [parameter.clone() for _, parameter in job.policy.trained()]
    with pytest.raises(RunStopped) as caught:
        job.step(5, quiet)
    where = job.data.train[1].comparison.where
    assert str(caught.value) == (
        f"step 5: the loss is nan on the comparison of {where}. The weights are as they were before this update; lower"
        " the learning rate"
    )
    assert not job.midway
    for (_, parameter), value in zip(job.policy.trained(), before, strict=True):
        assert torch.equal(parameter, value)


def test_a_checkpoint_goes_on_as_the_job_does(make, tmp_path):
    job = ready(make())
    job.step(0, quiet)
    job.save(tmp_path / "step_1", 1, job.fingerprint())
    expected = job.step(1, quiet).numbers.metrics
    resumed = make()
    saved = state.read(tmp_path / "step_1")
    assert resumed.restore(saved, resumed.fingerprint()) == 1
    again = resumed.step(1, quiet).numbers.metrics
    for key in ("loss/preference", "optim/grad_norm", "preference/margin"):
        assert again[key] == expected[key]
    with pytest.raises(RunDirError, match="the reference has changed: its weights hash to other"):
        resumed.restore(saved, "other")


def test_append_stop_decides_whether_the_end_is_learned(make):
    with_stop, without = make(), make("comparisons.append_stop=false")
    for one, other in zip(with_stop.data.train, without.data.train, strict=True):
        assert one.chosen_ids == (*other.chosen_ids, STOP)
        assert one.rejected_ids == (*other.rejected_ids, STOP)


def test_what_was_left_out_is_counted(make):
    rows = [*ROWS, {"prompt": "i", "chosen": " same", "rejected": " same"}, {**ROWS[0], "chosen": " " + "z" * 40}]
    job = make("comparisons.max_completion_length=20", rows=rows)
    assert len(job.data.train) == 4
    assert sum(job.data.filtered.values()) == 2
    assert set(job.data.filtered) == {
        "chosen and rejected are the same text",
        "a side is longer than max_completion_length = 20 tokens",
    }
