"""A finished run at other lengths of its leash: reward and KL over the scale of its adapter, on held-out prompts.

    checkpoint -> policy and reference -> for each scale: turn the adapter -> sample -> rewards -> exact KL

The KL is measured from where the run started, at the run's temperature and length limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kleash.config.schema import Reward, RunConfig
from kleash.data.prompts import load_prompts
from kleash.data.render import RenderedPrompt, render
from kleash.errors import DataError, KleashError, ModelError
from kleash.gauge.dial_search import Dial, Point, Searched, climb, ladder, search
from kleash.gauge.records import Estimate
from kleash.gauge.statistics import estimate, mean
from kleash.models.loading import load_policy, load_reference
from kleash.models.names import load_tokenizer
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.models.scaled_adapter import ScaledAdapter
from kleash.models.tokenizer import Tokenizer
from kleash.report.wording import with_interval
from kleash.rollout.decoding import DecodingSampler
from kleash.training import imitation, preference, session, state
from kleash.training.compare import checkpoint_of
from kleash.training.experience import Experience, Floats, Rewarder, gather, unrewarded
from kleash.training.given import NOTHING_GIVEN
from kleash.training.memory import groups_per_batch
from kleash.training.opponent import reference_texts
from kleash.training.rewards import rewarder_of
from kleash.training.scoring import TokenRecord, measure
from kleash.training.seeds import seed_for
from kleash.training.statistics import per_sequence

LEAST_PROMPTS = 8
"""Held-out prompts: an interval over fewer hardly means anything."""
MOST_PROMPTS, MOST_SEARCHED = 256, 32
REPLIES, REPLIES_SEARCHED = 128, 64
"""Replies at each scale, at least: few prompts get several."""

Progress = Callable[[str, int, int], None]
"""Told of a phase, and how much of it is done."""


@dataclass(frozen=True)
class DialPrompts:
    """Prompts to measure on, and others to search on; and where they are from, in words."""

    held_out: Sequence[RenderedPrompt]
    search: Sequence[RenderedPrompt]
    origin: str

    @property
    def longest(self) -> int:
        """Tokens of the longest."""
        return max(len(prompt.token_ids) for prompt in [*self.held_out, *self.search])


def check_dial(run_dir: Path, config: RunConfig) -> None:
    """Refuse a run that is no family: before anything is read.

    Raises:
        ModelError: it has no adapter, writes no text, or is measured from a model that it did not start from.
    """
    if config.algorithm.type == "reward_model":
        raise ModelError(f"{run_dir} is a reward model: it writes no text, so that it has no KL to hold")
    if config.model.lora is False and config.model.adapter is None:
        raise ModelError(
            f"{run_dir} trained whole weights: there is no adapter to scale. Train with an adapter (model.lora), or "
            "hold the KL while training with algorithm.kl.target_nats_per_sequence"
        )
    if config.model.reference is not None:
        raise ModelError(
            f"{run_dir} is measured from model.reference = {config.model.reference!r}, and scaling the adapter leads "
            "back to the model that training started from, another one. A run without model.reference can be scaled"
        )


def dial_prompts(run_dir: Path, config: RunConfig, tokenizer: Tokenizer, path: str | None) -> DialPrompts:
    """The run's held-out prompts, with its training prompts to search on; or the halves of another file.

    Args:
        run_dir: for messages.
        config: of the run.
        tokenizer: of its model.
        path: a file of prompts in place of the run's.

    Raises:
        DataError: prompts that cannot be read, or too few.
    """
    seed = config.training.seed
    if path is not None:
        found = _distinct(_from_file(config, tokenizer, path))
        _enough(found, 2 * LEAST_PROMPTS, f"--prompts {path}", "half of them search, half of them are held out")
        random.Random(seed_for(seed, "dial", "halves")).shuffle(found)
        half = len(found) // 2
        return DialPrompts(found[half:][:MOST_PROMPTS], found[:half][:MOST_SEARCHED], path)
    held_out, train = map(_distinct, _of_run(config, tokenizer))
    _enough(held_out, LEAST_PROMPTS, f"{run_dir} held out", "an interval needs them")
    if not train:
        half = len(held_out) // 2
        _enough(held_out, 2 * LEAST_PROMPTS, f"{run_dir} held out", "half of them search")
        train, held_out = held_out[:half], held_out[half:]
    return DialPrompts(held_out[:MOST_PROMPTS], train[:MOST_SEARCHED], "held out of the run")


class DialledRun:
    """A checkpoint in memory, at any scale of its adapter."""

    def __init__(
        self, config: RunConfig, folder: Path, prompts: DialPrompts, progress: Progress, *, merged: bool
    ) -> None:
        """Load the weights of a checkpoint that `check_dial` let through.

        Args:
            config: of the run.
            folder: of the checkpoint.
            prompts: what it will be measured on.
            progress: told of each scale.
            merged: measure base + adapter rounded to the compute dtype, as a merged export is.

        Raises:
            RunDirError: the reference is no longer what the run started from, or there is no checkpoint to read.
            ModelError: weights that cannot be read.
        """
        self.config, self.prompts, self.merged, self._progress = config, prompts, merged, progress
        context = prompts.longest + config.rollout.max_completion_length
        still = config.model.model_copy(update={"reference_ema": None, "reference_reset_every": None})
        saved = state.read(folder)
        self.policy = load_policy(still, context=context, seed=config.training.seed)
        self.reference: Reference = load_reference(still, self.policy, context=context)
        state.check_frozen(saved, self.reference.fingerprint(), "reference", config.model.name)
        state.load_weights(self.policy, saved)
        self.adapter = ScaledAdapter(self.policy)
        self.notes: list[str] = []
        self._rewarder = self._rewards()
        self._opponents: list[str] | None = None
        self._per_batch = groups_per_batch(self.policy, self.samples, context)

    @property
    def samples(self) -> int:
        """Replies to each held-out prompt."""
        return -(-REPLIES // len(self.prompts.held_out))

    def searched_kl(self, scale: float) -> float:
        """Mean KL on the prompts to search on, nats per sequence."""
        samples = -(-REPLIES_SEARCHED // len(self.prompts.search))
        experience = self._sampled(scale, self.prompts.search, samples, None)
        return float(per_sequence(self._scored(experience).reverse_kl, experience.lengths).mean())

    def point(self, scale: float) -> Point:
        """Reward, KL and length on the held-out prompts; the same random numbers at every scale."""
        experience = self._sampled(scale, self.prompts.held_out, self.samples, self._rewarder)
        kl = per_sequence(self._scored(experience).reverse_kl, experience.lengths)
        clusters = np.repeat(np.arange(len(experience.prompts)), experience.group_size)
        rewards, lengths = experience.rewards, experience.lengths.astype(np.float64)
        return Point(
            scale=scale,
            kl=mean(kl, clusters),
            kl_per_token=estimate(kl, lengths, clusters),
            length=mean(lengths, clusters),
            reward=_known(rewards.raw, clusters),
            gold=None if rewards.gold is None else _known(rewards.gold, clusters),
        )

    def facts(self) -> dict[str, Any]:
        """Where prompts and replies come from."""
        rollout = self.config.rollout
        return {
            "model": self.config.model.model_dump(mode="json", include={"name", "revision", "adapter"}),
            "prompts": self.prompts.origin,
            "search_prompts": len(self.prompts.search),
            "temperature": rollout.temperature,
            "max_completion_length": rollout.max_completion_length,
            "seed": self.config.training.seed,
            "merged": self.merged,
        }

    def _sampled(
        self, scale: float, prompts: Sequence[RenderedPrompt], samples: int, rewarder: Rewarder | None
    ) -> Experience:
        """Replies of the policy at a scale, with their rewards where a rewarder is given."""
        rollout = self.config.rollout
        self.adapter.turn(scale)
        batch = None if rollout.batch_size == "auto" else rollout.batch_size
        completions = DecodingSampler(self.policy.model_to_sample(), self.policy.tokenizer, batch_size=batch).sample(
            [prompt.token_ids for prompt in prompts],
            num_samples=samples,
            max_length=rollout.max_completion_length,
            temperature=rollout.temperature,
            seed=self._seed("search" if rewarder is None else "held out"),
            progress=lambda done, total: self._progress(f"sampling at scale {scale:g}", done, total),
        )
        if rewarder is None:
            return Experience(prompts, completions, [""] * len(completions), unrewarded(len(completions)))
        if rewarder.wants_reference and self._opponents is None:
            seed = self._seed("opponent")
            self._opponents = reference_texts(self.reference, self.policy.tokenizer, prompts, rollout, seed)
        return gather(prompts, completions, self.policy.tokenizer, rewarder, self._opponents)

    def _scored(self, experience: Experience) -> TokenRecord:
        policy, temperature = self.policy, self.config.rollout.temperature
        if self.merged:
            policy = Policy(policy.name, policy.model_to_sample(), None, policy.tokenizer, None)
        return measure(experience, policy, self.reference, temperature=temperature, per_batch=self._per_batch, step=0)

    def _seed(self, purpose: str) -> int:
        return seed_for(self.config.training.seed, "dial", purpose)

    def _rewards(self) -> Rewarder:
        """The run's rewards; without those that ask a judge, or that can no longer be loaded, which is noted."""
        settings = self.config.reward or Reward()
        if settings.judge is not None:
            self.notes.append("the run's judge is not asked: the reward is not measured, gold is where there is one")
            settings = Reward(gold=settings.gold)
        try:
            return rewarder_of(self.config.model_copy(update={"reward": settings}), NOTHING_GIVEN)
        except KleashError as error:
            self.notes.append(f"the reward is not measured: {error}")
            return Rewarder(Reward(), [], None)


def measure_dial(run_dir: Path, scales: Sequence[float], *, prompts: str | None, progress: Progress) -> Dial:
    """Reward and KL of the newest checkpoint at each of `scales`; no scale is looked for.

    Args:
        run_dir: the run's folder.
        scales: from 0, where training started, to 1, where it ended.
        prompts: a file of prompts in place of the run's held-out ones.
        progress: told of each scale.

    Raises:
        KleashError: a run that cannot be scaled, or prompts that cannot be used.
    """
    config, folder = checkpoint_of(run_dir, None)
    check_dial(run_dir, config)
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    run = DialledRun(config, folder, dial_prompts(run_dir, config, tokenizer, prompts), progress, merged=False)
    return _dial(run_dir, folder, run, [run.point(scale) for scale in sorted(scales)])


def run_dial(run_dir: Path, folder: Path, run: DialledRun, limit: float) -> Dial:
    """The largest scale whose KL can be shown to lie within `limit` nats per sequence, with scales 0 and 1 beside it.

    Args:
        run_dir: the run's folder.
        folder: of its checkpoint.
        run: the checkpoint in memory.
        limit: above 0.

    Raises:
        ModelError: not even the smallest scale that was tried lies within the limit.
    """
    searched = search(run.searched_kl, limit)
    points, scale = climb(run.point, ladder(searched, limit), limit)
    if scale is None:
        kl = points[0].kl
        raise ModelError(
            f"no scale of the adapter can be shown to lie within --max-nats {limit:g}: at scale {points[0].scale:g} "
            f"the KL is {with_interval(kl.value, kl.low, kl.high)} nats per sequence over {kl.prompts} prompts. More "
            "prompts make the interval shorter: --prompts FILE; or give a larger limit"
        )
    points = [run.point(0.0), *points]
    if points[-1].scale < 1:
        points.append(run.point(1.0))
    return _dial(run_dir, folder, run, points, limit, scale, searched)


def _dial(
    run_dir: Path,
    folder: Path,
    run: DialledRun,
    points: Sequence[Point],
    limit: float | None = None,
    scale: float | None = None,
    searched: Sequence[Searched] = (),
) -> Dial:
    """What was measured, with where it comes from."""
    return Dial(
        run=run_dir.resolve().name,
        step=int(folder.name.removeprefix("step_")),
        limit=limit,
        scale=scale,
        points=tuple(points),
        searched=tuple(searched),
        prompts=len(run.prompts.held_out),
        samples=run.samples,
        settings=run.facts(),
        notes=tuple(run.notes),
    )


def _of_run(config: RunConfig, tokenizer: Tokenizer) -> tuple[Sequence[RenderedPrompt], Sequence[RenderedPrompt]]:
    """The run's held-out prompts and its training prompts; packed demonstrations have none of the latter."""
    length, seed = config.rollout.max_completion_length, config.training.seed
    try:
        if config.prompts is not None:
            data = session.load_data(config.prompts, tokenizer, max_completion_length=length, seed=seed)
            return data.held_out, data.train
        if config.comparisons is not None:
            pairs = preference.load_data(config.comparisons, tokenizer, seed=seed)
            return [row.prompt for row in pairs.held_out], [row.prompt for row in pairs.train]
        assert config.demonstrations is not None, "every algorithm has one of these tables"
        shown = imitation.load_data(config.demonstrations, tokenizer, max_completion_length=length, seed=seed)
        return shown.prompts, []
    except DataError as error:
        raise DataError(
            f"the run's data cannot be read any more: {str(error).rstrip('.')}. Give other prompts: --prompts FILE"
        ) from error


def _from_file(config: RunConfig, tokenizer: Tokenizer, path: str) -> Sequence[RenderedPrompt]:
    """Prompts of another file, treated as the run's own are."""
    asked = config.prompts or config.comparisons or config.demonstrations
    assert asked is not None, "every algorithm has one of these tables"
    column = "prompt" if config.prompts is None else config.prompts.column
    return render(
        load_prompts(path, column=column),
        tokenizer,
        max_completion_length=config.rollout.max_completion_length,
        system_prompt=asked.system_prompt,
        as_chat=asked.as_chat,
    )


def _distinct(prompts: Sequence[RenderedPrompt]) -> list[RenderedPrompt]:
    """The first of each prompt: a prompt that comes twice is one cluster."""
    return list({prompt.token_ids: prompt for prompt in reversed(prompts)}.values())[::-1]


def _known(values: Floats, clusters: NDArray[np.int64]) -> Estimate | None:
    """Mean of the scores that there are; None where there is none."""
    known = ~np.isnan(values)
    return mean(values[known], clusters[known]) if known.any() else None


def _enough(prompts: Sequence[RenderedPrompt], least: int, who: str, why: str) -> None:
    if len(prompts) < least:
        raise DataError(
            f"{who}: {len(prompts)} different prompts, and the dial needs {least} ({why}). Give a file with more: "
            "--prompts FILE"
        )
