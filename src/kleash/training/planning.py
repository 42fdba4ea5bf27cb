"""Samples of a run's reference with the run's rewards: what `kleash plan` predicts from, before any training."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from kleash.config.algorithms import Grpo, OnPolicy
from kleash.config.schema import RunConfig
from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError, DataError
from kleash.gauge.forecast import Forecast, forecast
from kleash.gauge.tilting import PromptDraws
from kleash.models.loading import load_policy, load_reference
from kleash.models.reference import Reference
from kleash.models.tokenizer import Tokenizer
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Completion
from kleash.training.experience import Experience, Rewarder, Spread, gather
from kleash.training.opponent import reference_texts
from kleash.training.seeds import seed_for
from kleash.training.session import prepare

SCORED_AT_ONCE = 8
"""Prompts whose samples are given to the reward in one call."""

Progress = Callable[[str, int, int], None]
"""Told of a phase, and how much of it is done."""


def plan_run(
    config: RunConfig, betas: Sequence[float] | None, *, samples: int, prompts: int, progress: Progress
) -> Forecast:
    """Draw `samples` completions of the reference for each prompt, score them, and predict where each beta would end.

    The prompts are training prompts, chosen by the seed where there are more than are asked for; temperature, length,
    shaping and gold reward are the run's.

    Args:
        config: of a run that samples and scores.
        betas: the betas to predict; None chooses a range. A fixed beta of the run is added.
        samples: completions of each prompt.
        prompts: prompts at most, at least 2.
        progress: told of sampling and scoring.

    Raises:
        KleashError: settings whose optimum is another, or anything in them that cannot be used.
    """
    kl = _check(config).kl
    tokenizer, data, rewarder = prepare(config)
    chosen = _chosen(data.train, prompts, config.training.seed)
    context = data.longest + config.rollout.max_completion_length
    policy = load_policy(config.model, context=context, seed=config.training.seed)
    reference = load_reference(config.model, policy, context=context)
    completions = _sample(config, reference, tokenizer, chosen, samples, progress)
    opponents = None
    if rewarder.wants_reference:
        progress("sampling opponents", 0, len(chosen))
        seed = seed_for(config.training.seed, "plan", "opponent")
        opponents = reference_texts(reference, tokenizer, chosen, config.rollout, seed)
    parts: list[Experience] = []
    for first in range(0, len(chosen), SCORED_AT_ONCE):
        progress("scoring", first, len(chosen))
        some = slice(first, first + SCORED_AT_ONCE)
        written = completions[first * samples : (first + SCORED_AT_ONCE) * samples]
        against = None if opponents is None else opponents[some]
        parts.append(gather(chosen[some], written, tokenizer, rewarder, against))
    progress("scoring", len(chosen), len(chosen))
    settings = config.model_dump(mode="json", include={"model", "prompts", "reward", "rollout", "algorithm"})
    return forecast(
        _draws(parts, rewarder, rescaled=config.reward is not None and config.reward.rescale),
        betas,
        also=kl.beta or None,
        model=config.model.reference or config.model.name,
        notes=_notes(config),
        settings=settings | {"seed": config.training.seed},
    )


def _check(config: RunConfig) -> OnPolicy:
    """Refuse settings under which the optimum is not reference * exp(reward / beta)."""
    algorithm = config.algorithm
    if config.prompts is None or config.reward is None or not isinstance(algorithm, OnPolicy):
        raise ConfigError(
            f"algorithm.type = '{algorithm.type}' optimises no reward on samples of its own, so that there is no beta "
            "to plan. Give the settings of a run that does, such as rloo's."
        )
    if algorithm.type == "online_dpo":
        raise ConfigError(
            "algorithm.type = 'online_dpo' learns which of two samples is better and not by how much, so that its "
            "optimum does not follow from the rewards. Plan with another algorithm.type, such as rloo."
        )
    if isinstance(algorithm, Grpo) and algorithm.scale_rewards == "group":
        raise ConfigError(
            "algorithm.scale_rewards = 'group' divides rewards by the spread of each group: beta is then not a price "
            "in units of the reward, and nothing follows from it. Set algorithm.scale_rewards = 'none', the default."
        )
    return algorithm


def _notes(config: RunConfig) -> list[str]:
    """What about these settings makes a trained run end elsewhere."""
    notes = []
    if isinstance(config.algorithm, OnPolicy) and config.algorithm.kl.scope == "token":
        notes.append("algorithm.kl.scope = 'token' follows a partial gradient, which ends at another optimum")
    if config.model.reference_ema is not None or config.model.reference_reset_every is not None:
        notes.append("the run's reference moves, and the prediction is for one that stays: the run may go further")
    return notes


def _chosen(prompts: Sequence[RenderedPrompt], count: int, seed: int) -> Sequence[RenderedPrompt]:
    if len(prompts) < 2:
        raise DataError(
            f"There are {len(prompts)} prompts to train on, and a prediction needs two to have an interval. Give more "
            "prompts, or hold fewer out (prompts.held_out)."
        )
    if len(prompts) <= count:
        return prompts
    return random.Random(seed_for(seed, "plan", "prompts")).sample(list(prompts), count)


def _sample(
    config: RunConfig,
    reference: Reference,
    tokenizer: Tokenizer,
    prompts: Sequence[RenderedPrompt],
    samples: int,
    progress: Progress,
) -> list[Completion]:
    batch = config.rollout.batch_size
    with reference.model_to_sample() as model:
        return DecodingSampler(model, tokenizer, batch_size=None if batch == "auto" else batch).sample(
            [prompt.token_ids for prompt in prompts],
            num_samples=samples,
            max_length=config.rollout.max_completion_length,
            temperature=config.rollout.temperature,
            seed=seed_for(config.training.seed, "plan"),
            progress=lambda done, total: progress("sampling the reference", done, total),
        )


def _draws(parts: Sequence[Experience], rewarder: Rewarder, *, rescaled: bool) -> list[PromptDraws]:
    """The samples of each prompt, their rewards shaped as those of a step will be."""
    if rescaled:
        raw = np.concatenate([part.rewards.raw[part.rewards.scored] for part in parts])
        if len(raw) > 1 and raw.std() > 0:
            rewarder.spread = Spread(float(raw.mean()), float(raw.std(ddof=1)), len(raw))
    found = []
    for part in parts:
        rewards, size = rewarder.shaped(part.rewards, part.completions), part.group_size
        for index, prompt in enumerate(part.prompts):
            rows = slice(index * size, (index + 1) * size)
            gold = None if rewards.gold is None else rewards.gold[rows]
            lengths = part.lengths[rows].astype(np.float64)
            found.append(
                PromptDraws(prompt.text, part.texts[rows], rewards.shaped[rows], rewards.raw[rows], gold, lengths)
            )
    return found
