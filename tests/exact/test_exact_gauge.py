"""The gauge against known answers: the enumerable toy in both directions, and float64 logits on given text."""

import math

import numpy as np
import pytest
import torch
from tiny_model import save_tiny_model
from toy_gauge import PROMPTS, ToyModel, toy_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.gauge import measure
from kleash.kl.exact import linear_comparison, linear_kl
from kleash.testing import HORIZON, toy

REVERSE, FORWARD = 0.1215104888, 0.1280400021


def measured(samples, seed):
    tokenizer = toy_tokenizer()
    reference, tuned = ToyModel(toy().reference_logits, "reference"), ToyModel(toy().policy_logits, "tuned")
    return measure(
        (reference, tokenizer),
        (tuned, tokenizer),
        PROMPTS,
        samples=samples,
        max_length=HORIZON,
        seed=seed,
        scale=False,
        cache=False,
    )


def test_both_directions_of_the_toy_are_met_with_20000_samples_and_not_taken_for_each_other():
    found = measured(samples=157, seed=1)
    for direction, exact, other in ((found.reverse, REVERSE, FORWARD), (found.forward, FORWARD, REVERSE)):
        kl = np.array([reply.kl for reply in direction.replies])
        error = kl.std() / math.sqrt(len(kl))
        mean = direction.per_sequence.mean
        assert len(kl) == 157 * len(PROMPTS) > 20_000
        assert abs(mean.value - exact) < 3 * error < abs(exact - other)
        assert mean.low < exact < mean.high
        assert mean.half_width < 3 * error


@pytest.mark.slow
def test_the_interval_covers_the_toy_in_at_least_nine_of_ten_repeats():
    repeats = [measured(samples=2, seed=seed) for seed in range(200)]
    for direction, exact in (("reverse", REVERSE), ("forward", FORWARD)):
        means = [getattr(found, direction).per_sequence.mean for found in repeats]
        assert np.mean([mean.low <= exact <= mean.high for mean in means]) >= 0.90
        assert (
            0.5 < np.mean([mean.half_width for mean in means]) / (1.96 * np.std([mean.value for mean in means])) < 1.5
        )


def texts(count):
    words = ["the", "a", "cat", "dog", "sat", "ran", "under", "hill", "42", ",", ".", "nobody", "knew", "why"]
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, size=generator.integers(3, 30))) for _ in range(count)]


def float64_numbers(folder, token_ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1).numpy() for ids in token_ids]


def test_given_text_agrees_with_float64_logits_of_both_models(tmp_path):
    reference, tuned = save_tiny_model(tmp_path / "reference"), save_tiny_model(tmp_path / "tuned", seed=3)
    given = texts(20)
    found = measure(reference, tuned, corpus=given, dtype="float32", cache=False).corpus
    tokenizer = AutoTokenizer.from_pretrained(reference)
    token_ids = [tokenizer(text).input_ids for text in given]
    p = np.concatenate(float64_numbers(tuned, token_ids))
    q = np.concatenate(float64_numbers(reference, token_ids))
    true = np.concatenate([ids[1:] for ids in token_ids])
    rows = np.arange(len(true))
    reverse, forward = (np.exp(p) * (p - q)).sum(-1), (np.exp(q) * (q - p)).sum(-1)
    change = np.exp(p[rows, true]) - np.exp(q[rows, true])
    assert found.texts == 20
    assert found.tokens == len(true)
    assert found.reverse_per_token.mean.value == pytest.approx(reverse.mean(), abs=1e-4)
    assert found.forward_per_token.mean.value == pytest.approx(forward.mean(), abs=1e-4)
    for field, quantile in (("median", 0.5), ("q90", 0.9), ("q99", 0.99), ("q999", 0.999), ("maximum", 1.0)):
        assert getattr(found.reverse_per_token, field) == pytest.approx(np.quantile(reverse, quantile), abs=1e-4)
        assert getattr(found.forward_per_token, field) == pytest.approx(np.quantile(forward, quantile), abs=1e-4)
        assert getattr(found.probability_change, field) == pytest.approx(np.quantile(change, quantile), abs=1e-4)
    assert found.reference_perplexity.value == pytest.approx(np.exp(-q[rows, true].mean()), rel=1e-4)
    assert found.tuned_perplexity.value == pytest.approx(np.exp(-p[rows, true].mean()), rel=1e-4)
    assert found.top1_agreement.value == pytest.approx((p.argmax(-1) == q.argmax(-1)).mean(), abs=1e-12)
    assert found.probability_change.mean.value == pytest.approx(change.mean(), abs=1e-4)


@pytest.mark.parametrize("chunk_size", [1, 3, None])
def test_the_comparison_gives_what_linear_kl_gives_and_the_rest_from_plain_logits(chunk_size):
    hidden, head, other_hidden, other_head = (
        torch.randn(*shape).double() for shape in ((7, 4), (9, 4), (7, 5), (9, 5))
    )
    targets = torch.randint(9, (7,))
    found = linear_comparison(hidden, head, other_hidden, other_head, targets, temperature=0.7, chunk_size=chunk_size)
    shared = linear_kl(hidden, head, other_hidden, other_head, targets, temperature=0.7, chunk_size=chunk_size)
    for name, values in shared._asdict().items():
        assert torch.equal(getattr(found, name), values), name
    p, q = (hidden @ head.T / 0.7).log_softmax(-1), (other_hidden @ other_head.T / 0.7).log_softmax(-1)
    torch.testing.assert_close(found.reference_entropy, -(q.exp() * q).sum(-1), atol=1e-12, rtol=0)
    assert found.same_top.tolist() == (p.argmax(-1) == q.argmax(-1)).tolist()
    assert not found.same_top.all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk_size", [1, 4, None])
def test_the_comparison_of_a_model_with_itself_is_exactly_zero(dtype, chunk_size):
    hidden, head = torch.randn(11, 16, dtype=dtype), torch.randn(50, 16, dtype=dtype)
    found = linear_comparison(hidden, head, hidden, head, torch.randint(50, (11,)), chunk_size=chunk_size)
    assert found.reverse_kl.tolist() == found.forward_kl.tolist() == [0.0] * 11
    assert torch.equal(found.entropy, found.reference_entropy)
    assert found.same_top.all()
