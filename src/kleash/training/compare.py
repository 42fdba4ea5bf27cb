"""Reference and trained policy on the same prompt, side by side, each token with its KL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kleash.config.loader import load
from kleash.config.schema import RunConfig
from kleash.data.prompts import load_prompts
from kleash.data.render import RenderedPrompt, render
from kleash.errors import RunDirError
from kleash.models.loading import load_policy, load_reference
from kleash.models.names import load_tokenizer
from kleash.models.policy import Policy
from kleash.models.reference import ModelReference, Reference
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Completion
from kleash.runs.reader import RunReader
from kleash.training import state
from kleash.training.experience import Experience, unrewarded
from kleash.training.scoring import measure
from kleash.training.statistics import per_sequence


@dataclass(frozen=True)
class Pair:
    """One prompt's answers before and after training; `token_kl` (nats) is of the policy's answer, token by token."""

    prompt: str
    reference_text: str
    policy_text: str
    tokens: tuple[str, ...]
    token_kl: tuple[float, ...]
    kl: float


def side_by_side(
    run_dir: Path,
    prompts: Sequence[str],
    *,
    step: int | None = None,
    samples: int = 1,
    seed: int = 0,
    max_length: int | None = None,
) -> list[Pair]:
    """Answer each prompt `samples` times with both models, the same random numbers for both.

    Raises:
        RunDirError: no run, or no such checkpoint.
        DataError: a prompt that does not fit the model.
    """
    config, folder = checkpoint_of(run_dir, step)
    if config.algorithm.type == "reward_model":
        raise RunDirError(
            f"{run_dir} is a reward model: it scores texts and writes none. Use it as reward.model in a run, or "
            "look at its report"
        )
    length = config.rollout.max_completion_length if max_length is None else max_length
    asked = config.prompts or config.comparisons or config.demonstrations
    assert asked is not None, "every algorithm has one of these tables"
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    rendered = render(
        load_prompts(list(prompts)),
        tokenizer,
        max_completion_length=length,
        system_prompt=asked.system_prompt,
        as_chat=asked.as_chat,
    )
    context = max(len(prompt.token_ids) for prompt in rendered) + length
    policy = load_policy(config.model, context=context, seed=config.training.seed)
    reference = load_reference(config.model, policy, context=context)

    def answers(model: Any) -> list[Completion]:
        return DecodingSampler(model, policy.tokenizer).sample(
            [prompt.token_ids for prompt in rendered],
            num_samples=samples,
            max_length=length,
            temperature=config.rollout.temperature,
            seed=seed,
        )

    other = reference.causal_lm if isinstance(reference, ModelReference) else policy.model_to_sample()
    before = answers(other)
    state.load_weights(policy, state.read(folder))
    after = answers(policy.model_to_sample())
    return _pairs(policy, reference, rendered, before, after, config.rollout.temperature)


def checkpoint_of(run_dir: Path, step: int | None) -> tuple[RunConfig, Path]:
    """Settings of a run and the folder of one of its checkpoints, by default the newest.

    Raises:
        RunDirError: no run, no checkpoint, or not that one.
    """
    with RunReader(run_dir) as reader:
        config = load(None, base=reader.config).config
        there = {checkpoint.step: checkpoint.path for checkpoint in reader.checkpoints() if checkpoint.path.is_dir()}
    if not there:
        raise RunDirError(f"{run_dir} has no checkpoint on disk. Train it further, or choose another run")
    if step is not None and step not in there:
        raise RunDirError(f"{run_dir} has no checkpoint of step {step}; there are {sorted(there)}. Choose one of these")
    return config, there[max(there) if step is None else step]


def _pairs(
    policy: Policy,
    reference: Reference,
    prompts: Sequence[RenderedPrompt],
    before: Sequence[Completion],
    after: Sequence[Completion],
    temperature: float,
) -> list[Pair]:
    tokenizer = policy.tokenizer
    texts = [tokenizer.decode(completion.token_ids) for completion in after]
    experience = Experience(prompts, after, texts, unrewarded(len(after)))
    record = measure(experience, policy, reference, temperature=temperature, per_batch=1, step=0)
    kl, samples = per_sequence(record.reverse_kl, experience.lengths), experience.group_size
    pairs, start = [], 0
    for row, (old, new) in enumerate(zip(before, after, strict=True)):
        end = start + len(new.token_ids)
        pairs.append(
            Pair(
                prompt=prompts[row // samples].text,
                reference_text=tokenizer.decode(old.token_ids),
                policy_text=texts[row],
                tokens=tuple(tokenizer.token_texts(new.token_ids)),
                token_kl=tuple(record.reverse_kl[start:end].tolist()),
                kl=float(kl[row]),
            )
        )
        start = end
    return pairs
