"""The DPO job: comparisons -> log-ratios of both sides to the reference -> preference loss -> optimiser.

The reference's log-probabilities do not change, so they are computed once and kept by fingerprint. Drift is measured as
everywhere: exact KL on completions that the policy samples on held-out prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from kleash.algorithms import dpo
from kleash.config.algorithms import Dpo
from kleash.config.schema import Comparisons, RunConfig
from kleash.data.comparisons import load_comparisons, split_comparisons
from kleash.data.completions import RenderedComparison, render_comparisons
from kleash.data.render import check_length
from kleash.errors import RunStopped
from kleash.gauge.cache import Cache
from kleash.models.batch import TokenBatch, collate
from kleash.models.demo_model import cache_dir
from kleash.models.loading import load_policy, load_reference
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.models.tokenizer import Tokenizer
from kleash.ops.logprobs import linear_logprobs
from kleash.ops.masks import to_rows
from kleash.runs.records import Split
from kleash.training import offline, state
from kleash.training.evaluate import Bench, evaluate
from kleash.training.experience import Rewarder
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import NOTHING_BESIDE, Made, Progress, quiet
from kleash.training.objective import preference_loss
from kleash.training.observer import CheckResult, Observer
from kleash.training.on_policy import model_facts
from kleash.training.optimizer import Optimizer
from kleash.training.rewards import rewarder_of
from kleash.training.session import sampler_of, tokenizer_of
from kleash.training.statistics import Numbers

START_LIMIT = {torch.float32: 1e-2, torch.bfloat16: 2.0}
"""Nats per sequence that policy and reference may differ before any update, from batches that are cut differently."""

Pairs = Sequence[RenderedComparison]


@dataclass(frozen=True)
class PreferenceData:
    """Comparisons as token ids: to train on, and held out; and why others were left out."""

    train: Pairs
    held_out: Pairs
    filtered: Mapping[str, int] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its longer side."""
        return max(offline.pair_length(row) for row in [*self.train, *self.held_out])

    def facts(self) -> Mapping[str, Any]:
        """Comparisons by split."""
        return {"comparisons": {"train": len(self.train), "held_out": len(self.held_out), "filtered": self.filtered}}

    def fingerprint(self) -> str:
        """SHA-256 of the comparisons' tokens, in their order."""
        return offline.digest([[_tokens(row) for row in rows] for rows in (self.train, self.held_out)])


def load_data(
    settings: Comparisons, tokenizer: Tokenizer, *, seed: int, given: Given = NOTHING_GIVEN
) -> PreferenceData:
    """Read, split and render comparisons with the tokenizer of the model that reads them.

    Raises:
        DataError: comparisons that cannot be read or do not fit, or none left.
    """
    source = settings.path if given.comparisons is None else given.comparisons
    apart = settings.held_out_path if given.held_out is None else given.held_out
    read = load_comparisons(source, limit=settings.limit)
    filtered = Counter(read.filtered)
    if apart is not None:
        other = load_comparisons(apart)
        train, held_out = read.rows, other.rows
        filtered.update(other.filtered)
    elif settings.held_out == 0:
        train, held_out = read.rows, []
    else:
        train, held_out = split_comparisons(read.rows, settings.held_out, seed)
    rendered = []
    for rows in (train, held_out):
        found = (
            render_comparisons(
                rows,
                tokenizer,
                stop_id=tokenizer.stop_ids[0] if settings.append_stop else None,
                max_completion_length=settings.max_completion_length,
                system_prompt=settings.system_prompt,
                as_chat=settings.as_chat,
            )
            if rows
            else None
        )
        rendered.append([] if found is None else found.rows)
        filtered.update({} if found is None else found.filtered)
    return PreferenceData(rendered[0], rendered[1], filtered)


@dataclass(frozen=True)
class Prepared:
    """Comparisons and measured rewards, before weights are read."""

    config: RunConfig
    data: PreferenceData
    rewarder: Rewarder
    given: Given

    def facts(self) -> Mapping[str, Any]:
        """Comparisons by split."""
        return self.data.facts()

    def fingerprint(self) -> str:
        """SHA-256 of the comparisons' tokens."""
        return self.data.fingerprint()

    def build(self, accelerator: Accelerator) -> PreferenceJob:
        """Read the weights."""
        config, given = self.config, self.given
        prompts = offline.distinct_prompts([row.prompt for row in self.data.held_out])
        offline.check_share(config, accelerator, len(prompts))
        asked = max(len(row.prompt.token_ids) for row in [*self.data.train, *self.data.held_out])
        context = max(self.data.longest, asked + config.rollout.max_completion_length)
        loaded = None if given.model is None else (given.model, given.tokenizer)
        policy = load_policy(
            config.model, context=context, seed=config.training.seed, device=accelerator.device, loaded=loaded
        )
        reference = load_reference(config.model, policy, context=context)
        return PreferenceJob(config, self.data, self.rewarder, policy, reference, accelerator)


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> Prepared:
    """Tokenizer, comparisons and reward functions.

    Raises:
        KleashError: what cannot be read or used.
    """
    assert config.comparisons is not None, "the checks of the settings see to it"
    rewarder = rewarder_of(config, given)
    tokenizer = tokenizer_of(config, given)
    data = load_data(config.comparisons, tokenizer, seed=config.training.seed, given=given)
    _check_room(data, tokenizer, config)
    return Prepared(config, data, rewarder, given)


def _check_room(data: PreferenceData, tokenizer: Tokenizer, config: RunConfig) -> None:
    """See that the held-out prompts that will be sampled on leave room for a sample.

    Raises:
        DataError: one does not.
    """
    length = config.rollout.max_completion_length
    for prompt in offline.distinct_prompts([row.prompt for row in data.held_out]):
        check_length(prompt.prompt, len(prompt.token_ids), length, tokenizer)


class PreferenceJob:
    """One update a step on some comparisons."""

    controller = None

    def __init__(
        self,
        config: RunConfig,
        data: PreferenceData,
        rewarder: Rewarder,
        policy: Policy,
        reference: Reference,
        accelerator: Accelerator,
    ) -> None:
        """Train `policy` against `reference` on the comparisons of `data`."""
        assert isinstance(config.algorithm, Dpo)
        self.config, self.accelerator, self.midway = config, accelerator, False
        self.policy, self.reference, self.data = policy, reference, data
        self._settings = config.algorithm
        self._loss: Callable[[Tensor], Tensor] = preference_loss(config.algorithm)
        self._optimizer = Optimizer(policy.trained(), config.training, accelerator)
        share = -(-config.training.prompts_per_step // accelerator.num_processes)
        self._tokens_per_batch = offline.tokens_per_batch(
            config, policy.causal_lm, policy.device, policy.dtype, data.longest, 2 * share
        )
        self._reference_logprobs: dict[str, NDArray[np.float64]] = {}
        self._bench = Bench(
            config=config,
            policy=policy,
            reference=reference,
            rewarder=rewarder,
            held_out=offline.distinct_prompts([row.prompt for row in data.held_out]),
            make_sampler=sampler_of(policy, config.rollout),
            accelerator=accelerator,
            sequences_per_batch=max(1, self._tokens_per_batch // data.longest),
        )

    def fingerprint(self) -> str:
        """SHA-256 of the reference."""
        return self.reference.fingerprint()

    def facts(self, fingerprint: str) -> Mapping[str, Any]:
        """Who is trained, and from whom drift is measured."""
        return model_facts(self.policy, self.reference, fingerprint)

    def preflight(self, observer: Observer, fingerprint: str) -> None:
        """Read both splits with the reference, and see that the policy starts there.

        Raises:
            RunStopped: it does not, and the check is not in `skip_checks`.
        """
        observer.fact(f"policy     {self.policy.name}, {self.policy.dtype}, {self.policy.device}")
        observer.fact(f"reference  {self.reference.description}; fingerprint {fingerprint[:16]}")
        offline.tell_filtered(observer, "comparisons to learn from", len(self.data.train), self.data.filtered)
        self.read_with_reference(fingerprint, observer.progress)
        clock = offline.Clock.start()
        few = list(range(min(8, len(self.data.train))))
        with torch.no_grad():
            start = self._measure(self.data.train, few, self._reference_logprobs["train"])
        seconds = 3 * (offline.Clock.start().began - clock.began) / len(few) * self.config.training.prompts_per_step
        largest = max(float(np.abs(start[side]).max()) for side in ("chosen_drift", "rejected_drift"))
        passed = self.config.model.reference is not None or largest <= START_LIMIT[self.policy.dtype]
        result = CheckResult(
            "starts_at_reference",
            passed,
            f"before any update policy and reference differ by {largest:.2g} nats per sequence at most"
            + ("" if passed else ": another adapter, dtype or template"),
        )
        trained = sum(p.numel() for _, p in self.policy.trained())
        offline.tell_cost(observer, self.config, len(self.data.train), seconds, trained)
        offline.report(observer, self.config, result)

    def read_with_reference(self, fingerprint: str, progress: Progress = quiet) -> None:
        """Log-probability of both sides of every comparison under the reference, `[n, 2]`, computed once and kept."""
        cache = Cache(cache_dir() / "reference_logprobs")
        for split, rows in (("train", self.data.train), ("held_out", self.data.held_out)):
            key = {"reference": fingerprint, "rows": offline.digest([_tokens(row) for row in rows])}
            stored = cache.get(**key, dtype=str(self.policy.dtype))
            if stored is None:
                values = self._read(rows, lambda done, total: progress("reading with the reference", done, total))
                stored = {"logprobs": values}
                if self.accelerator.is_main_process:
                    cache.put(stored, **key, dtype=str(self.policy.dtype))
            self._reference_logprobs[split] = stored["logprobs"]

    def evaluate(self, step: int, split: Split, progress: Progress) -> Made:
        """Loss and accuracy on held-out comparisons; reward and exact KL on their prompts, freshly sampled."""
        held_out = self.data.held_out
        if not held_out:
            return Made()
        with torch.no_grad():
            found = self._measure(held_out, list(range(len(held_out))), self._reference_logprobs["held_out"])
        numbers = self._numbers(found, [row.prompt.text for row in held_out]).behind("eval/")
        sampled, samples = evaluate(self._bench, step, split, lambda done, total: progress("held-out", done, total))
        return Made(numbers.beside(sampled), samples)

    def step(self, step: int, progress: Progress) -> Made:
        """One update on the step's comparisons."""
        clock = offline.Clock.start()
        chosen = offline.rows_of_step(self.config, len(self.data.train), step, self.accelerator)
        self._optimizer.zero()
        found = self._measure(self.data.train, chosen, self._reference_logprobs["train"], learn=True)
        bad = next((i for i, value in enumerate(found["loss"]) if not np.isfinite(value)), None)
        if bad is not None:
            row = self.data.train[chosen[bad]]
            raise RunStopped(
                f"step {step}: the loss is {found['loss'][bad]} on the comparison of {row.comparison.where}. "
                "The weights are as they were before this update; lower the learning rate"
            )
        norm = self._optimizer.step(step)
        self.midway = True
        clock.tokens = sum(offline.pair_size(self.data.train[i]) for i in chosen)
        parts = offline.of_all(self.accelerator, (found, [self.data.train[i].prompt.text for i in chosen]))
        everywhere = {name: np.concatenate([part[name] for part, _ in parts]) for name in found}
        numbers = self._numbers(everywhere, [prompt for _, prompts in parts for prompt in prompts])
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
        """Put weights and optimiser back, and read what the reference said."""
        state.check_frozen(saved, fingerprint, "reference", self.policy.name)
        self._optimizer.load_state_dict(saved["optimizer"])
        self.read_with_reference(fingerprint)
        return int(saved["step"])

    def _measure(
        self, rows: Pairs, chosen: Sequence[int], reference: NDArray[np.float64], learn: bool = False
    ) -> dict[str, NDArray[np.float64]]:
        """Loss, margin and drift of the chosen comparisons `[n]` each, in their order; with `learn`, gradients too."""
        total = len(chosen) * self.accelerator.num_processes
        parts: dict[int, Tensor] = {}
        for batch in offline.cut(chosen, [offline.pair_size(row) for row in rows], self._tokens_per_batch):
            logprobs = self._logprobs([rows[i] for i in batch], self.policy.hidden, self.policy.head)
            known = torch.tensor(reference[batch], dtype=logprobs.dtype, device=logprobs.device)
            margins = dpo.margins(logprobs[:, 0], logprobs[:, 1], known[:, 0], known[:, 1])
            tied = torch.tensor([rows[i].comparison.strength == 0 for i in batch], device=margins.device)
            loss = dpo.loss(margins, tied, self._loss)
            if learn:
                (loss.sum() / total).backward()
            drift = logprobs - known
            columns = [loss, margins, tied.to(loss.dtype), *logprobs.T, *drift.T]
            stacked = torch.stack(columns, dim=1).detach().cpu().double()
            parts |= dict(zip(batch, stacked, strict=True))
        names = ("loss", "margin", "tied", "chosen_logprob", "rejected_logprob", "chosen_drift", "rejected_drift")
        by_name = torch.stack([parts[i] for i in chosen], dim=1).numpy()
        return dict(zip(names, by_name, strict=True))

    def _numbers(self, found: Mapping[str, NDArray[np.float64]], prompts: Sequence[str]) -> Numbers:
        numbers = Numbers()
        offline.by_prompt(numbers, "loss/preference", found["loss"], prompts)
        decided = found["tied"] == 0
        if decided.any():
            margin = found["margin"][decided]
            asked = [prompt for prompt, counts in zip(prompts, decided, strict=True) if counts]
            offline.by_prompt(numbers, "preference/accuracy", np.where(margin == 0, 0.5, margin > 0), asked)
            offline.by_prompt(numbers, "preference/margin", self._settings.beta * margin, asked)
        for key in ("chosen_logprob", "rejected_logprob", "chosen_drift", "rejected_drift"):
            offline.by_prompt(numbers, f"preference/{key}", found[key], prompts)
        return numbers

    @torch.no_grad()
    def _read(self, rows: Pairs, progress: Callable[[int, int], None]) -> NDArray[np.float64]:
        """The reference's log-probabilities `[n, 2]`, nats per sequence."""
        values = np.zeros((len(rows), 2))
        done = 0
        for batch in offline.cut(range(len(rows)), [offline.pair_size(row) for row in rows], self._tokens_per_batch):
            found = self._logprobs([rows[i] for i in batch], self.reference.hidden, self.reference.head)
            values[batch] = found.cpu().double().numpy()
            done += len(batch)
            progress(done, len(rows))
        return values

    def _logprobs(self, rows: Pairs, hidden: Callable[[TokenBatch], Tensor], head: Tensor) -> Float[Tensor, "b 2"]:
        """Log-probability of chosen and rejected, nats per sequence."""
        prompts = [row.prompt.token_ids for row in rows for _ in range(2)]
        sides = [side for row in rows for side in (row.chosen_ids, row.rejected_ids)]
        batch = collate(prompts, sides, pad=self.policy.tokenizer.pad_id, device=self.policy.device)
        tokens = linear_logprobs(hidden(batch), head, batch.targets)
        return to_rows(tokens, batch.response_mask).sum(dim=1).view(-1, 2)


def _tokens(row: RenderedComparison) -> list[Sequence[int]]:
    return [row.prompt.token_ids, row.chosen_ids, row.rejected_ids]
