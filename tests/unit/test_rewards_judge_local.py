from dataclasses import replace

import pytest
import torch

from kleash.errors import ModelError
from kleash.models.loading import load_frozen
from kleash.models.names import load_tokenizer
from kleash.rewards.judge import Prices, Question, letter_request
from kleash.rewards.judge_local import REPLY_BEGINS, LocalJudge

RUBRIC = "The edible one is better."
QUESTIONS = [
    Question("Name a fruit.", "An apple.", "A stone, of course."),
    Question([{"role": "user", "content": "Hi"}], "Hello!", "No."),
    Question("Count.", "1 2 3", "x" * 300),
]


@pytest.fixture(scope="module")
def causal_lm(tiny_model_dir):
    return load_frozen(str(tiny_model_dir), None, torch.float32, torch.device("cpu"), 4096)


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir):
    return replace(load_tokenizer(str(tiny_model_dir)), max_context=4096)


@pytest.fixture
def without_template(tiny_model_dir):
    plain = replace(load_tokenizer(str(tiny_model_dir)), max_context=4096)
    plain.inner.chat_template = None
    return plain


def probability_of_a(causal_lm, tokenizer, text):
    """P(A) / (P(A) + P(B)) from the model's whole distribution, one text alone."""
    ids = tokenizer.inner(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        probabilities = causal_lm(ids).logits[0, -1].double().softmax(-1)
    a, b = (probabilities[tokenizer.inner.convert_tokens_to_ids(letter)] for letter in "AB")
    return float(a / (a + b))


def chat(text):
    return f"<|bos|><|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def judged(judge, questions=QUESTIONS):
    return [verdict for _, verdict in judge.judge(questions)]


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_the_probabilities_are_the_models_own_whatever_the_batch(causal_lm, tokenizer, batch_size):
    for question, verdict in zip(
        QUESTIONS, judged(LocalJudge(causal_lm, tokenizer, RUBRIC, batch_size=batch_size)), strict=True
    ):
        for answer, shown in ((verdict.forward, question), (verdict.backward, question.exchanged())):
            expected = probability_of_a(causal_lm, tokenizer, chat(letter_request(shown, RUBRIC)))
            assert answer.probability_A == pytest.approx(expected, abs=1e-5)
            assert answer.text == answer.parse == ("A" if expected > 0.5 else "B")


def test_without_a_chat_template_the_letter_follows_a_space(causal_lm, without_template):
    (verdict,) = judged(LocalJudge(causal_lm, without_template, RUBRIC), QUESTIONS[:1])
    text = f"<|bos|>{letter_request(QUESTIONS[0], RUBRIC)}{REPLY_BEGINS} "
    assert verdict.forward.probability_A == pytest.approx(probability_of_a(causal_lm, without_template, text), abs=1e-5)


def test_the_verdict_is_strict_and_the_probability_is_the_mean_of_both_orders(causal_lm, tokenizer):
    for verdict in judged(LocalJudge(causal_lm, tokenizer, RUBRIC)):
        a_forward, a_backward = verdict.forward.probability_A, verdict.backward.probability_A
        assert verdict.probability_first == pytest.approx((a_forward + 1 - a_backward) / 2)
        if a_forward > 0.5 > a_backward:
            assert verdict.choice == "first"
        elif a_forward < 0.5 < a_backward:
            assert verdict.choice == "second"
        else:
            assert verdict.choice == "tie"


@pytest.mark.parametrize(
    ("scores", "choice", "mean"),
    [((0.9, 0.2), "first", 0.85), ((0.1, 0.6), "second", 0.25), ((0.9, 0.6), "tie", 0.65), ((0.5, 0.5), "tie", 0.5)],
)
def test_both_orders_must_agree_whatever_the_mean_says(causal_lm, tokenizer, monkeypatch, scores, choice, mean):
    monkeypatch.setattr(LocalJudge, "_probabilities_of_A", lambda self, rows: list(scores))
    (verdict,) = judged(LocalJudge(causal_lm, tokenizer, RUBRIC), QUESTIONS[:1])
    assert verdict.choice == choice
    assert verdict.probability_first == pytest.approx(mean)


def test_tokens_read_are_counted_and_none_are_written(causal_lm, tokenizer):
    judge = LocalJudge(causal_lm, tokenizer, RUBRIC, prices=Prices(1.0, 2.0))
    (verdict,) = judged(judge, QUESTIONS[:1])
    ids = tokenizer.inner(chat(letter_request(QUESTIONS[0], RUBRIC)), add_special_tokens=False).input_ids
    assert verdict.forward.usage == (len(ids), 0)
    assert judge.prices == (1.0, 2.0)


def test_a_question_beyond_the_context_fails_and_the_others_do_not(causal_lm, tokenizer):
    too_long = Question("Count.", "x" * 4000, "y")
    verdicts = judged(LocalJudge(causal_lm, tokenizer, RUBRIC), [QUESTIONS[0], too_long, QUESTIONS[1]])
    assert [verdict.failed for verdict in verdicts] == [False, True, False]
    tokens = len(chat(letter_request(too_long, RUBRIC)).replace("<|bos|>", "?").replace("<|im_start|>", "?"))
    tokens -= len("<|im_end|>") - 1
    assert verdicts[1].reason == (
        f"No answer with the order as given: the question and one letter take {tokens + 1} tokens, more than the 4096"
        f" of {tokenizer.name}."
    )


class Letters:
    """Knows two encodings."""

    name = "letters"
    has_chat_template = False

    def __init__(self, a, b):
        self.ids = {" A": a, " B": b}

    def encode(self, text, *, add_special_tokens):
        return self.ids[text]


@pytest.mark.parametrize(("a", "b"), [([7], [7]), ([1, 5], [2, 6]), ([5], [2, 6])])
def test_a_tokenizer_that_does_not_tell_the_letters_apart_is_refused(causal_lm, a, b):
    with pytest.raises(ModelError) as caught:
        LocalJudge(causal_lm, Letters(a, b), RUBRIC)
    assert str(caught.value) == (
        "Model 'letters' cannot be a local judge: 'A' and 'B' are not one token each where a reply begins, so their"
        " probabilities cannot be compared. Use another model, or serve this one and give base_url."
    )


def test_a_frozen_model_has_nothing_to_train(causal_lm):
    assert not any(parameter.requires_grad for parameter in causal_lm.parameters())
    assert not causal_lm.training
