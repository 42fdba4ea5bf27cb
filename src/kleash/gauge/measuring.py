"""How far has this model moved? Replies of both models, exact KL in both directions, given text, and a scale.

    for each chunk of prompts:  replies of tuned      ->  KL(tuned ‖ reference)
                                replies of reference  ->  KL(reference ‖ tuned)
    then the given text, then the reference's own rounding

Chunks go to the cache as they are done: Ctrl-C gives a result of what is finished, and the same call goes on from
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kleash.gauge.builtin import Texts
from kleash.gauge.cache import Cache, standard
from kleash.gauge.models import Loader, Remembering
from kleash.gauge.pair import Measurement, Progress
from kleash.gauge.plan import Asked, Settings, plan
from kleash.gauge.records import Gauge
from kleash.gauge.scores import ScoreSpec, resolved
from kleash.gauge.scoring import BatchSize
from kleash.gauge.sources import Named, Source, identify
from kleash.rewards.function import Reward


def measure(reference: Named, tuned: Named, prompts: Texts | None = None, **options: Any) -> Gauge:
    """Measure how far `tuned` has moved from `reference`; the options are those of `measure_many`."""
    return measure_many(reference, [tuned], prompts, **options)[0]


def measure_many(
    reference: Named,
    tuned: Sequence[Named],
    prompts: Texts | None = None,
    *,
    column: str | None = None,
    corpus: Texts | None = None,
    corpus_column: str | None = None,
    samples: int = 1,
    max_length: int = 64,
    temperature: float = 1.0,
    limit: int | None = None,
    seed: int = 0,
    dtype: str = "auto",
    batch_size: BatchSize = "auto",
    scores: Sequence[ScoreSpec] = (),
    scale: bool = True,
    cache: bool = True,
    progress: Progress | None = None,
) -> list[Gauge]:
    """Measure several models against one reference, which is loaded once and whose replies are drawn and read once.

    Args:
        reference: hub id, folder, adapter, GGUF file, Kleash run or (model, tokenizer): see `kleash.gauge.sources`.
        tuned: the same, several.
        prompts: file, hub data set or list, with an optional column `category`. None: 100 built-in ones, but no
            replies at all where a corpus is given.
        column: of the prompts; by default `prompt`, else `messages`.
        corpus: texts to be scored as they stand, teacher-forced, at temperature 1.
        corpus_column: by default `text`, else `prompt`.
        samples: replies a prompt, of each model.
        max_length: tokens a reply may have; what is cut is counted.
        temperature: of sampling and of both distributions that are compared.
        limit: only the first so many prompts, and texts.
        seed: of sampling.
        dtype: `float32`, `bfloat16`, or `auto`: float32 on a CPU, what the hardware multiplies on a GPU.
        batch_size: sequences at once, or `auto`.
        scores: functions `f(prompts, completions, **columns)` that score replies, or `module:function`.
        scale: also measure the reference's bfloat16 and 4-bit rounding on the same prompts, one reply each.
        cache: keep replies and token numbers in the user's cache folder.
        progress: told how far it is.

    Returns:
        One result a tuned model. After Ctrl-C the last one may be partial, and later ones are missing.

    Raises:
        KleashError: settings, prompts or models that cannot be used.
        KeyboardInterrupt: before anything was finished.
    """
    settings = Settings(samples, max_length, temperature, limit, seed, dtype, batch_size, scale)
    asked = Asked(prompts, column, corpus, corpus_column)
    store = standard() if cache else Cache(None)
    return _measured(reference, tuned, asked, settings, resolved(scores), store, progress)


def _measured(
    reference: Named,
    tuned: Sequence[Named],
    asked: Asked,
    settings: Settings,
    rewards: Sequence[Reward],
    cache: Cache,
    progress: Progress | None,
) -> list[Gauge]:
    """Refuse what cannot work before weights are read, then measure one model after another."""
    base = identify(reference)
    sources = [identify(name, base) for name in tuned]
    plans = [plan(base, source, asked, settings) for source in sources]
    longest = max(one.longest(settings.max_length) for one in plans)
    loader = Loader(dtype=settings.dtype, context=longest, device=_device_of(base))
    found: list[Gauge] = []
    try:
        whole = loader.load(base)
        again = Remembering(whole) if len(sources) > 1 else None
        for index, (source, read) in enumerate(zip(sources, plans, strict=True)):
            measurement = Measurement(whole, loader.load(source), read, settings, cache, progress, again)
            measurement.run()
            found.append(measurement.result(rewards, _origin(asked.prompts)))
            if found[-1].partial:
                break
            if source.key not in {other.key for other in (base, *sources[index + 1 :])}:
                loader.release(source)
    except KeyboardInterrupt:
        if not found:
            raise
    return found


def _device_of(source: Source) -> torch.device | None:
    return torch.device(source.loaded[0].device) if source.loaded else None


def _origin(prompts: Texts | None) -> str:
    return "built-in" if prompts is None else str(prompts) if isinstance(prompts, str | Path) else "from memory"
