"""Measure the policy on held-out prompts: the same prompts and the same random numbers every time, so that it pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from accelerate import Accelerator

from kleash.config.schema import RunConfig
from kleash.data.render import RenderedPrompt
from kleash.models.policy import Policy
from kleash.models.reference import MovingReference, Reference
from kleash.models.tokenizer import Tokenizer
from kleash.rollout.sampler import Progress, Sampler
from kleash.runs.records import Sample, Split
from kleash.training.distributed import gathered
from kleash.training.experience import Experience, Rewarder, gather
from kleash.training.opponent import reference_texts
from kleash.training.scoring import TokenRecord, measure
from kleash.training.seeds import seed_for
from kleash.training.statistics import Numbers, per_sequence, summarize


@dataclass(frozen=True)
class Bench:
    """What measuring a policy needs: the models, the held-out prompts, the rewards, a sampler of the policy."""

    config: RunConfig
    policy: Policy
    reference: Reference
    rewarder: Rewarder
    held_out: Sequence[RenderedPrompt]
    make_sampler: Callable[[], Sampler]
    accelerator: Accelerator
    sequences_per_batch: int


def evaluate(bench: Bench, step: int, split: Split, progress: Progress | None = None) -> tuple[Numbers, list[Sample]]:
    """Numbers behind `eval/` and all completions, of the policy after `step` updates."""
    held_out, accelerator, rollout = bench.held_out, bench.accelerator, bench.config.rollout
    own = range(accelerator.process_index, len(held_out), accelerator.num_processes)
    prompts = [held_out[i] for i in own]
    seed = seed_for(bench.config.training.seed, "eval", accelerator.process_index)
    completions = bench.make_sampler().sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=bench.config.training.eval_samples,
        max_length=rollout.max_completion_length,
        temperature=rollout.temperature,
        seed=seed,
        progress=progress,
    )
    opponents = None
    if bench.rewarder.wants_reference:  # with other random numbers: the same would write the same near the start
        other = seed_for(bench.config.training.seed, "eval", "opponent", accelerator.process_index)
        opponents = reference_texts(bench.reference, bench.policy.tokenizer, prompts, rollout, other)
    experience = gather(prompts, completions, bench.policy.tokenizer, bench.rewarder, opponents)
    per_batch = max(1, bench.sequences_per_batch // experience.group_size)

    def drift_from(reference: Reference) -> TokenRecord:
        return measure(
            experience, bench.policy, reference, temperature=rollout.temperature, per_batch=per_batch, step=step
        )

    record = drift_from(bench.reference)
    numbers = Numbers()
    if isinstance(bench.reference, MovingReference):
        whole, drift = gathered(accelerator, experience, drift_from(bench.reference.original))
        kl = per_sequence(drift.reverse_kl, whole.lengths)
        numbers.mean("kl/original_per_sequence", kl, whole.group_size)
    experience, record = gathered(accelerator, experience, record)
    order = [
        i for rank in range(accelerator.num_processes) for i in range(rank, len(held_out), accelerator.num_processes)
    ]
    numbers = numbers.beside(summarize(experience, record, bench.policy.tokenizer))
    numbers.metrics |= bench.rewarder.judged()
    samples = samples_of(experience, record, bench.policy.tokenizer, step, split, order)
    return numbers.behind("eval/"), samples


def samples_of(
    experience: Experience,
    record: TokenRecord,
    tokenizer: Tokenizer,
    step: int,
    split: Split,
    prompt_indices: Sequence[int],
    limit: int | None = None,
) -> list[Sample]:
    """Completions with their KL token by token; with a limit, the first sample of the first prompts, then the next.

    A prompt may come twice in a step, at the turn of an epoch: its samples are then numbered on.
    """
    size = experience.group_size
    ends = np.cumsum(experience.lengths)
    kl = per_sequence(record.reverse_kl, experience.lengths)
    by_round = [(g, i) for i in range(size) for g in range(len(experience.prompts))]
    drawn: Counter[int] = Counter()
    samples = []
    for group, i in by_round[:limit]:
        row = group * size + i
        completion = experience.completions[row]
        tokens = slice(ends[row] - len(completion.token_ids), ends[row])
        rewards = experience.rewards
        samples.append(
            Sample(
                step=step,
                split=split,
                prompt_index=prompt_indices[group],
                sample_index=drawn[prompt_indices[group]],
                prompt=experience.prompts[group].text,
                completion=experience.texts[row],
                tokens=tuple(tokenizer.token_texts(completion.token_ids)),
                token_kl=tuple(record.reverse_kl[tokens].tolist()),
                reward=float(rewards.raw[row]) if rewards.scored[row] else None,
                gold=_known(rewards.gold[row]) if rewards.gold is not None else None,
                kl=float(kl[row]),
                stopped=completion.stopped,
            )
        )
        drawn[prompt_indices[group]] += 1
    return samples


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
