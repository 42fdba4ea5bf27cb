"""Replies of a model, and the token numbers of both models on the same sequences, in batches and from the cache.

Axes: B sequences, N their response tokens, row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float

from kleash.errors import ModelError
from kleash.gauge.cache import Cache
from kleash.gauge.models import GaugedModel, Narrowed, Remembering
from kleash.kl.exact import LinearComparison, linear_comparison
from kleash.models.batch import collate
from kleash.models.tokenizer import Tokenizer
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Completion

TOKENS_AT_ONCE = {"cpu": 2048, "cuda": 32_768, "mps": 8192}
"""Positions that `batch_size = "auto"` scores in one forward pass."""

Sequences = Sequence[Sequence[int]]
BatchSize = int | Literal["auto"]
Done = Callable[[int], None]


@dataclass(frozen=True)
class TokenNumbers:
    """Both models at each response token, nats. `reverse_kl` is KL(tuned ‖ reference), `forward_kl` the other way."""

    tuned_logprobs: Float[np.ndarray, " N"]
    reference_logprobs: Float[np.ndarray, " N"]
    reverse_kl: Float[np.ndarray, " N"]
    forward_kl: Float[np.ndarray, " N"]
    tuned_entropy: Float[np.ndarray, " N"]
    reference_entropy: Float[np.ndarray, " N"]
    same_top: Bool[np.ndarray, " N"]

    def split(self, lengths: Sequence[int]) -> list[TokenNumbers]:
        """One object a response."""
        cuts = np.cumsum(lengths)[:-1]
        return [TokenNumbers(*own) for own in zip(*(np.split(values, cuts) for values in self), strict=True)]

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Reading:
    """How replies are drawn and scored: what both models share.

    Attributes:
        tokenizer: with the stop tokens and context of both.
        rows: of the heads, over which both distributions run.
    """

    tokenizer: Tokenizer
    rows: int
    temperature: float
    batch_size: BatchSize
    cache: Cache

    def at_temperature(self, temperature: float) -> Reading:
        """The same at another temperature."""
        return replace(self, temperature=temperature)


def draw(
    model: GaugedModel,
    prompts: Sequences,
    reading: Reading,
    *,
    samples: int,
    max_length: int,
    seed: int,
    progress: Done = lambda done: None,
) -> list[Completion]:
    """Sample replies; those of one prompt are consecutive. `progress` is told how many are done."""
    key = {
        "what": "replies",
        "model": model.facts.fingerprint,
        "prompts": _digest(prompts),
        "stops": list(reading.tokenizer.stop_ids),
        "rows": reading.rows,
        "temperature": reading.temperature,
        "numbers": [samples, max_length, seed],
    }
    stored = reading.cache.get(**key)
    if stored is None:
        with model.active() as causal_lm:
            size = None if reading.batch_size == "auto" else reading.batch_size
            sampler = DecodingSampler(Narrowed(causal_lm, reading.rows), reading.tokenizer, batch_size=size)
            drawn = sampler.sample(
                prompts,
                num_samples=samples,
                max_length=max_length,
                temperature=reading.temperature,
                seed=seed,
                progress=lambda done, total: progress(done * len(prompts) * samples // total),
            )
        stored = {
            "tokens": np.array([token for reply in drawn for token in reply.token_ids], dtype=np.int64),
            "lengths": np.array([len(reply.token_ids) for reply in drawn], dtype=np.int64),
            "stopped": np.array([reply.stopped for reply in drawn], dtype=np.bool_),
        }
        reading.cache.put(stored, **key)
    rows = np.split(stored["tokens"], np.cumsum(stored["lengths"])[:-1])
    return [
        Completion(tuple(tokens.tolist()), (), bool(stopped))
        for tokens, stopped in zip(rows, stored["stopped"], strict=True)
    ]


def compare(
    tuned: GaugedModel,
    reference: GaugedModel | Remembering,
    prompts: Sequences,
    responses: Sequences,
    reading: Reading,
    *,
    progress: Done = lambda done: None,
) -> TokenNumbers:
    """Score responses with both models, exactly over the vocabulary, the same batches for both.

    Args:
        tuned: the policy of `kleash.kl.exact`.
        reference: the other model.
        prompts: one a response.
        responses: the tokens to score, none of them empty.
        reading: temperature, rows, batches and cache.
        progress: told how many are done.

    Raises:
        ModelError: a model gives a number that is not finite.
    """
    key = {
        "what": "comparison",
        "tuned": tuned.facts.fingerprint,
        "reference": reference.facts.fingerprint,
        "sequences": [_digest(prompts), _digest(responses)],
        "rows": reading.rows,
        "temperature": reading.temperature,
    }
    stored = reading.cache.get(**key)
    if stored is None:
        stored = _compare(tuned, reference, prompts, responses, reading, progress)
        reading.cache.put(stored, **key)
    return TokenNumbers(**stored)


def _compare(
    tuned: GaugedModel,
    reference: GaugedModel | Remembering,
    prompts: Sequences,
    responses: Sequences,
    reading: Reading,
    progress: Done,
) -> dict[str, Any]:
    done = 0
    lengths = np.array([len(response) for response in responses])
    starts = np.cumsum(lengths) - lengths
    names = [field.name for field in fields(TokenNumbers)]
    out: dict[str, Any] = {name: np.zeros(lengths.sum(), bool if name == "same_top" else float) for name in names}
    for rows in _batches(prompts, responses, reading.batch_size, tuned.device.type):
        batch = collate(
            [prompts[row] for row in rows],
            [responses[row] for row in rows],
            pad=reading.tokenizer.pad_id,
            device=tuned.device,
        )
        measured = linear_comparison(
            tuned.hidden(batch),
            tuned.head[: reading.rows],
            reference.hidden(batch),
            reference.head[: reading.rows],
            batch.targets,
            temperature=reading.temperature,
        )
        _check_finite(measured, rows, lengths, tuned, reference)
        where = np.concatenate([np.arange(starts[row], starts[row] + lengths[row]) for row in rows])
        for name, values in zip(names, measured, strict=True):
            out[name][where] = values.cpu().numpy()
        done += len(rows)
        progress(done)
    return out


def _batches(prompts: Sequences, responses: Sequences, batch_size: BatchSize, device: str) -> Iterator[list[int]]:
    """Rows of like length together, longest first, so that memory is known at the first batch."""
    length = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    batch: list[int] = []
    for row in sorted(range(len(length)), key=lambda row: -length[row]):
        most = batch_size if batch_size != "auto" else max(1, TOKENS_AT_ONCE[device] // length[(batch or [row])[0]])
        if len(batch) >= most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _check_finite(
    measured: LinearComparison, rows: list[int], lengths: Any, tuned: GaugedModel, reference: GaugedModel | Remembering
) -> None:
    for model, values in ((tuned, measured.entropy), (reference, measured.reference_entropy)):
        wrong = (~torch.isfinite(values)).nonzero()[:, 0]
        if len(wrong):
            ends = np.cumsum([lengths[row] for row in rows])
            place = int(np.searchsorted(ends, int(wrong[0]), side="right"))
            token = int(wrong[0]) - int(ends[place] - lengths[rows[place]])
            raise ModelError(
                f"{model.facts.name} gives numbers that are not finite in {model.facts.dtype}, first at token {token} "
                f"of reply {rows[place]}: its weights are damaged or overflow. Try --dtype float32"
            )


def _digest(sequences: Sequences) -> str:
    return hashlib.sha256(repr([list(map(int, sequence)) for sequence in sequences]).encode()).hexdigest()
