"""Pairs of completions for people or a judge to compare: samples of a run's starting model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kleash.config.schema import RunConfig
from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError
from kleash.labels.records import Pair
from kleash.models.loading import load_policy
from kleash.models.names import load_tokenizer
from kleash.rollout.decoding import DecodingSampler
from kleash.training.seeds import seed_for
from kleash.training.session import load_data

Progress = Callable[[int, int], None]


def candidate_pairs(config: RunConfig, count: int, progress: Progress) -> list[Pair]:
    """At most `count` pairs on the run's training prompts, as many on each prompt as on any other.

    Each completion is in one pair alone, so that pairs are independent. Pairs of equal completions, and empty
    completions, are left out: there may be fewer than `count`.

    Args:
        config: model, prompts, rollout and seed are used; no reward is read.
        count: pairs that are wanted.
        progress: told of the positions sampled and the most there can be.

    Raises:
        KleashError: settings without prompts, or a model or prompts that cannot be read.
    """
    if config.prompts is None:
        raise ConfigError(
            f"algorithm.type = '{config.algorithm.type}' has no prompts to sample on. Give a run with a prompts table"
        )
    rollout, seed = config.rollout, config.training.seed
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    data = load_data(config.prompts, tokenizer, max_completion_length=rollout.max_completion_length, seed=seed)
    prompts = data.train[:count]
    per_prompt = -(-count // len(prompts))
    policy = load_policy(config.model, context=data.longest + rollout.max_completion_length, seed=seed)
    batch_size = None if rollout.batch_size == "auto" else rollout.batch_size
    completions = DecodingSampler(policy.model_to_sample(), policy.tokenizer, batch_size=batch_size).sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=2 * per_prompt,
        max_length=rollout.max_completion_length,
        temperature=rollout.temperature,
        seed=seed_for(seed, "candidates"),
        progress=progress,
    )
    texts = [policy.tokenizer.decode(completion.token_ids) for completion in completions]
    by_round = (
        (prompt, texts[2 * (p * per_prompt + i)], texts[2 * (p * per_prompt + i) + 1])
        for i in range(per_prompt)
        for p, prompt in enumerate(prompts)
    )
    return list(_pairs(by_round, config.model.name))[:count]


def _pairs(drawn: Iterator[tuple[RenderedPrompt, str, str]], source: str) -> Iterator[Pair]:
    for prompt, first, second in drawn:
        if first != second and first.strip() and second.strip():
            asked = prompt.prompt
            yield Pair(asked.text if asked.text is not None else list(asked.messages or ()), first, second, source)
