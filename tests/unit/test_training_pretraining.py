"""The pretraining mix: its gradient by plain autograd, its rows, and its place in an update."""

import pytest
import torch
from accelerate import Accelerator
from tiny_run import experience, perturb, policy, session, settings
from transformers import AutoTokenizer

from kleash.config.schema import Pretraining
from kleash.errors import DataError
from kleash.training import pretraining
from kleash.training.pretraining import Mix, text_rows

ROWS = [[256, 97, 98, 99, 100], [256, 101, 102], [103, 104, 105, 106, 107, 108, 257]]


def mix(rows_per_update=3, gamma=2.0, seed=0):
    table = Pretraining(path="text.txt", gamma=gamma, rows_per_update=rows_per_update)
    return Mix(ROWS, table, seed, Accelerator())


def mean_loss(weights, rows):
    """Mean of -log p over every token of every row but its first, by whole logits."""
    parts = []
    for row in rows:
        logprobs = weights.causal_lm(torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        parts.append(-logprobs.gather(1, torch.tensor(row[1:])[:, None])[:, 0])
    return torch.cat(parts).mean()


def gradients(weights):
    return [p.grad for _, p in weights.trained()]


def test_the_gradient_is_gamma_times_that_of_the_mean_token(tiny_model_dir):
    weights = policy(tiny_model_dir)
    perturb(weights)
    expected = mean_loss(weights, ROWS)
    by_hand = torch.autograd.grad(2.0 * expected, [p for _, p in weights.trained()])
    found = mix().backward(weights, update=0)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert max(float(gradient.abs().max()) for gradient in by_hand) > 0.01
    for one, other in zip(gradients(weights), by_hand, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_it_is_added_to_the_gradient_that_is_there(tiny_model_dir):
    weights = policy(tiny_model_dir)
    perturb(weights)
    mix().backward(weights, update=0)
    once = [gradient.clone() for gradient in gradients(weights)]
    mix().backward(weights, update=0)
    for one, other in zip(gradients(weights), once, strict=True):
        torch.testing.assert_close(one, 2 * other)


def test_updates_go_through_all_rows_in_endless_shuffles(tiny_model_dir, monkeypatch):
    weights, read = policy(tiny_model_dir), []
    inner = pretraining.text_loss

    def text_loss(policy, rows):
        read.extend(ROWS.index(row) for row in rows)
        return inner(policy, rows)

    monkeypatch.setattr(pretraining, "text_loss", text_loss)
    text = mix(rows_per_update=2)
    for update in range(6):
        text.backward(weights, update)
    passes = [read[i : i + 3] for i in range(0, 12, 3)]
    assert all(sorted(rows) == [0, 1, 2] for rows in passes)
    assert len({tuple(rows) for rows in passes}) > 1


@pytest.fixture
def told(tiny_model_dir, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the first document\n\nthe second one, which is longer\n", encoding="utf-8")

    def made(*overrides):
        return session(settings(tiny_model_dir, tmp_path, "algorithm.num_generations=2", *overrides))

    return made, text


def test_documents_are_joined_by_the_stop_token_and_cut(told, tiny_model_dir):
    _, text = told
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    first, second = (
        tokenizer(document, add_special_tokens=False).input_ids
        for document in ("the first document", "the second one, which is longer")
    )
    stream = [*first, 257, *second]
    assert text_rows(str(text), 10, policy(tiny_model_dir).tokenizer) == [stream[i : i + 10] for i in range(0, 50, 10)]
    assert len(stream) == 50
    with pytest.raises(DataError, match="The text has 50 tokens, too few for one row of 64"):
        text_rows(str(text), 64, policy(tiny_model_dir).tokenizer)


def test_an_update_learns_reward_and_text_at_once(told):
    """The gradient of an update with text is that without it, and 0.5 times that of the text."""
    made, text = told
    samples = experience([[256, 97, 98], [256, 99]], [[103, 104], [105], [106, 107, 108], [109]], [0.0] * 4)
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0])

    def updated(*overrides):
        running = made("training.max_grad_norm=1e9", *overrides)
        perturb(running.policy)
        totals = running.updater(samples, running.updater.score(samples, 0), advantages, beta=0.1, step=0).totals
        return float(totals.pretraining_loss), gradients(running.policy)

    nothing, alone = updated()
    loss, mixed = updated(
        f"pretraining={text}", "pretraining.row_length=16", "pretraining.gamma=0.5", "pretraining.rows_per_update=3"
    )
    weights = made().policy
    perturb(weights)
    expected = mean_loss(weights, text_rows(str(text), 16, weights.tokenizer))
    by_hand = torch.autograd.grad(0.5 * expected, [p for _, p in weights.trained()])
    assert nothing == 0.0
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    for both, reward, of_text in zip(mixed, alone, by_hand, strict=True):
        torch.testing.assert_close(both - reward, of_text, atol=1e-5, rtol=1e-3)
