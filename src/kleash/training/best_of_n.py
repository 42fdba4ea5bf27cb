"""Best-of-n of a run's starting model: its prompts, its sampling and its reward, and no training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from kleash.config.schema import RunConfig
from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError, DataError
from kleash.gauge.best_of_n import BestOfN, PromptSamples, measure
from kleash.models.loading import load_policy, load_reference
from kleash.models.policy import Policy
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Completion
from kleash.training.experience import Experience, Rewarder, gather
from kleash.training.opponent import reference_texts
from kleash.training.seeds import seed_for
from kleash.training.session import Data, prepare

SCORED_AT_ONCE = 8
"""Prompts whose samples are given to the reward in one call."""

Which = Literal["held_out", "all"]
Progress = Callable[[str, int, int], None]
"""Told of a phase, and how much of it is done."""


def measure_best_of_n(
    config: RunConfig, sizes: Sequence[int], *, samples: int, prompts: Which, progress: Progress
) -> BestOfN:
    """Draw `samples` completions of each prompt, score them, and measure best-of-n at each of `sizes`.

    Args:
        config: of a run that samples and scores: model, prompts, reward, rollout and seed are used.
        sizes: the n, ascending.
        samples: completions of each prompt, more than the largest n.
        prompts: those that the run holds out, or all of them.
        progress: told of sampling and scoring.

    Raises:
        KleashError: settings without prompts or a reward, or anything in them that cannot be used.
    """
    _check(config)
    _, data, rewarder = prepare(config)
    chosen = _chosen(data, prompts)
    context = data.longest + config.rollout.max_completion_length
    policy = load_policy(config.model, context=context, seed=config.training.seed)
    completions = _sample(config, policy, chosen, samples, progress)
    opponents = _opponents(config, policy, chosen, rewarder, context, progress)
    scored: list[PromptSamples] = []
    for first in range(0, len(chosen), SCORED_AT_ONCE):
        progress("scoring", first, len(chosen))
        some = slice(first, first + SCORED_AT_ONCE)
        written = completions[first * samples : (first + SCORED_AT_ONCE) * samples]
        against = None if opponents is None else opponents[some]
        scored += _by_prompt(gather(chosen[some], written, policy.tokenizer, rewarder, against))
    progress("scoring", len(chosen), len(chosen))
    settings = config.model_dump(mode="json", include={"model", "prompts", "reward", "rollout"})
    settings |= {"seed": config.training.seed, "samples": samples, "which_prompts": prompts}
    return measure(scored, sizes, model=config.model.name, settings=settings)


def _check(config: RunConfig) -> None:
    """Refuse settings that give nothing to sample, or no reward of a sample alone."""
    if config.prompts is None or config.reward is None:
        raise ConfigError(
            f"algorithm.type = '{config.algorithm.type}' neither samples nor optimises a reward, and best-of-n needs "
            "prompts and a reward to choose by. Give the settings of a run that has both, such as rloo's."
        )
    if config.algorithm.type == "online_dpo" and config.reward.judge is not None:
        raise ConfigError(
            "reward.judge compares the two samples of a pair where algorithm.type = 'online_dpo', and best-of-n needs "
            "a reward of each sample alone. Give another algorithm.type: the judge then compares with the reference."
        )


def _chosen(data: Data, which: Which) -> Sequence[RenderedPrompt]:
    if which == "all":
        return [*data.train, *data.held_out]
    if not data.held_out:
        raise DataError(
            "No prompt is held out: prompts.held_out = 0 and there is no prompts.held_out_path. Hold some out, or "
            "measure on every prompt with --prompts all."
        )
    return data.held_out


def _sample(
    config: RunConfig, policy: Policy, prompts: Sequence[RenderedPrompt], samples: int, progress: Progress
) -> list[Completion]:
    batch = config.rollout.batch_size
    sampler = DecodingSampler(policy.model_to_sample(), policy.tokenizer, batch_size=None if batch == "auto" else batch)
    return sampler.sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=samples,
        max_length=config.rollout.max_completion_length,
        temperature=config.rollout.temperature,
        seed=seed_for(config.training.seed, "best_of_n"),
        progress=lambda done, total: progress("sampling", done, total),
    )


def _opponents(
    config: RunConfig,
    policy: Policy,
    prompts: Sequence[RenderedPrompt],
    rewarder: Rewarder,
    context: int,
    progress: Progress,
) -> list[str] | None:
    """What the reference writes to each prompt, where the reward compares with it."""
    if not rewarder.wants_reference:
        return None
    progress("sampling the reference", 0, len(prompts))
    reference = load_reference(config.model, policy, context=context)
    seed = seed_for(config.training.seed, "best_of_n", "opponent")
    return reference_texts(reference, policy.tokenizer, prompts, config.rollout, seed)


def _by_prompt(experience: Experience) -> list[PromptSamples]:
    """The samples of each prompt with the raw reward, which is what `reward/proxy` is in a run, and gold."""
    size, rewards = experience.group_size, experience.rewards
    found = []
    for index, prompt in enumerate(experience.prompts):
        rows = slice(index * size, (index + 1) * size)
        gold = None if rewards.gold is None else rewards.gold[rows]
        found.append(PromptSamples(prompt.text, experience.texts[rows], rewards.raw[rows], gold))
    return found
