"""One measurement inside a trainer: sample held-out prompts, score both models, leave everything as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kleash.data.render import RenderedPrompt
from kleash.metrics import HELD_OUT
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.rollout.decoding import DecodingSampler
from kleash.runs.records import Sample
from kleash.training.evaluate import samples_of
from kleash.training.experience import Experience, Floats, unrewarded
from kleash.training.memory import groups_per_batch
from kleash.training.scoring import measure
from kleash.training.seeds import seed_for
from kleash.training.statistics import Numbers, per_sequence, summarize


@dataclass(frozen=True)
class Measurement:
    """How the drift of `policy` from `reference` is measured: the same prompts and random numbers every time."""

    policy: Policy
    reference: Reference
    prompts: Sequence[RenderedPrompt]
    samples: int
    max_length: int
    temperature: float
    seed: int

    def __call__(self, step: int) -> tuple[Numbers, list[Sample]]:
        """Numbers behind `eval/` and all samples, of the policy after `step` updates.

        Raises:
            RunStopped: a number is not finite.
        """
        with undisturbed(self.policy):
            completions = DecodingSampler(self.policy.causal_lm, self.policy.tokenizer).sample(
                [prompt.token_ids for prompt in self.prompts],
                num_samples=self.samples,
                max_length=self.max_length,
                temperature=self.temperature,
                seed=seed_for(self.seed, "eval"),
            )
            texts = [self.policy.tokenizer.decode(completion.token_ids) for completion in completions]
            experience = Experience(self.prompts, completions, texts, unrewarded(len(completions)))
            longest = max(len(prompt.token_ids) for prompt in self.prompts)
            record = measure(
                experience,
                self.policy,
                self.reference,
                temperature=self.temperature,
                per_batch=groups_per_batch(self.policy, self.samples, longest + self.max_length),
                step=step,
            )
        numbers = summarize(experience, record, self.policy.tokenizer)
        numbers.metrics = {key: value for key, value in numbers.metrics.items() if not key.startswith("reward/")}
        error = ratio_stderr(per_sequence(record.reverse_kl, experience.lengths), experience.lengths, self.samples)
        if error is not None:
            numbers.stderr["kl/exact_per_token"] = error
        indices = range(len(self.prompts))
        samples = samples_of(experience, record, self.policy.tokenizer, step, "eval", indices)
        return numbers.behind(HELD_OUT), samples


@contextlib.contextmanager
def undisturbed(policy: Policy) -> Iterator[None]:
    """Within the block the model is in evaluation mode; after it, it and the random numbers are as before."""
    training = [(module, module.training) for module in policy.causal_lm.modules()]
    trainable = [(parameter, parameter.requires_grad) for parameter in policy.causal_lm.parameters()]
    with torch.random.fork_rng(devices=[policy.device] if policy.device.type == "cuda" else []):
        policy.causal_lm.eval()
        try:
            yield
        finally:
            for module, mode in training:
                module.training = mode
            for parameter, wanted in trainable:
                parameter.requires_grad_(wanted)


def ratio_stderr(totals: Floats, lengths: np.ndarray, group_size: int) -> float | None:
    """Standard error of sum(totals) / sum(lengths), clustered by prompt; None for a single prompt.

    Linearised: sd over prompts of (total - ratio * length) / (mean length * sqrt(P)), `group_size` samples a prompt.
    Source: Cochran, Sampling Techniques, 3rd edition, section 6.4.
    """
    prompt_totals = totals.reshape(-1, group_size).sum(axis=1)
    prompt_lengths = lengths.reshape(-1, group_size).sum(axis=1)
    if len(prompt_totals) < 2:
        return None
    residuals = prompt_totals - totals.sum() / lengths.sum() * prompt_lengths
    return float(residuals.std(ddof=1) / prompt_lengths.mean() / np.sqrt(len(residuals)))
