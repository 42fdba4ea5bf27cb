"""From tokens to the numbers of a step, each a mean over replies with a standard error clustered by prompt.

Samples of one prompt resemble each other, so the error of a mean is taken over prompt means: sd / sqrt(P).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kleash.metrics import FUNCTION_PREFIX
from kleash.models.tokenizer import Tokenizer
from kleash.ops.text import distinct_n, repeated_ngram_share, token_class
from kleash.training.experience import Experience, Floats, Rewards
from kleash.training.scoring import TokenRecord

TOKEN_CLASSES = ("stop", "special", "whitespace", "digit", "punctuation", "word")
WORST_TOKENS = 5


@dataclass
class Numbers:
    """Metrics by key, standard errors of those that are means, and notes in words."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    stderr: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def mean(self, key: str, values: Floats, group_size: int) -> None:
        """Record the mean of `[B]` values, NaN left out, with its clustered standard error."""
        known = ~np.isnan(values)
        if not known.any():
            self.metrics[key] = None
            return
        self.metrics[key] = float(values[known].mean())
        groups = values.reshape(-1, group_size)
        filled = ~np.isnan(groups).all(axis=1)
        means = np.nanmean(groups[filled], axis=1)
        if len(means) > 1:
            self.stderr[key] = float(means.std(ddof=1) / np.sqrt(len(means)))

    def beside(self, other: Numbers) -> Numbers:
        """These numbers and the other's."""
        return Numbers(self.metrics | other.metrics, self.stderr | other.stderr, self.notes | other.notes)

    def ratio(self, key: str, sums: Floats, counts: Floats, group_size: int) -> None:
        """Record sum / count over `[B]` rows, with its standard error over prompts (ratio estimator)."""
        total = max(1.0, float(counts.sum()))
        value = float(sums.sum()) / total
        self.metrics[key] = value
        residuals = (sums - value * counts).reshape(-1, group_size).sum(axis=1)
        prompts = len(residuals)
        if prompts > 1:
            self.stderr[key] = float(np.sqrt(prompts / (prompts - 1) * (residuals**2).sum()) / total)

    def behind(self, prefix: str) -> Numbers:
        """The same numbers with a prefix on every key."""
        return Numbers(
            {prefix + key: value for key, value in self.metrics.items()},
            {prefix + key: value for key, value in self.stderr.items()},
            {prefix + key: value for key, value in self.notes.items()},
        )


def per_sequence(values: NDArray[np.float64], lengths: NDArray[np.int64]) -> Floats:
    """Sum `[N]` token values to `[B]` sequences; an empty sequence is 0."""
    ends = np.concatenate([[0], np.cumsum(values)])
    last = np.cumsum(lengths)
    return np.asarray(ends[last] - ends[last - lengths])


def summarize(experience: Experience, record: TokenRecord, tokenizer: Tokenizer) -> Numbers:
    """Reward, KL, entropy, length and text of one experience."""
    numbers, group = Numbers(), experience.group_size
    _reward(numbers, experience.rewards, group)
    _drift(numbers, experience, record)
    _token_classes(numbers, experience, record, tokenizer)
    ids = [completion.token_ids for completion in experience.completions]
    stopped = np.array([completion.stopped for completion in experience.completions], dtype=np.float64)
    numbers.mean("length/mean", experience.lengths.astype(np.float64), group)
    numbers.mean("length/stop_rate", stopped, group)
    numbers.metrics["text/distinct_2"] = distinct_n(ids, 2)
    numbers.metrics["text/repeated_4gram"] = repeated_ngram_share(ids, 4)
    return numbers


def _reward(numbers: Numbers, rewards: Rewards, group: int) -> None:
    if rewards.gold is not None:
        numbers.mean("reward/gold", rewards.gold, group)
    if not rewards.asked:
        return
    numbers.mean("reward/proxy", rewards.raw, group)
    numbers.mean("reward/shaped", rewards.shaped, group)
    for name, values in rewards.by_function.items():
        numbers.mean(FUNCTION_PREFIX + name, values, group)
    numbers.metrics["reward/unscored_share"] = float(1 - rewards.scored.mean())
    numbers.metrics["reward/clipped_share"] = rewards.num_clipped / len(rewards.raw)
    numbers.metrics["reward/group_sd"] = _group_sd(rewards.shaped, group)


def _drift(numbers: Numbers, experience: Experience, record: TokenRecord) -> None:
    lengths, group = experience.lengths, experience.group_size
    counts = lengths.astype(np.float64)
    sequence_kl = per_sequence(record.reverse_kl, lengths)
    k1 = record.policy_logprobs - record.reference_logprobs
    numbers.mean("kl/exact_per_sequence", sequence_kl, group)
    numbers.mean("kl/k1_per_sequence", per_sequence(k1, lengths), group)
    sampled = np.array([value for completion in experience.completions for value in completion.logprobs])
    mismatch = np.abs(sampled - record.policy_logprobs)
    for key, values in (
        ("kl/exact_per_token", record.reverse_kl),
        ("kl/k1_per_token", k1),
        ("kl/forward_per_token", record.forward_kl),
        ("entropy/per_token", record.entropy),
        ("sampler/mismatch_mean", mismatch),
    ):
        numbers.ratio(key, per_sequence(values, lengths), counts, group)
    numbers.metrics |= {
        "kl/sequence_p90": float(np.quantile(sequence_kl, 0.9)),
        "kl/token_p95": float(np.quantile(record.reverse_kl, 0.95)),
        "kl/token_p99": float(np.quantile(record.reverse_kl, 0.99)),
        "kl/token_max": float(record.reverse_kl.max()),
        "sampler/mismatch_p99": float(np.quantile(mismatch, 0.99)),
    }


def _token_classes(numbers: Numbers, experience: Experience, record: TokenRecord, tokenizer: Tokenizer) -> None:
    """KL by class of the token drawn there, and the positions that drifted most."""
    ids = np.array([i for completion in experience.completions for i in completion.token_ids])
    unique = np.unique(ids)
    texts = dict(zip(unique.tolist(), tokenizer.token_texts(unique.tolist()), strict=True))
    special, stops = tokenizer.special_ids, set(tokenizer.stop_ids)
    classes = {i: token_class(text, i in special, i in stops) for i, text in texts.items()}
    of_token = np.array([classes[i] for i in ids.tolist()])
    for name in TOKEN_CLASSES:
        part = np.where(of_token == name, record.reverse_kl, 0.0)
        numbers.mean(f"kl/class_{name}", per_sequence(part, experience.lengths), experience.group_size)
    worst = np.argsort(record.reverse_kl)[::-1][:WORST_TOKENS]
    owner = np.searchsorted(np.cumsum(experience.lengths), worst, side="right")
    numbers.notes["worst_tokens"] = "; ".join(
        f"{texts[int(ids[i])]!r} {record.reverse_kl[i]:.2f} nats in sequence {sequence}"
        for i, sequence in zip(worst, owner, strict=True)
    )


def _group_sd(rewards: Floats, group_size: int) -> float | None:
    groups = rewards.reshape(-1, group_size)
    full = groups[(~np.isnan(groups)).sum(axis=1) >= 2]
    if not len(full):
        return None
    return float(np.nanstd(full, axis=1, ddof=1).mean())
