"""The SFT job: demonstrations -> packed rows -> loss on the completions' tokens -> optimiser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from kleash.algorithms import sft
from kleash.config.schema import Demonstrations, RunConfig
from kleash.data.demonstrations import RenderedDemonstration, load_demonstrations, render_demonstrations
from kleash.data.packing import pack
from kleash.data.render import RenderedPrompt, render
from kleash.errors import DataError, RunStopped
from kleash.models.loading import load_policy, load_reference
from kleash.models.packed import PackedBatch, packed_hidden, side_by_side
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.models.tokenizer import Tokenizer
from kleash.ops.logprobs import linear_logprobs
from kleash.runs.records import Split
from kleash.training import offline, state
from kleash.training.evaluate import Bench, evaluate
from kleash.training.experience import Rewarder
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import NOTHING_BESIDE, Made, Progress
from kleash.training.observer import CheckResult, Observer
from kleash.training.on_policy import model_facts
from kleash.training.optimizer import Optimizer
from kleash.training.rewards import rewarder_of
from kleash.training.seeds import seed_for
from kleash.training.session import sampler_of, tokenizer_of
from kleash.training.statistics import Numbers

PACKING_LIMIT = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Largest difference of a token's log-probability, in nats, between a row of its own and a packed one."""

Texts = Sequence[RenderedDemonstration]


@dataclass(frozen=True)
class ImitationData:
    """Demonstrations as token ids: to train on, and held out, with the held-out ones' prompts to sample on."""

    train: Texts
    held_out: Texts
    prompts: Sequence[RenderedPrompt]


def load_data(
    settings: Demonstrations,
    tokenizer: Tokenizer,
    *,
    max_completion_length: int,
    seed: int,
    given: Given = NOTHING_GIVEN,
) -> ImitationData:
    """Read, split and render demonstrations.

    Raises:
        DataError: demonstrations that cannot be read or do not fit.
    """
    source = settings.path if given.demonstrations is None else given.demonstrations
    apart = settings.held_out_path if given.held_out is None else given.held_out
    rows = load_demonstrations(source, limit=settings.limit)
    if apart is not None:
        held_out = load_demonstrations(apart)
    else:
        if settings.held_out >= len(rows):
            raise DataError(
                f"demonstrations.held_out = {settings.held_out} leaves nothing to train on: '{settings.path}' has "
                f"{len(rows)} demonstrations. Hold out fewer"
            )
        order = np.random.default_rng(seed_for(seed, "held out")).permutation(len(rows))[: settings.held_out]
        aside = set(order.tolist())
        held_out = [row for i, row in enumerate(rows) if i in aside]
        rows = [row for i, row in enumerate(rows) if i not in aside]

    def rendered(chosen: list[Any]) -> Texts:
        stop = tokenizer.stop_ids[0] if settings.append_stop else None
        return render_demonstrations(
            chosen,
            tokenizer,
            stop_id=stop,
            max_length=settings.row_length,
            system_prompt=settings.system_prompt,
            as_chat=settings.as_chat,
        )

    asked = [row.prompt for row in held_out if row.prompt is not None]
    prompts = render(
        asked,
        tokenizer,
        max_completion_length=max_completion_length,
        system_prompt=settings.system_prompt,
        as_chat=settings.as_chat,
    )
    return ImitationData(rendered(rows), rendered(held_out), offline.distinct_prompts(prompts))


@dataclass(frozen=True)
class Prepared:
    """Demonstrations and measured rewards, before weights are read."""

    config: RunConfig
    settings: Demonstrations
    data: ImitationData
    rewarder: Rewarder
    given: Given

    def facts(self) -> Mapping[str, Any]:
        """Demonstrations by split."""
        return {"demonstrations": {"train": len(self.data.train), "held_out": len(self.data.held_out)}}

    def fingerprint(self) -> str:
        """SHA-256 of the demonstrations' tokens, in their order."""
        return offline.digest(
            [[(row.prompt_ids, row.completion_ids) for row in rows] for rows in (self.data.train, self.data.held_out)]
        )

    def build(self, accelerator: Accelerator) -> ImitationJob:
        """Read the weights."""
        config, given = self.config, self.given
        offline.check_share(config, accelerator, len(self.data.prompts))
        longest = max((len(prompt.token_ids) for prompt in self.data.prompts), default=1)
        context = max(self.settings.row_length, longest + config.rollout.max_completion_length)
        loaded = None if given.model is None else (given.model, given.tokenizer)
        policy = load_policy(
            config.model, context=context, seed=config.training.seed, device=accelerator.device, loaded=loaded
        )
        reference = load_reference(config.model, policy, context=context)
        return ImitationJob(config, self.settings, self.data, self.rewarder, policy, reference, accelerator)


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> Prepared:
    """Tokenizer, demonstrations and reward functions.

    Raises:
        KleashError: what cannot be read or used.
    """
    assert config.demonstrations is not None, "the checks of the settings see to it"
    rewarder = rewarder_of(config, given)
    tokenizer = tokenizer_of(config, given)
    data = load_data(
        config.demonstrations,
        tokenizer,
        max_completion_length=config.rollout.max_completion_length,
        seed=config.training.seed,
        given=given,
    )
    return Prepared(config, config.demonstrations, data, rewarder, given)


class ImitationJob:
    """One update a step on some demonstrations, packed into rows."""

    controller = None

    def __init__(
        self,
        config: RunConfig,
        settings: Demonstrations,
        data: ImitationData,
        rewarder: Rewarder,
        policy: Policy,
        reference: Reference,
        accelerator: Accelerator,
    ) -> None:
        """Train `policy` on `data`; its drift is measured from `reference`, where it started."""
        self.config, self.accelerator, self.midway = config, accelerator, False
        self.policy, self.reference, self.data, self._settings = policy, reference, data, settings
        self._optimizer = Optimizer(policy.trained(), config.training, accelerator)
        tokens = offline.tokens_per_batch(
            config, policy.causal_lm, policy.device, policy.dtype, settings.row_length, config.training.prompts_per_step
        )
        self._rows_per_batch = max(1, tokens // settings.row_length)
        self._bench = Bench(
            config=config,
            policy=policy,
            reference=reference,
            rewarder=rewarder,
            held_out=data.prompts,
            make_sampler=sampler_of(policy, config.rollout),
            accelerator=accelerator,
            sequences_per_batch=self._rows_per_batch,
        )

    def fingerprint(self) -> str:
        """SHA-256 of the weights that training starts from."""
        return self.reference.fingerprint()

    def facts(self, fingerprint: str) -> Mapping[str, Any]:
        """Who is trained, and from whom drift is measured."""
        return model_facts(self.policy, self.reference, fingerprint)

    def preflight(self, observer: Observer, fingerprint: str) -> None:
        """Do packed demonstrations stay apart?

        Raises:
            RunStopped: they do not, and the check is not in `skip_checks`.
        """
        observer.fact(f"policy     {self.policy.name}, {self.policy.dtype}, {self.policy.device}")
        observer.fact(f"reference  {self.reference.description}; fingerprint {fingerprint[:16]}")
        offline.tell_filtered(observer, "demonstrations to learn from", len(self.data.train), {})
        clock = offline.Clock.start()
        few = sorted(self.data.train, key=_length)[:2]
        with torch.no_grad():
            together = self._logprobs(side_by_side([_ids(row) for row in few], [list(range(len(few)))], self._pad))
            alone = self._logprobs(side_by_side([_ids(row) for row in few], [[i] for i in range(len(few))], self._pad))
        largest = float((together - alone).abs().max())
        passed = largest <= PACKING_LIMIT[self.policy.dtype]
        result = CheckResult(
            "packing",
            passed,
            f"a neighbour in its row moves a token by {largest:.2g} nats at most"
            + ("" if passed else ": this model lets packed demonstrations see each other"),
        )
        share = 3 * self.config.training.prompts_per_step / (2 * len(few))
        seconds = (offline.Clock.start().began - clock.began) * share
        trained = sum(p.numel() for _, p in self.policy.trained())
        offline.tell_cost(observer, self.config, len(self.data.train), seconds, trained)
        offline.report(observer, self.config, result)

    def evaluate(self, step: int, split: Split, progress: Progress) -> Made:
        """Loss on held-out demonstrations; reward and exact KL on their prompts, freshly sampled."""
        numbers = Numbers()
        if self.data.held_out:
            with torch.no_grad():
                totals, counts = self._loss(self.data.held_out, learn=False)
            numbers.ratio("loss/sft", totals, counts, 1)
            value = numbers.metrics["loss/sft"]
            assert value is not None
            numbers.metrics["text/perplexity"] = math.exp(value)
            numbers = numbers.behind("eval/")
        if not self.data.prompts:
            return Made(numbers)
        sampled, samples = evaluate(self._bench, step, split, lambda done, total: progress("held-out", done, total))
        return Made(numbers.beside(sampled), samples)

    def step(self, step: int, progress: Progress) -> Made:
        """One update on the step's demonstrations."""
        clock = offline.Clock.start()
        chosen = offline.rows_of_step(self.config, len(self.data.train), step, self.accelerator)
        rows = [self.data.train[i] for i in chosen]
        self._optimizer.zero()
        totals, counts = self._loss(rows, learn=True)
        if not np.isfinite(totals).all():
            bad = int(np.flatnonzero(~np.isfinite(totals))[0])
            raise RunStopped(
                f"step {step}: the loss is {totals[bad]} on the demonstration of {rows[bad].demonstration.where}. "
                "The weights are as they were before this update; lower the learning rate"
            )
        norm = self._optimizer.step(step)
        self.midway = True
        parts = offline.of_all(self.accelerator, (totals, counts))
        totals, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        numbers = Numbers()
        numbers.ratio("loss/sft", totals, counts, 1)
        clock.tokens = int(counts.sum())
        clock.account(numbers, self._optimizer, float(norm), step)
        return Made(numbers)

    def conclude(self) -> Mapping[str, Any]:
        """Nothing besides the numbers."""
        return {}

    def save(self, folder: Path, step: int, fingerprint: str, beside: Mapping[str, Any] = NOTHING_BESIDE) -> None:
        """Adapter or model, and the optimiser."""
        saved = {
            "step": step,
            "optimizer": self._optimizer.state_dict(),
            "reference_fingerprint": fingerprint,
            **beside,
        }
        state.save(folder, saved, lambda path: state.save_weights(self.policy, path))

    def restore(self, saved: Mapping[str, Any], fingerprint: str) -> int:
        """Put weights and optimiser back."""
        state.check_frozen(saved, fingerprint, "starting model", self.policy.name)
        self._optimizer.load_state_dict(saved["optimizer"])
        return int(saved["step"])

    @property
    def _pad(self) -> tuple[int, torch.device]:
        return self.policy.tokenizer.pad_id, self.policy.device

    def _loss(self, texts: Texts, *, learn: bool) -> tuple[Any, Any]:
        """Nats and tokens of each demonstration `[n]`, in their order; with `learn`, gradients of the mean too."""
        count = sum(len(text.completion_ids) for text in texts)
        count = count if self.accelerator.num_processes == 1 else self._sum(count)
        rows = pack([_length(text) for text in texts], self._settings.row_length)
        totals = np.zeros(len(texts))
        for start in range(0, len(rows), self._rows_per_batch):
            chosen = rows[start : start + self._rows_per_batch]
            logprobs = self._logprobs(side_by_side([_ids(text) for text in texts], chosen, self._pad))
            found = sft.loss(logprobs, torch.ones_like(logprobs, dtype=torch.bool))
            if learn:
                (found.total / count).backward()  # type: ignore[no-untyped-call]
            order = [i for row in chosen for i in row]
            sizes = [len(texts[i].completion_ids) for i in order]
            for i, part in zip(order, torch.split(logprobs.detach(), sizes), strict=True):
                totals[i] = -float(part.sum())
        return totals, np.array([len(text.completion_ids) for text in texts], dtype=np.float64)

    def _logprobs(self, batch: PackedBatch) -> Tensor:
        """Of every completion token, document by document."""
        return linear_logprobs(packed_hidden(self.policy.causal_lm, batch), self.policy.head, batch.targets)

    def _sum(self, value: int) -> int:
        total = torch.tensor(float(value), device=self.policy.device)
        return int(self.accelerator.reduce(total, reduction="sum"))


def _ids(text: RenderedDemonstration) -> tuple[Sequence[int], Sequence[int]]:
    return text.prompt_ids, text.completion_ids


def _length(text: RenderedDemonstration) -> int:
    return len(text.prompt_ids) + len(text.completion_ids)
