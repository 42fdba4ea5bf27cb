"""The SFT job: one step against plain autograd, what is measured, and what is refused."""

import math

import pytest
import torch
from accelerate import Accelerator
from tiny_run import Remembering, perturb
from transformers import AutoTokenizer

from kleash.config.loader import load
from kleash.errors import DataError, RunDirError, RunStopped
from kleash.training import imitation, state
from kleash.training.given import Given
from kleash.training.imitation import prepare
from kleash.training.job import quiet

ROWS = [
    {"prompt": "ab", "completion": " yes"},
    {"prompt": "cde", "completion": " a longer answer than that"},
    {"prompt": "f", "completion": " one"},
    {"text": "a document"},
]
STOP = 257


@pytest.fixture
def make(tiny_model_dir):
    """A job on `ROWS`, all of them in each step, none held out unless a setting says so."""

    def made(*overrides, rows=ROWS):
        base = [
            f"model={tiny_model_dir}",
            "model.dtype=float32",
            "demonstrations=given",
            "demonstrations.row_length=40",
            "algorithm.type=sft",
            "training.max_grad_norm=1e9",
        ]
        if not any("held_out" in override for override in overrides):
            base += ["demonstrations.held_out=0", "training.prompts_per_step=4"]
        config = load(None, [*base, *overrides]).config
        return prepare(config, Given(demonstrations=rows)).build(Accelerator())

    return made


def nats_by_hand(job, folder, rows=ROWS, stop=(STOP,)):
    """-log p of each imitated token, text by text, each alone, by whole logits."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for row in rows:
        prompt = tokenizer(row.get("prompt", "")).input_ids
        text = row["text"] if "text" in row else row["completion"]
        answer = [*tokenizer(text, add_special_tokens=False).input_ids, *stop]
        logits = job.policy.causal_lm(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        found.append(-logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0])
    return found


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize(("more", "stop"), [([], (STOP,)), (["demonstrations.append_stop=false"], ())])
def test_a_step_is_the_gradient_of_the_mean_token(make, tiny_model_dir, pieces, more, stop):
    job = make(f"training.gradient_accumulation_steps={pieces}", *more)
    perturb(job.policy)
    expected = torch.cat(nats_by_hand(job, tiny_model_dir, stop=stop)).mean()
    parameters = [p for _, p in job.policy.trained()]
    gradient = torch.autograd.grad(expected, parameters)
    metrics = job.step(0, quiet).numbers.metrics
    assert job.midway
    assert metrics["loss/sft"] == pytest.approx(expected.item(), rel=1e-5)
    norm = torch.stack([one.norm() for one in gradient]).norm()
    assert metrics["optim/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for parameter, one in zip(parameters, gradient, strict=True):
        torch.testing.assert_close(parameter.grad, one, atol=1e-5, rtol=1e-3)


def test_steps_lower_the_loss(make):
    job = make("training.learning_rate=0.01")
    losses = [job.step(step, quiet).numbers.metrics["loss/sft"] for step in range(8)]
    assert losses[7] < losses[0] - 0.3


def test_each_text_keeps_its_own_nats_though_rows_are_packed_in_another_order(make, tiny_model_dir):
    job = make()
    perturb(job.policy)
    with torch.no_grad():
        totals, counts = job._loss(job.data.train, learn=False)
        expected = nats_by_hand(job, tiny_model_dir)
    assert counts.tolist() == [5, 27, 5, 11]
    assert totals.tolist() == pytest.approx([float(nats.sum()) for nats in expected], rel=1e-5)


def test_an_evaluation_gives_loss_perplexity_and_the_drift_on_held_out_prompts(make, tiny_model_dir):
    rows = [{"prompt": f"prompt {i}", "completion": f" answer {i}"} for i in range(8)]
    job = make("demonstrations.held_out=3", "rollout.max_completion_length=6", "training.prompts_per_step=5", rows=rows)
    made = job.evaluate(0, "before", quiet)
    held_out = [text.demonstration.completion for text in job.data.held_out]
    assert len(held_out) == 3
    assert len(job.data.train) == 5
    assert not {text.demonstration.completion for text in job.data.train} & set(held_out)
    of_these = [row for row in rows if row["completion"] in held_out]
    with torch.no_grad():
        loss = torch.cat(nats_by_hand(job, tiny_model_dir, of_these)).mean().item()
    metrics = made.numbers.metrics
    assert metrics["eval/loss/sft"] == pytest.approx(loss, rel=1e-5)
    assert metrics["eval/text/perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert metrics["eval/kl/exact_per_sequence"] == 0.0
    assert {sample.prompt for sample in made.samples} == {row["prompt"] for row in of_these}
    perturb(job.policy)
    assert job.evaluate(1, "eval", quiet).numbers.metrics["eval/kl/exact_per_sequence"] > 0.0


def test_documents_have_no_prompts_to_sample_on(make):
    rows = [{"text": f"document number {i}"} for i in range(6)]
    job = make("demonstrations.held_out=2", "training.prompts_per_step=4", rows=rows)
    made = job.evaluate(0, "before", quiet)
    assert made.samples == ()
    assert set(made.numbers.metrics) == {"eval/loss/sft", "eval/text/perplexity"}


def test_preflight_sees_that_packed_texts_stay_apart(make, monkeypatch):
    observer, job = Remembering(), make()
    job.preflight(observer, job.fingerprint())
    (check,) = observer.checks
    assert (check.name, check.passed) == ("packing", True)
    assert any(fact.startswith("data       4 demonstrations to learn from") for fact in observer.facts)
    monkeypatch.setattr(imitation, "PACKING_LIMIT", {torch.float32: -1.0})
    with pytest.raises(RunStopped) as caught:
        job.preflight(Remembering(), job.fingerprint())
    text = str(caught.value)
    assert text.startswith("preflight failed: a neighbour in its row moves a token by ")
    assert text.endswith(
        "nats at most: this model lets packed demonstrations see each other. Mend that, or set skip_checks ="
        ' ["packing"]'
    )


def test_a_loss_that_is_none_stops_before_the_update_and_names_the_text(make):
    """The embedding of one byte is NaN, which attention spreads over its text and over no other."""
    job = make()
    odd = job.data.train[2].completion_ids[1]
    assert sum(odd in (*text.prompt_ids, *text.completion_ids) for text in job.data.train) >= 1
    embedding = job.policy.causal_lm.get_input_embeddings()
    embedding.weight = torch.nn.Parameter(job.policy.head.clone(), requires_grad=False)
    with torch.no_grad():
        embedding.weight[odd] = float("nan")
    before = [parameter.clone() for _, parameter in job.policy.trained()]
    with pytest.raises(RunStopped, match=r"step 5: the loss is nan on the demonstration of .*lower the learning rate"):
        job.step(5, quiet)
    assert not job.midway
    for (_, parameter), value in zip(job.policy.trained(), before, strict=True):
        assert torch.equal(parameter, value)


def test_holding_out_everything_is_refused(make):
    with pytest.raises(DataError) as caught:
        make("demonstrations.held_out=4", "training.prompts_per_step=1")
    assert str(caught.value) == (
        "demonstrations.held_out = 4 leaves nothing to train on: 'given' has 4 demonstrations. Hold out fewer"
    )


def test_a_checkpoint_goes_on_as_the_job_does(make, tmp_path):
    job = make()
    job.step(0, quiet)
    job.save(tmp_path / "step_1", 1, job.fingerprint())
    expected = job.step(1, quiet).numbers.metrics
    resumed = make()
    assert resumed.restore(state.read(tmp_path / "step_1"), resumed.fingerprint()) == 1
    again = resumed.step(1, quiet).numbers.metrics
    for key in ("loss/sft", "optim/grad_norm"):
        assert again[key] == expected[key]
    with pytest.raises(RunDirError, match="the starting model has changed: its weights hash to other"):
        resumed.restore(state.read(tmp_path / "step_1"), "other")
