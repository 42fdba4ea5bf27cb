"""How varied and how repetitive logged completions are, by words: other trainers keep texts without the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kleash.monitor.log import Column, Log, LoggedSample

DISTINCT, REPEATED = "text/distinct_2", "text/repeated_4gram"
_SOURCE = "completions"
_SAYS = (
    (DISTINCT, "Distinct bigrams, share: of words, counted here in the completions, since the log has no tokens"),
    (REPEATED, "Repeated 4-grams, share: of words, counted here in the completions, since the log has no tokens"),
)


def with_text(log: Log) -> Log:
    """Return a log with the two numbers in each step that has completions; one that has neither stays as it is."""
    measured = {key for step in log.steps for key in step.metrics}
    by_step = _by_step(log.samples)
    if not by_step or measured & {DISTINCT, REPEATED}:
        return log
    steps = [replace(step, metrics={**step.metrics, **_shares(by_step.get(step.step, ()))}) for step in log.steps]
    return replace(log, steps=steps, columns=[*log.columns, *(Column(_SOURCE, key, says) for key, says in _SAYS)])


def _shares(texts: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """Return the numbers of a step's texts; nothing where they are too short to have any."""
    pairs = [pair for words in texts for pair in _ngrams(words, 2)]
    fours = [list(_ngrams(words, 4)) for words in texts]
    total = sum(map(len, fours))
    found = {DISTINCT: len(set(pairs)) / len(pairs)} if pairs else {}
    if total:
        found[REPEATED] = sum(len(ngrams) - len(set(ngrams)) for ngrams in fours) / total
    return found


def _by_step(samples: Iterable[LoggedSample]) -> dict[int, list[list[str]]]:
    found: dict[int, list[list[str]]] = {}
    for sample in samples:
        found.setdefault(sample.step, []).append(sample.completion.split())
    return found


def _ngrams(words: Sequence[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)
