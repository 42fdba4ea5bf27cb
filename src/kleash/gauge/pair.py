"""One pair of models, measured chunk by chunk; what is finished stays finished when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import nn

from kleash.gauge import directions, scores, statistics
from kleash.gauge.cache import Cache
from kleash.gauge.directions import Drawn
from kleash.gauge.models import GaugedModel, Remembering, rounded
from kleash.gauge.plan import Plan, Settings
from kleash.gauge.records import Direction, DirectionName, Estimate, Gauge, Scale
from kleash.gauge.rounding import bfloat16_copy, int4_copy
from kleash.gauge.scoring import Reading, TokenNumbers, compare, draw
from kleash.gauge.verdict import verdict
from kleash.gauge.vocabulary import shared_rows
from kleash.rewards.function import Reward

CHUNK_PROMPTS = 50
"""Prompts between two looks at the cache, and what an interrupt can lose."""
CORPUS_CHUNK = 16
NARROW_DTYPES = ("bfloat16", "float16")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and with how many sequences are drawn and scored, and are to be, in all."""


class Measurement:
    """Collects replies, token numbers and the scale of one pair, then says what they mean."""

    def __init__(
        self,
        reference: GaugedModel,
        tuned: GaugedModel,
        plan: Plan,
        settings: Settings,
        cache: Cache,
        progress: Progress | None,
        again: Remembering | None = None,
    ) -> None:
        """Measure `tuned` against `reference` on what `plan` renders.

        `again` is the reference where its replies will be scored for other models too.

        Raises:
            ModelError: a head with fewer rows than the tokenizer has tokens.
        """
        self._reference, self._tuned, self._plan, self._settings = reference, tuned, plan, settings
        self._again = again or reference
        self._progress, self._done, self._total = progress, 0, self._work()
        rows, note = shared_rows(plan.reference, reference.facts.vocabulary, tuned.facts.vocabulary)
        self._notes = [*plan.notes, *([note] if note else [])]
        self._reading = Reading(plan.tokenizer, rows, settings.temperature, settings.batch_size, cache)
        self._drawn: dict[DirectionName, Drawn] = {"reverse": Drawn([], [], []), "forward": Drawn([], [], [])}
        self._pieces: list[tuple[int, TokenNumbers]] = []
        self._scale: Scale | None = None
        self._partial = False

    def run(self) -> None:
        """Do the work; Ctrl-C ends it early.

        Raises:
            KeyboardInterrupt: before anything was finished.
        """
        try:
            for start in range(0, len(self._plan.prompts), CHUNK_PROMPTS):
                self._chunk("reverse", self._tuned, self._reference, start)
                self._chunk("forward", self._reference, self._again, start)
            self._corpus()
            if self._settings.scale and self._plan.prompts:
                self._scale = Scale(self._rounding("bfloat16", bfloat16_copy), self._rounding("4 bits", int4_copy))
        except KeyboardInterrupt:
            if not self._pieces and not any(drawn.prompts for drawn in self._drawn.values()):
                raise
            self._partial = True

    def result(self, rewards: Sequence[Reward], prompts: str) -> Gauge:
        """What was found; `prompts` says where they came from.

        Raises:
            DataError: a scoring function failed.
        """
        reverse, forward = self._direction("reverse"), self._direction("forward")
        corpus = None
        if self._pieces:
            corpus = directions.corpus([numbers for _, numbers in self._pieces], [text for text, _ in self._pieces])
        scored = []
        if reverse and forward:
            drawn = self._drawn
            scored = scores.measured(
                rewards, drawn["reverse"], drawn["forward"], self._plan.prompts, self._plan.tokenizer
            )
        return Gauge(
            reference=self._reference.facts,
            tuned=self._tuned.facts,
            reverse=reverse,
            forward=forward,
            corpus=corpus,
            scale=self._scale,
            scores=tuple(scored),
            settings=self._described(prompts),
            partial=self._partial,
            notes=(*self._notes, *self._cut_notes(reverse, forward)),
            verdict=verdict(reverse, forward, corpus, self._scale, scored, partial=self._partial),
        )

    def _chunk(
        self, name: DirectionName, author: GaugedModel, reference: GaugedModel | Remembering, start: int
    ) -> None:
        """Draw replies of one model to some prompts, and score them with both."""
        prompts = [prompt.token_ids for prompt in self._plan.prompts[start : start + CHUNK_PROMPTS]]
        samples = self._settings.samples
        stage = f"replies of {author.facts.name}"
        completions, numbers = self._replies(stage, author, (self._tuned, reference), prompts, start, samples)
        drawn = self._drawn[name]
        drawn.prompts.extend(start + index for index in range(len(prompts)) for _ in range(samples))
        drawn.completions.extend(completions)
        drawn.numbers.extend(numbers)

    def _replies(
        self,
        stage: str,
        author: GaugedModel,
        pair: tuple[GaugedModel, GaugedModel | Remembering],
        prompts: list[tuple[int, ...]],
        start: int,
        samples: int,
    ) -> tuple[list[Any], list[TokenNumbers]]:
        """Replies of `author`, and the token numbers of the pair (tuned, reference) a reply."""
        completions = draw(
            author,
            prompts,
            self._reading,
            samples=samples,
            max_length=self._settings.max_length,
            seed=int(np.random.SeedSequence([self._settings.seed, start]).generate_state(1)[0]),
            progress=lambda done: self._tell(stage, done),
        )
        responses = [completion.token_ids for completion in completions]
        repeated = [prompt for prompt in prompts for _ in range(samples)]
        numbers = compare(
            *pair,
            repeated,
            responses,
            self._reading,
            progress=lambda done: self._tell(stage, len(completions) + done),
        )
        self._done += 2 * len(completions)
        self._tell(stage, 0)
        return completions, numbers.split([len(response) for response in responses])

    def _corpus(self) -> None:
        """Score the given text, each piece from its second token on, at temperature 1."""
        reading = self._reading.at_temperature(1.0)
        pieces = [(index, piece) for index, text in enumerate(self._plan.texts) for piece in text]
        for start in range(0, len(pieces), CORPUS_CHUNK):
            part = pieces[start : start + CORPUS_CHUNK]
            heads, rests = [piece[:1] for _, piece in part], [piece[1:] for _, piece in part]
            numbers = compare(self._tuned, self._again, heads, rests, reading).split([len(rest) for rest in rests])
            self._pieces.extend((index, own) for (index, _), own in zip(part, numbers, strict=True))
            self._done += len(part)
            self._tell("given text", 0)

    def _rounding(self, kind: str, copy: Callable[[Any], nn.Module]) -> Estimate | None:
        """KL(rounded ‖ reference) per sequence, one reply a prompt; None where the dtype is as narrow already."""
        if kind == "bfloat16" and self._reference.facts.dtype in NARROW_DTYPES:
            self._notes.append(f"measured in {self._reference.facts.dtype}: bfloat16 rounding is part of both models")
            return None
        other = rounded(self._reference, kind, copy)
        kl: list[float] = []
        for start in range(0, len(self._plan.prompts), CHUNK_PROMPTS):
            prompts = [prompt.token_ids for prompt in self._plan.prompts[start : start + CHUNK_PROMPTS]]
            stage = f"scale: rounding to {kind}"
            _, numbers = self._replies(stage, other, (other, self._reference), prompts, start, 1)
            kl.extend(float(own.reverse_kl.sum()) for own in numbers)
        return statistics.mean(kl, np.arange(len(kl)))

    def _direction(self, name: DirectionName) -> Direction | None:
        drawn = self._drawn[name]
        if not drawn.prompts:
            return None
        author = self._tuned if name == "reverse" else self._reference
        return directions.direction(name, author.facts.name, drawn, self._plan.prompts, self._plan.tokenizer)

    def _cut_notes(self, *found: Direction | None) -> list[str]:
        return [
            f"{direction.cut_share:.0%} of the replies of {direction.sampled_from} were cut at "
            f"{self._settings.max_length} tokens: their KL counts up to there"
            for direction in found
            if direction and direction.cut_share > 0
        ]

    def _described(self, prompts: str) -> dict[str, Any]:
        return {
            **asdict(self._settings),
            "prompts": prompts,
            "prompt_count": len(self._plan.prompts),
            "dtype": self._reference.facts.dtype,
            "vocabulary_rows": self._reading.rows,
            "resamples": statistics.RESAMPLES,
            "level": statistics.LEVEL,
        }

    def _work(self) -> int:
        """Sequences to be drawn and sequences to be scored, scale included."""
        prompts = len(self._plan.prompts)
        roundings = sum(
            (self._settings.scale, self._settings.scale and self._reference.facts.dtype not in NARROW_DTYPES)
        )
        return 2 * prompts * (2 * self._settings.samples + roundings) + sum(len(text) for text in self._plan.texts)

    def _tell(self, stage: str, further: int) -> None:
        if self._progress is not None:
            self._progress(stage, min(self._done + further, self._total), self._total)
