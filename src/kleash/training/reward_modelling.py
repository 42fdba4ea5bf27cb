"""The reward-model job: comparisons -> scores of both sides -> Bradley-Terry loss -> optimiser, for each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor

from kleash.algorithms import reward_model
from kleash.config.algorithms import RewardModel
from kleash.config.schema import Comparisons, RunConfig
from kleash.data.completions import RenderedComparison
from kleash.errors import ConfigError, RunStopped
from kleash.models import demo_model
from kleash.models.batch import TokenBatch, collate
from kleash.models.names import load_tokenizer
from kleash.models.saved_reward import Rendering
from kleash.models.scalar_loading import load_scalar_model
from kleash.models.scalar_model import ScalarModel
from kleash.runs.records import Split
from kleash.training import offline, reward_health, state
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import NOTHING_BESIDE, Made, Progress, quiet
from kleash.training.observer import CheckResult, Observer
from kleash.training.optimizer import Optimizer
from kleash.training.preference import PreferenceData, load_data
from kleash.training.statistics import Numbers

PADDING_LIMIT = {torch.float32: 1e-4, torch.bfloat16: 0.3}
"""Largest difference of a score between a row of its own and one that is padded to a longer."""
ORIGIN_ROWS = 64
"""Comparisons whose mean score is a member's origin."""
CHOSEN, REJECTED = 0, 1
Pairs = Sequence[RenderedComparison]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Prepared:
    """Comparisons, before weights are read."""

    config: RunConfig
    settings: Comparisons
    data: PreferenceData

    def facts(self) -> Mapping[str, Any]:
        """Comparisons by split."""
        return self.data.facts()

    def fingerprint(self) -> str:
        """SHA-256 of the comparisons' tokens."""
        return self.data.fingerprint()

    def build(self, accelerator: Accelerator) -> RewardModelJob:
        """Read the weights."""
        offline.check_share(self.config, accelerator)
        assert isinstance(self.config.algorithm, RewardModel)
        model = load_scalar_model(
            self.config.model,
            members=self.config.algorithm.members,
            seed=self.config.training.seed,
            context=self.data.longest,
            device=accelerator.device,
        )
        return RewardModelJob(self.config, self.settings, self.data, model, accelerator)


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> Prepared:
    """Tokenizer and comparisons.

    Raises:
        KleashError: what cannot be read or used.
    """
    assert config.comparisons is not None, "the checks of the settings see to it"
    if given.model is not None:
        raise ConfigError(
            f"model is a loaded {type(given.model).__name__}, and a reward model, which has another head, is made "
            "from a checkpoint. Save the model, and give the folder"
        )
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    data = load_data(config.comparisons, tokenizer, seed=config.training.seed, given=given)
    return Prepared(config, config.comparisons, data)


class RewardModelJob:
    """One update a step: each member on comparisons of its own order."""

    controller = None

    def __init__(
        self,
        config: RunConfig,
        settings: Comparisons,
        data: PreferenceData,
        model: ScalarModel,
        accelerator: Accelerator,
    ) -> None:
        """Train `model` on the comparisons of `data`."""
        assert isinstance(config.algorithm, RewardModel)
        self.config, self.accelerator, self.midway = config, accelerator, False
        self.model, self.data, self._settings = model, data, config.algorithm
        self.rendering = Rendering(settings.append_stop, settings.as_chat, settings.system_prompt)
        self._optimizers = [
            Optimizer(model.trained_by(member), config.training, accelerator) for member in range(model.num_members)
        ]
        """One a member, so that none is scaled down for another's gradient."""
        share = -(-config.training.prompts_per_step // accelerator.num_processes)
        self._last_scores: Scores | None = None
        """Of the held-out comparisons, at the last evaluation: the health report is made of the last."""
        self._tokens_per_batch = offline.tokens_per_batch(
            config, model.model, model.device, model.dtype, data.longest, 2 * share
        )

    def fingerprint(self) -> str:
        """SHA-256 of the frozen base."""
        return self.model.fingerprint()

    def facts(self, fingerprint: str) -> Mapping[str, Any]:
        """Who is trained."""
        return {
            "weights_source": demo_model.describe(self.model.name),
            "device": str(self.model.device),
            "dtype": str(self.model.dtype),
            "reference": None,
            "reference_fingerprint": fingerprint,
        }

    def preflight(self, observer: Observer, fingerprint: str) -> None:
        """Is a score that of its own text alone?

        Raises:
            RunStopped: it is not, and the check is not in `skip_checks`.
        """
        model = self.model
        observer.fact(f"model      {model.name}, {model.dtype}, {model.device}; {model.num_members} to train")
        offline.tell_filtered(observer, "comparisons to learn from", len(self.data.train), self.data.filtered)
        ends = sorted(self.data.train, key=offline.pair_length)
        few = [ends[0], ends[-1]]
        clock = offline.Clock.start()
        with torch.no_grad():
            together = self._read(few, 0)
            alone = torch.cat([self._read([row], 0) for row in few])
        largest = float((together - alone).abs().max())
        passed = largest <= PADDING_LIMIT[model.dtype]
        result = CheckResult(
            "padding",
            passed,
            f"padding moves a score by {largest:.2g} at most"
            + ("" if passed else ": this model does not mask padding"),
        )
        share = 3 * self.config.training.prompts_per_step / (2 * len(few))
        seconds = (offline.Clock.start().began - clock.began) * share * model.num_members
        trained = sum(p.numel() for _, p in model.trained())
        offline.tell_cost(observer, self.config, len(self.data.train), seconds, trained)
        offline.report(observer, self.config, result)

    def evaluate(self, step: int, split: Split, progress: Progress) -> Made:
        """Loss and accuracy of the members' mean score on held-out comparisons."""
        if not self.data.held_out:
            return Made()
        scores = self.scores(self.data.held_out, progress)
        self._last_scores = scores
        numbers = self._numbers(scores, self.data.held_out)
        if self.model.num_members > 1:
            numbers.metrics["preference/agreement"] = reward_health.agreement(scores)
        return Made(numbers.behind("eval/"))

    def step(self, step: int, progress: Progress) -> Made:
        """One update of all members."""
        clock = offline.Clock.start()
        found: list[Scores] = []
        for member in range(self.model.num_members):
            purpose = ("member", str(member)) if member else ()
            chosen = offline.rows_of_step(self.config, len(self.data.train), step, self.accelerator, *purpose)
            rows = [self.data.train[i] for i in chosen]
            if self._settings.ties == "leave_out":
                rows = [row for row in rows if row.comparison.strength != 0]
            self._optimizers[member].zero()
            scores = self._learn(rows, member)
            self._check_finite(scores, rows, step)
            found.append(scores)
            clock.tokens += sum(offline.pair_size(row) for row in rows)
            if member == 0:
                first = rows
        norms = []
        for optimizer in self._optimizers:
            norms.append(float(optimizer.step(step)))
            self.midway = True
        parts = offline.of_all(self.accelerator, (found[0], first))
        numbers = self._numbers(
            np.concatenate([scores for scores, _ in parts])[None], [row for _, rows in parts for row in rows]
        )
        clock.account(numbers, self._optimizers[0], sum(norms) / len(norms), step)
        return Made(numbers)

    def conclude(self) -> Mapping[str, Any]:
        """The health report on the held-out comparisons."""
        if not self.data.held_out:
            return {}
        scores = self.scores(self.data.held_out, quiet) if self._last_scores is None else self._last_scores
        return {"reward_health": reward_health.report(self, scores)}

    def save(self, folder: Path, step: int, fingerprint: str, beside: Mapping[str, Any] = NOTHING_BESIDE) -> None:
        """The members as Hugging Face loads them, and the optimiser."""
        saved = {
            "step": step,
            "optimizers": {f"member_{i}": optimizer.state_dict() for i, optimizer in enumerate(self._optimizers)},
            "reference_fingerprint": fingerprint,
            **beside,
        }
        origins = self._origins() if self.model.num_members > 1 else None
        state.save(folder, saved, lambda path: self.model.save(path, self.rendering, origins))

    def restore(self, saved: Mapping[str, Any], fingerprint: str) -> int:
        """Put weights and optimiser back."""
        state.check_frozen(saved, fingerprint, "base", self.model.name)
        for i, optimizer in enumerate(self._optimizers):
            optimizer.load_state_dict(saved["optimizers"][f"member_{i}"])
        return int(saved["step"])

    def _origins(self) -> list[float]:
        """Each member's mean score over the first comparisons, held-out ones if there are any."""
        rows = (self.data.held_out or self.data.train)[:ORIGIN_ROWS]
        return [float(mean) for mean in self.scores(rows, quiet).mean(axis=(1, 2))]

    def scores(self, rows: Pairs, progress: Progress) -> Scores:
        """Scores `[members, n, 2]` of chosen and rejected."""
        prompts = [row.prompt.token_ids for row in rows for _ in range(2)]
        sides = [side for row in rows for side in (row.chosen_ids, row.rejected_ids)]
        return self.scores_of(prompts, sides, progress).reshape(self.model.num_members, len(rows), 2)

    @torch.no_grad()
    def scores_of(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], progress: Progress = quiet
    ) -> Scores:
        """Scores `[members, n]` of answers to prompts."""
        lengths = [len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)]
        scores = np.zeros((self.model.num_members, len(answers)))
        done = 0
        for batch in offline.cut(range(len(answers)), lengths, self._tokens_per_batch):
            tokens = self._batch([prompts[i] for i in batch], [answers[i] for i in batch])
            for member in range(self.model.num_members):
                scores[member, batch] = self.model.scores(tokens, member).cpu().double().numpy()
            done += len(batch)
            progress("held-out", done, len(answers))
        return scores

    def _learn(self, rows: Pairs, member: int) -> Scores:
        """Add a member's gradients; returns its scores `[n, 2]` before the update."""
        settings, total = self._settings, max(1, sum(offline.of_all(self.accelerator, len(rows))))
        scores = np.zeros((len(rows), 2))
        for batch in offline.cut(range(len(rows)), [offline.pair_size(row) for row in rows], self._tokens_per_batch):
            part = [rows[i] for i in batch]
            with self.model.active(member):
                found = self._read(part, member)
                loss = self._loss(found, part)
                if settings.center > 0:
                    loss = loss + settings.center * reward_model.centering(found[:, CHOSEN], found[:, REJECTED])
                (loss.sum() / total).backward()  # type: ignore[no-untyped-call]
            scores[batch] = found.detach().cpu().double().numpy()
        return scores

    def _loss(self, scores: Tensor, rows: Pairs) -> Tensor:
        """Bradley-Terry, one value a comparison."""
        said = [row.comparison.strength for row in rows]
        strength = torch.tensor([value or 0.0 for value in said], dtype=scores.dtype, device=scores.device)
        tied = torch.tensor([value == 0 for value in said], device=scores.device, dtype=torch.bool)
        return reward_model.loss(
            scores[:, CHOSEN],
            scores[:, REJECTED],
            strength,
            tied,
            margin_per_strength=self._settings.margin,
            label_smoothing=self._settings.label_smoothing,
        )

    def _read(self, rows: Pairs, member: int) -> Tensor:
        """Scores `[n, 2]` of chosen and rejected."""
        prompts = [row.prompt.token_ids for row in rows for _ in range(2)]
        sides = [side for row in rows for side in (row.chosen_ids, row.rejected_ids)]
        return self.model.scores(self._batch(prompts, sides), member).view(-1, 2)

    def _batch(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> TokenBatch:
        return collate(prompts, answers, pad=self.model.tokenizer.pad_id, device=self.model.device)

    def _numbers(self, scores: Scores, rows: Pairs) -> Numbers:
        """Of scores `[members, n, 2]`: loss, accuracy and margin of the members' mean; ties count neither way."""
        if not rows:
            return Numbers()
        mean = scores.mean(axis=0)
        loss = self._loss(torch.tensor(mean), rows).numpy()
        margin = mean[:, CHOSEN] - mean[:, REJECTED]
        accuracy = np.where(margin == 0, 0.5, margin > 0)
        decided = np.array([row.comparison.strength != 0 for row in rows])
        prompts = np.array([row.prompt.text for row in rows])
        counted = decided if self._settings.ties == "leave_out" else np.ones_like(decided)
        numbers = Numbers()
        if counted.any():
            offline.by_prompt(numbers, "loss/preference", loss[counted], list(prompts[counted]))
        if decided.any():
            offline.by_prompt(numbers, "preference/accuracy", accuracy[decided], list(prompts[decided]))
            offline.by_prompt(numbers, "preference/margin", margin[decided], list(prompts[decided]))
        offline.by_prompt(numbers, "preference/chosen_score", mean[:, CHOSEN], list(prompts))
        offline.by_prompt(numbers, "preference/rejected_score", mean[:, REJECTED], list(prompts))
        return numbers

    def _check_finite(self, scores: Scores, rows: Pairs, step: int) -> None:
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
        if len(bad):
            raise RunStopped(
                f"step {step}: the scores of the comparison of {rows[bad[0]].comparison.where} are {scores[bad[0]]}. "
                "The weights are as they were before this update; lower the learning rate"
            )
