"""The sampler against a naive one: no cache, no batch, one full forward pass a token."""

from dataclasses import replace

import pytest
import torch
from tiny_run import perturb, policy

from kleash.models.batch import collate
from kleash.rollout import decoding
from kleash.rollout.decoding import DecodingSampler

PROMPTS = [[256, 97, 98, 99, 100, 101, 102], [256], [256, 104, 105], [65, 66]]
MANY_STOPS = tuple(range(0, 261, 5))
"""A fifth of all tokens, so that rows end early and often."""
NEVER = (300,)
"""Beyond the vocabulary."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    from tiny_model import save_tiny_model

    made = policy(save_tiny_model(tmp_path_factory.mktemp("model")))
    perturb(made)
    return made


def sampler(ours, stops=None, **options):
    tokenizer = ours.tokenizer if stops is None else replace(ours.tokenizer, stop_ids=stops)
    return DecodingSampler(ours.model_to_sample(), tokenizer, **options)


def tokens(completions):
    return [completion.token_ids for completion in completions]


@torch.no_grad()
def naive(ours, num_samples, max_length, temperature, seed, stops):
    """One sequence after the other, each token by a whole forward pass, drawn at the same uniform numbers."""
    uniforms = torch.rand(
        (len(PROMPTS) * num_samples, max_length), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    drawn = []
    for row in range(len(PROMPTS) * num_samples):
        response: list[int] = []
        for t in range(max_length):
            ids = torch.tensor([PROMPTS[row // num_samples] + response])
            probs = (ours.causal_lm(ids).logits[0, -1].double() / temperature).softmax(-1)
            response.append(int((probs.cumsum(0) <= uniforms[row, t]).sum()))
            if response[-1] in stops:
                break
        drawn.append(tuple(response))
    return drawn


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_batching_padding_caching_and_dropping_rows_change_nothing(ours, temperature):
    done = sampler(ours, MANY_STOPS).sample(PROMPTS, num_samples=4, max_length=12, temperature=temperature, seed=3)
    assert tokens(done) == naive(ours, 4, 12, temperature, 3, MANY_STOPS)
    assert len({len(completion.token_ids) for completion in done}) > 4


@pytest.mark.parametrize("share", [0.0, 1.01])
def test_when_stopped_rows_are_dropped_does_not_matter(ours, monkeypatch, share):
    arguments = {"num_samples": 4, "max_length": 12, "temperature": 1.0, "seed": 3}
    expected = sampler(ours, MANY_STOPS).sample(PROMPTS, **arguments)
    monkeypatch.setattr(decoding, "COMPACT_BELOW", share)
    again = sampler(ours, MANY_STOPS).sample(PROMPTS, **arguments)
    assert tokens(again) == tokens(expected)
    for one, other in zip(again, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_the_same_seed_gives_the_same_samples_and_another_does_not(ours):
    arguments = {"num_samples": 2, "max_length": 8, "temperature": 1.0}
    first, again, other = (sampler(ours).sample(PROMPTS, seed=seed, **arguments) for seed in (0, 0, 1))
    assert first == again
    assert tokens(first) != tokens(other)


@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
def test_the_batch_size_does_not_change_what_is_drawn(ours, batch_size):
    arguments = {"num_samples": 3, "max_length": 8, "temperature": 1.0, "seed": 5}
    expected = sampler(ours).sample(PROMPTS, **arguments)
    assert tokens(sampler(ours, batch_size=batch_size).sample(PROMPTS, **arguments)) == tokens(expected)


def test_samples_of_a_prompt_are_consecutive(ours):
    """The log-probabilities that come with a reply are those it has behind its own prompt."""
    done = sampler(ours, NEVER).sample(PROMPTS, num_samples=2, max_length=5, temperature=1.0, seed=1)
    for row, completion in enumerate(done):
        ids = torch.tensor([PROMPTS[row // 2] + list(completion.token_ids)])
        with torch.no_grad():
            logprobs = ours.causal_lm(ids).logits[0].log_softmax(-1)[-6:-1]
        own = logprobs.gather(1, ids[0, -5:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs), own, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_left_padded_sampling_and_right_padded_scoring_agree(ours, temperature):
    done = sampler(ours, MANY_STOPS).sample(PROMPTS, num_samples=3, max_length=10, temperature=temperature, seed=2)
    repeated = [prompt for prompt in PROMPTS for _ in range(3)]
    batch = collate(repeated, tokens(done), pad=ours.tokenizer.pad_id, device=ours.device)
    assert batch.attention_mask is not None
    with torch.no_grad():
        logprobs = (ours.hidden(batch) @ ours.head.T / temperature).log_softmax(-1)
    scored = logprobs.gather(1, batch.targets[:, None])[:, 0]
    sampled = torch.tensor([value for completion in done for value in completion.logprobs])
    torch.testing.assert_close(sampled, scored, rtol=0, atol=2e-4)


def test_every_stop_token_ends_a_row_and_is_kept(ours):
    done = sampler(ours, MANY_STOPS).sample(PROMPTS, num_samples=40, max_length=9, temperature=1.0, seed=0)
    ended = {completion.token_ids[-1] for completion in done if completion.stopped}
    assert len(ended) > 20
    for completion in done:
        assert not set(completion.token_ids[:-1]) & set(MANY_STOPS)
        assert completion.stopped == (completion.token_ids[-1] in MANY_STOPS)
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.stopped or len(completion.token_ids) == 9


def test_padding_that_is_a_stop_token_can_be_drawn(ours):
    tokenizer = replace(ours.tokenizer, stop_ids=tuple(range(261)), pad_id=70)
    done = DecodingSampler(ours.model_to_sample(), tokenizer).sample(
        PROMPTS, num_samples=200, max_length=3, temperature=3.0, seed=0
    )
    assert all(len(completion.token_ids) == 1 and completion.stopped for completion in done)
    assert (70,) in tokens(done)


def test_a_stop_token_at_the_limit_counts_as_a_stop(ours):
    done = sampler(ours, tuple(range(261))).sample(PROMPTS, num_samples=1, max_length=1, temperature=1.0, seed=0)
    assert [completion.stopped for completion in done] == [True] * 4
    done = sampler(ours, NEVER).sample(PROMPTS, num_samples=1, max_length=1, temperature=1.0, seed=0)
    assert [completion.stopped for completion in done] == [False] * 4


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_first_tokens_occur_as_often_as_the_softmax_says(ours, temperature):
    """Pearson's statistic over the tokens that are expected at least 5 times, against its mean and spread."""
    number = 4000
    done = sampler(ours).sample([PROMPTS[2]], num_samples=number, max_length=1, temperature=temperature, seed=11)
    with torch.no_grad():
        logits = ours.causal_lm(torch.tensor([PROMPTS[2]])).logits[0, -1].double()
    expected = (logits / temperature).softmax(-1) * number
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in done]), minlength=261).double()
    common = expected >= 5
    cells = torch.cat([counts[common], counts[~common].sum()[None]])
    means = torch.cat([expected[common], expected[~common].sum()[None]])
    statistic = float(((cells - means) ** 2 / means).sum())
    freedom = len(cells) - 1
    assert freedom > 10
    assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5


def test_progress_is_told_until_all_are_done(ours):
    heard = []
    sampler(ours, batch_size=4).sample(
        PROMPTS,
        num_samples=2,
        max_length=3,
        temperature=1.0,
        seed=0,
        progress=lambda done, total: heard.append((done, total)),
    )
    two_batches = [(0, 6), (1, 6), (2, 6), (3, 6), (3, 6), (4, 6), (5, 6), (6, 6)]
    assert heard == sorted(heard)
    assert heard[-1] == (6, 6)
    assert set(heard) <= set(two_batches)
    assert len(heard) > 2


def test_a_model_that_gives_nan_is_heard_of_by_its_log_probabilities(ours, tmp_path):
    from tiny_model import save_tiny_model

    broken = policy(save_tiny_model(tmp_path), "model.lora=false")
    with torch.no_grad():
        broken.head[5, 0] = float("nan")
    done = DecodingSampler(broken.model_to_sample(), broken.tokenizer).sample(
        PROMPTS, num_samples=1, max_length=2, temperature=1.0, seed=0
    )
    assert all(value != value for completion in done for value in completion.logprobs)
