"""The DPO job: where it starts, one step's gradient against plain torch, ties, and what the reference said."""

import json
import math

import pytest
import torch
from accelerate import Accelerator
from tiny_run import perturb

from kleash.config.loader import load
from kleash.models.reference import Reference
from kleash.training.job import quiet
from kleash.training.observer import Silent
from kleash.training.preference import prepare

BETA = 0.3
BOS, STOP = 256, 257
ROWS = [
    {"prompt": "one", "chosen": "abc", "rejected": "d"},
    {"prompt": "two words", "chosen": "ef", "rejected": "ghijk"},
    {"prompt": "three", "chosen": "lm", "rejected": "no", "strength": 0},
]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    """A function that makes a job whose only step takes all rows, with what the reference says of them."""

    def made(*overrides, rows=ROWS, read=True):
        path = tmp_path / "comparisons.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        base = [
            f"model={tiny_model_dir}",
            "model.dtype=float32",
            f"comparisons={path}",
            "comparisons.held_out=0",
            "algorithm.type=dpo",
            f"algorithm.beta={BETA}",
            f"training.prompts_per_step={len(rows)}",
            "training.max_grad_norm=1e9",
        ]
        job = prepare(load(None, [*base, *overrides]).config).build(Accelerator())
        if read:
            job.read_with_reference(job.fingerprint())
        return job

    return made


def encoded(text):
    """The tiny model's tokens are the bytes of a text, by their place among the byte-level characters."""
    from tiny_model import byte_tokenizer

    return byte_tokenizer().encode(text, add_special_tokens=False)


def plain_logprob(model, prompt, answer):
    """Log-probability of an answer and its stop token, from the logits that Hugging Face gives for this row alone."""
    before, after = [BOS, *encoded(prompt)], [*encoded(answer), STOP]
    logprobs = model(input_ids=torch.tensor([before + after])).logits[0].log_softmax(dim=1)
    return logprobs[len(before) - 1 : -1][torch.arange(len(after)), torch.tensor(after)].sum()


def plain_margins(policy, rows):
    """Nats by which the policy moved to each chosen answer, more than to the rejected one."""
    margins = []
    for row in rows:
        sides = [(row["prompt"], row["chosen"]), (row["prompt"], row["rejected"])]
        chosen, rejected = (plain_logprob(policy.causal_lm, *side) for side in sides)
        with torch.no_grad(), policy.peft_model.disable_adapter():
            chosen_before, rejected_before = (plain_logprob(policy.causal_lm, *side) for side in sides)
        margins.append((chosen - chosen_before) - (rejected - rejected_before))
    return torch.stack(margins)


def sigmoid_loss(margins, rows):
    """DPO's, with half a win each way for a tie."""
    win, loss = torch.nn.functional.softplus(-BETA * margins), torch.nn.functional.softplus(BETA * margins)
    tied = torch.tensor([row.get("strength") == 0 for row in rows])
    return torch.where(tied, 0.5 * (win + loss), win)


def ipo_loss(margins, rows):
    """(h - 1 / (2 beta))^2, for comparisons without a tie."""
    return (margins - 1 / (2 * BETA)) ** 2


def gradient(policy):
    return torch.cat([weight.grad.flatten() for _, weight in policy.trained()])


def test_it_starts_at_the_reference(make):
    """The same rows are cut alike for both, so that not even rounding differs."""
    metrics = make().step(0, quiet).numbers.metrics
    drifts = ("margin", "chosen_drift", "rejected_drift")
    assert [metrics[f"preference/{key}"] for key in drifts] == [0.0, 0.0, 0.0]
    assert metrics["preference/accuracy"] == 0.5
    assert metrics["loss/preference"] == pytest.approx(math.log(2))


def test_what_it_says_before_the_first_step(make):
    checks = []

    class Listening(Silent):
        def checked(self, result):
            checks.append(result)

    job = make(read=False)
    job.preflight(Listening(), job.fingerprint())
    (check,) = checks
    assert (check.name, check.passed) == ("starts_at_reference", True)
    assert check.detail == "before any update policy and reference differ by 0 nats per sequence at most"


@pytest.mark.parametrize(
    ("settings", "rows", "loss"),
    [
        ((), ROWS, sigmoid_loss),
        (("training.gradient_accumulation_steps=3",), ROWS, sigmoid_loss),
        (("algorithm.loss=ipo",), ROWS[:2], ipo_loss),
    ],
    ids=["sigmoid with a tie", "in micro-batches", "ipo"],
)
def test_one_steps_numbers_and_gradient_against_plain_torch(make, settings, rows, loss):
    job, same = make(*settings, rows=rows), make(*settings, rows=rows)
    for each in (job, same):
        perturb(each.policy)
    margins = plain_margins(same.policy, rows)
    expected = loss(margins, rows)
    expected.mean().backward()
    metrics = job.step(0, quiet).numbers.metrics
    assert margins.abs().min() > 0.01
    torch.testing.assert_close(gradient(job.policy), gradient(same.policy), rtol=1e-4, atol=1e-5)
    assert metrics["optim/grad_norm"] == pytest.approx(float(gradient(same.policy).norm()), rel=1e-4)
    assert metrics["loss/preference"] == pytest.approx(float(expected.mean()), abs=1e-4)
    assert metrics["preference/margin"] == pytest.approx(float(BETA * margins.mean()), abs=1e-4)
    assert metrics["preference/accuracy"] == pytest.approx(float((margins > 0).float().mean()))


def test_which_side_of_a_tie_is_called_chosen_changes_nothing(make):
    swapped = [*ROWS[:2], ROWS[2] | {"chosen": ROWS[2]["rejected"], "rejected": ROWS[2]["chosen"]}]
    decided = [*ROWS[:2], {key: value for key, value in ROWS[2].items() if key != "strength"}]
    found = []
    for rows in (ROWS, swapped, decided):
        job = make(rows=rows)
        perturb(job.policy)
        job.step(0, quiet)
        found.append(gradient(job.policy))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    assert (found[2] - found[0]).abs().max() > 1e-3


def test_the_reference_reads_once_and_is_remembered(make, monkeypatch):
    first = make()
    expected = first.step(0, quiet).numbers.metrics

    def refuse(self, batch):
        raise AssertionError("the reference reads")

    job = make(read=False)
    kind = type(job.reference)
    assert issubclass(kind, Reference) or hasattr(kind, "hidden")
    monkeypatch.setattr(kind, "hidden", refuse)
    job.read_with_reference(job.fingerprint())
    found = job.step(0, quiet).numbers.metrics
    timed = {key for key in expected if key.startswith(("time/", "throughput/"))}
    assert {k: found[k] for k in found.keys() - timed} == {k: expected[k] for k in expected.keys() - timed}
    with pytest.raises(AssertionError, match="the reference reads"):
        job.read_with_reference("another reference")
    others = make(rows=[ROWS[0], ROWS[1] | {"chosen": "other"}], read=False)
    with pytest.raises(AssertionError, match="the reference reads"):
        others.read_with_reference(others.fingerprint())
