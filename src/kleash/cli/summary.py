"""What a run has gained and what it cost, from its samples before and after training on the same held-out prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from kleash.ops.text import distinct_n, repeated_ngram_share
from kleash.report.run_samples import pair_up
from kleash.report.run_summary import controlled_key
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample

LATE_STEPS = 20


@dataclass(frozen=True)
class Mean:
    """A mean over prompts; `stderr` is None where one prompt alone has no spread."""

    value: float
    stderr: float | None
    count: int


@dataclass(frozen=True)
class Change:
    """A quantity before and after training, and the mean of the differences prompt by prompt.

    `difference` has the paired standard error: what makes one prompt pay more than another cancels in it.
    """

    before: Mean
    after: Mean
    difference: Mean


@dataclass(frozen=True)
class Held:
    """The KL of the last steps of training, in the unit of the target, and the target of the last of them."""

    kl: float
    steps: int
    key: str
    target: float | None


@dataclass(frozen=True)
class Summary:
    """The numbers of a run's end.

    Args:
        reward: of the held-out prompts that got a score both times; None if there is no such prompt.
        kl: KL(policy ‖ reference) of the same replies, nats per sequence.
        distinct_2: share of different token bigrams, before and after.
        repeated_4gram: share of token 4-grams that repeat within a reply, before and after.
        held: the KL over the last steps; None if no step measured it.
        pairs: samples before and after, in the order of the prompts.
    """

    reward: Change | None
    kl: Change
    distinct_2: tuple[float, float]
    repeated_4gram: tuple[float, float]
    held: Held | None
    pairs: list[tuple[Sample, Sample]]


def summarize(reader: RunReader) -> Summary | None:
    """Return the summary of a run, or None if it has no samples both before and after training."""
    found = pair_up(reader.samples("before"), reader.samples("after"))
    pairs = [(before, after) for before, after in found if before is not None and after is not None]
    if not pairs:
        return None
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    kl = change(before, after, lambda sample: sample.kl)
    assert kl is not None, "every sample has a KL"
    texts = _numbered([sample.tokens for sample in before]), _numbered([sample.tokens for sample in after])
    return Summary(
        reward=change(before, after, lambda sample: sample.reward),
        kl=kl,
        distinct_2=(distinct_n(texts[0], 2), distinct_n(texts[1], 2)),
        repeated_4gram=(repeated_ngram_share(texts[0], 4), repeated_ngram_share(texts[1], 4)),
        held=held(reader),
        pairs=pairs,
    )


def change(
    before: Iterable[Sample], after: Iterable[Sample], measure: Callable[[Sample], float | None]
) -> Change | None:
    """Compare a quantity by prompt: the samples of a prompt are averaged first, so that prompts are the unit.

    Args:
        before: samples before training.
        after: samples after it.
        measure: the quantity; None where a sample has none.

    Returns:
        The change over the prompts that have the quantity both times, or None if none has.
    """
    first, last = _by_prompt(before, measure), _by_prompt(after, measure)
    shared = sorted(first.keys() & last.keys())
    if not shared:
        return None
    return Change(
        mean([first[prompt] for prompt in shared]),
        mean([last[prompt] for prompt in shared]),
        mean([last[prompt] - first[prompt] for prompt in shared]),
    )


def mean(values: Sequence[float]) -> Mean:
    """Return the mean and its standard error, sd / sqrt(n) with the n - 1 sd."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Mean(fmean(values), error, len(values))


def held(reader: RunReader) -> Held | None:
    """Return the mean KL of the last `LATE_STEPS` steps, in the unit of the target; None if it was not measured."""
    key = controlled_key(reader.config)
    late = [value for _, value, _ in reader.series(key)[-LATE_STEPS:]]
    if not late:
        return None
    targets = [value for _, value, _ in reader.series("control/target")]
    return Held(fmean(late), len(late), key, targets[-1] if targets else None)


def _by_prompt(samples: Iterable[Sample], measure: Callable[[Sample], float | None]) -> Mapping[int, float]:
    values: dict[int, list[float]] = {}
    for sample in samples:
        value = measure(sample)
        if value is not None:
            values.setdefault(sample.prompt_index, []).append(value)
    return {prompt: fmean(found) for prompt, found in values.items()}


def _numbered(texts: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return tokens as numbers, equal where their texts are."""
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(token, len(numbers)) for token in text] for text in texts]
