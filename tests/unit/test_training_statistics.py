"""The numbers of a step, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tiny_run import experience

from kleash.models.names import load_tokenizer
from kleash.training.scoring import TokenRecord
from kleash.training.statistics import Numbers, per_sequence, summarize

EOS, TURN_START = 257, 259


def test_tokens_are_summed_to_sequences():
    values, lengths = np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0, 1, 1])
    assert per_sequence(values, lengths).tolist() == [3.0, 0.0, 4.0, 8.0]


def test_the_error_of_a_mean_is_taken_over_prompts():
    numbers = Numbers()
    numbers.mean("k", np.array([1.0, 3.0, 4.0, 4.0, 5.0, 7.0]), 2)
    assert numbers.metrics["k"] == 4.0
    assert numbers.stderr["k"] == pytest.approx(2.0 / math.sqrt(3))


def test_sequences_without_a_value_are_left_out():
    numbers, nan = Numbers(), float("nan")
    numbers.mean("k", np.array([1.0, nan, nan, nan, 5.0, 7.0]), 2)
    assert numbers.metrics["k"] == pytest.approx(13 / 3)
    assert numbers.stderr["k"] == pytest.approx(np.std([1.0, 6.0], ddof=1) / math.sqrt(2))
    numbers.mean("none", np.array([nan, nan]), 2)
    assert numbers.metrics["none"] is None
    numbers.mean("one prompt", np.array([1.0, 2.0]), 2)
    assert set(numbers.stderr) == {"k"}


def test_the_error_of_a_ratio_is_that_of_the_ratio_estimator():
    """Sums 4, 4, 10 over counts 2, 4, 4: ratio 1.8, residuals 0.4, -3.2, 2.8, whose squares add up to 18.24."""
    numbers = Numbers()
    sums, counts = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 5.0]), np.array([1.0, 1.0, 2.0, 2.0, 1.0, 3.0])
    numbers.ratio("k", sums, counts, 2)
    assert numbers.metrics["k"] == 1.8
    assert numbers.stderr["k"] == pytest.approx(math.sqrt(3 / 2 * 18.24) / 10)
    numbers.ratio("one prompt", sums[:2], counts[:2], 2)
    assert set(numbers.stderr) == {"k"}


def test_a_prefix_goes_before_every_key():
    numbers = Numbers({"a": 1.0}, {"a": 0.5}, {"b": "words"}).behind("eval/")
    assert (numbers.metrics, numbers.stderr, numbers.notes) == (
        {"eval/a": 1.0},
        {"eval/a": 0.5},
        {"eval/b": "words"},
    )


@pytest.fixture(scope="module")
def summary(tiny_model_dir):
    """Two prompts, two replies each; byte b of the vocabulary sits at the index of its printed form."""
    tokenizer = load_tokenizer(str(tiny_model_dir))
    a, one, space, dot = tokenizer.encode("a1 .", add_special_tokens=False)
    replies = [[a, one, EOS], [space, dot], [a, a, a, a, a], [TURN_START, EOS]]
    told = experience([[256]] * 2, replies, [1.0, 2.0, float("nan"), 5.0])
    functions = {"kind": np.array([1.0, 2.0, float("nan"), 6.0]), "short": np.array([0.0, 0.0, 1.0, 1.0])}
    told = replace(told, rewards=replace(told.rewards, by_function=functions))
    kl = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 0.6, 0.7])
    record = TokenRecord(
        policy_logprobs=np.full(12, -1.0),
        reference_logprobs=np.full(12, -1.5),
        reverse_kl=kl,
        forward_kl=2 * kl,
        entropy=np.full(12, 0.25),
    )
    return summarize(told, record, tokenizer)


def test_kl_per_sequence_and_per_token(summary):
    sums = np.array([0.6, 0.9, 15.0, 1.3])
    metrics = summary.metrics
    assert metrics["kl/exact_per_sequence"] == pytest.approx(sums.mean())
    assert summary.stderr["kl/exact_per_sequence"] == pytest.approx(np.std([0.75, 8.15], ddof=1) / math.sqrt(2))
    assert metrics["kl/exact_per_token"] == pytest.approx(17.8 / 12)
    assert summary.stderr["kl/exact_per_token"] == pytest.approx(2 * (16.3 - 7 * 17.8 / 12) / 12)
    assert summary.stderr["kl/forward_per_token"] == pytest.approx(4 * (16.3 - 7 * 17.8 / 12) / 12)
    for key in ("kl/k1_per_token", "entropy/per_token", "sampler/mismatch_mean"):
        assert summary.stderr[key] == pytest.approx(0.0, abs=1e-12)
    assert metrics["kl/forward_per_token"] == pytest.approx(2 * 17.8 / 12)
    assert metrics["kl/k1_per_token"] == pytest.approx(0.5)
    assert metrics["kl/k1_per_sequence"] == pytest.approx(6.0 / 4)
    assert metrics["kl/sequence_p90"] == pytest.approx(np.quantile(sums, 0.9))
    assert metrics["kl/token_max"] == 5.0
    assert metrics["entropy/per_token"] == 0.25


def test_kl_by_token_class_adds_up_to_the_kl(summary):
    of = {name: summary.metrics[f"kl/class_{name}"] for name in ("stop", "special", "whitespace", "digit", "word")}
    assert of["stop"] == pytest.approx((0.3 + 0.7) / 4)
    assert of["special"] == pytest.approx(0.6 / 4)
    assert of["whitespace"] == pytest.approx(0.4 / 4)
    assert of["digit"] == pytest.approx(0.2 / 4)
    assert of["word"] == pytest.approx(15.1 / 4)
    whole = sum(of.values()) + summary.metrics["kl/class_punctuation"]
    assert whole == pytest.approx(summary.metrics["kl/exact_per_sequence"])


def test_the_worst_tokens_are_named_with_their_sequence(summary):
    assert summary.notes["worst_tokens"].startswith("'a' 5.00 nats in sequence 2; 'a' 4.00 nats in sequence 2")


def test_rewards_without_a_score_are_counted(summary):
    assert summary.metrics["reward/unscored_share"] == 0.25
    assert summary.metrics["reward/proxy"] == pytest.approx(8 / 3)
    assert summary.metrics["reward/group_sd"] == pytest.approx(np.std([1.0, 2.0], ddof=1))


def test_each_function_has_its_own_mean(summary):
    assert summary.metrics["reward/function/kind"] == 3.0
    assert summary.stderr["reward/function/kind"] == pytest.approx(np.std([1.5, 6.0], ddof=1) / math.sqrt(2))
    assert summary.metrics["reward/function/short"] == 0.5


def test_length_text_and_mismatch(summary):
    assert summary.metrics["length/mean"] == 3.0
    assert summary.metrics["sampler/mismatch_mean"] == 1.0
    assert summary.metrics["text/distinct_2"] == pytest.approx(5 / 8)
    assert summary.metrics["text/repeated_4gram"] == pytest.approx(1 / 2)
