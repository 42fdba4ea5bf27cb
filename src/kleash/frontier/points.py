"""The points that a frontier is made of: what runs measured on held-out prompts, and best-of-n beside them.

Each point says how it was reached, how its KL was measured and in which unit. KL is not compared across methods: at
equal KL, best-of-n has optimised far more than reinforcement learning has (Gao et al. 2022, arXiv 2210.10760).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kleash.errors import DataError
from kleash.monitor.suspects import suspect_windows
from kleash.monitor.watched import measured_in, windows_over
from kleash.runs.reader import RunReader
from kleash.runs.records import Step

RewardKind = Literal["gold", "proxy"]

BEST_OF_N = "best-of-n"
METHODS = {
    "rloo": "RLOO", "grpo": "GRPO", "ppo": "PPO", "dpo": "DPO", "online_dpo": "online DPO", "sft": "SFT",
    "reward_model": "reward model",
}  # fmt: skip
KL_KEYS = ("eval/kl/original_per_sequence", "eval/kl/exact_per_sequence")
"""From where training started; a run whose reference moves has the first, and its second is from elsewhere."""
EXACT = "exact over the vocabulary at each visited prefix, on held-out prompts"
TIES = "from the ranks of sampled rewards, at most log n − (n − 1)/n"
UNIT = "nats per sequence"
PROXY_SETTINGS = ("functions", "model", "combine", "sd_weight", "judge", "weights")
NORMAL_95 = 1.959963984540054
"""Standard errors in an arm of a 95 % interval."""
AT_START = 0.01
"""Nats per sequence that a start may measure: rounding."""
BEST_OF_N_VERSION = 1


@dataclass(frozen=True)
class Mean:
    """A mean over held-out prompts; a single prompt has no standard error."""

    value: float
    stderr: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Of the 95 % interval; the value itself where it has no standard error."""
        arm = NORMAL_95 * (self.stderr or 0.0)
        return self.value - arm, self.value + arm

    def minus(self, other: Mean) -> Mean:
        """The difference, with the error that it has if both are independent."""
        known = self.stderr is not None and other.stderr is not None
        stderr = math.hypot(self.stderr or 0.0, other.stderr or 0.0) if known else None
        return Mean(self.value - other.value, stderr)

    def is_above(self, other: Mean) -> bool:
        """Whether it is significantly larger: never where an error is unknown."""
        difference = self.minus(other)
        return difference.stderr is not None and difference.ends[0] > 0


@dataclass(frozen=True)
class Source:
    """Where points come from, and what their numbers are of.

    Attributes:
        name: the run's folder or the file of best-of-n.
        method: such as "RLOO" or "best-of-n".
        estimator: how KL(policy ‖ start) was measured.
        proxy: what the proxy reward is, in words that are equal where it is the same; None where there is none.
        gold: the same of the gold reward.
    """

    name: str
    method: str
    estimator: str
    proxy: str | None
    gold: str | None
    unit: str = UNIT


@dataclass(frozen=True)
class Point:
    """One policy: what it is worth, how far it is from the start, and whether it can be had and trusted.

    Attributes:
        source: where it comes from.
        at: the step, or n.
        kl: KL(policy ‖ start), nats per sequence.
        proxy: the reward that was optimised.
        gold: the one that was only measured.
        checkpoint: its folder; None where it is not on disk.
        alarms: the names of the warnings and critical alarms that it lies under.
    """

    source: Source
    at: int
    kl: Mean
    proxy: Mean | None
    gold: Mean | None
    checkpoint: Path | None = None
    alarms: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Source and place in it."""
        return f"{self.source.name} {self.where}"

    @property
    def where(self) -> str:
        """The step, or n, in words."""
        return f"n = {self.at}" if self.source.method == BEST_OF_N else f"step {self.at}"

    @property
    def is_start(self) -> bool:
        """Whether this is the model before anything was done to it."""
        first = 1 if self.source.method == BEST_OF_N else 0
        return self.at == first and abs(self.kl.value) <= AT_START

    def reward(self, by: RewardKind) -> Mean | None:
        """The gold or the proxy reward."""
        return self.gold if by == "gold" else self.proxy

    def rewarded_by(self, by: RewardKind) -> str | None:
        """What that reward is."""
        return self.source.gold if by == "gold" else self.source.proxy


def read_run(path: Path | str) -> list[Point]:
    """Return a point for each held-out evaluation of a run, finished or not, that measured KL and a reward.

    Raises:
        RunDirError: no run there, or one that cannot be read.
        DataError: it has no such evaluation.
    """
    with RunReader(path) as reader:
        config, steps, windows = reader.config, reader.steps(), suspect_windows(reader.events())
        on_disk = {saved.step: saved.path for saved in reader.checkpoints() if saved.path.is_dir()}
    measured = {key for step in steps for key, value in step.metrics.items() if value is not None}
    key = next((key for key in KL_KEYS if key in measured), None)
    source = _run_source(str(path), config)
    points = [
        Point(
            source,
            step.step,
            kl,
            _mean(step, "eval/reward/proxy"),
            _mean(step, "eval/reward/gold"),
            on_disk.get(step.step),
            tuple(window.event.name for window in windows_over(windows, measured_in(config, step.step))),
        )
        for step in steps
        if key is not None and (kl := _mean(step, key)) is not None
    ]
    points = [point for point in points if point.proxy or point.gold]
    if not points:
        raise DataError(_nothing(path, source.method, key))
    return points


def read_best_of_n(path: Path | str) -> list[Point]:
    """Return a point for each n that `kleash bestofn --json` has measured.

    Raises:
        DataError: not a file that `kleash bestofn` wrote.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as best-of-n: {error}. `kleash bestofn --json FILE` writes it."
        ) from error
    if not isinstance(found, dict) or "sizes" not in found or found.get("schema_version") != BEST_OF_N_VERSION:
        raise DataError(
            f"{path} holds no best-of-n of version {BEST_OF_N_VERSION}. Give the file that `kleash bestofn --json "
            "FILE` wrote."
        )
    source = Source(str(path), BEST_OF_N, TIES, *_rewards(found["settings"].get("reward")))
    return [
        Point(source, size["n"], _read_mean(size["kl"]), _read_mean(size["proxy"]), _read_gold(size["gold"]))
        for size in found["sizes"]
    ]


def _run_source(name: str, config: Mapping[str, Any]) -> Source:
    algorithm = config.get("algorithm")
    kind = str(algorithm.get("type", "")) if isinstance(algorithm, Mapping) else ""
    return Source(name, METHODS.get(kind, kind or "training"), EXACT, *_rewards(config.get("reward")))


def _rewards(settings: Any) -> tuple[str | None, str | None]:
    """What proxy and gold are: their settings that are not at rest, so that equal ones have equal words."""
    if not isinstance(settings, Mapping):
        return None, None
    parts = [f"{key} {_plain(settings[key])}" for key in PROXY_SETTINGS if _is_set(key, settings)]
    gold = settings.get("gold")
    return ", ".join(parts) or None, None if gold is None else _plain(gold)


def _is_set(key: str, settings: Mapping[str, Any]) -> bool:
    if key == "combine":
        return bool(settings.get("model")) and settings.get(key) != "mean"
    if key == "sd_weight":
        return bool(settings.get("model")) and settings.get("combine") == "mean_minus_sd"
    return bool(settings.get(key))


def _plain(value: Any) -> str:
    """A setting as text; a path without its detours."""
    if isinstance(value, str):
        return os.path.normpath(value)
    if isinstance(value, list):
        return " + ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return " ".join(_plain(value[key]) for key in ("model", "rubric") if value.get(key))
    return str(value)


def _mean(step: Step, key: str) -> Mean | None:
    value = step.metrics.get(key)
    if value is None or not math.isfinite(value):
        return None
    stderr = step.stderr.get(key)
    return Mean(value, stderr if stderr is not None and math.isfinite(stderr) else None)


def _read_mean(found: Mapping[str, Any]) -> Mean:
    return Mean(found["value"], found["stderr"])


def _read_gold(found: Mapping[str, Any] | None) -> Mean | None:
    return None if found is None else _read_mean(found)


def _nothing(path: Path | str, method: str, key: str | None) -> str:
    if method == METHODS["reward_model"]:
        return f"{path} trained a reward model, which has no drift and no reward. Give runs that train a policy."
    if key is None:
        return (
            f"{path} has no held-out evaluation that measured KL, so it has no point to draw. Hold prompts out with "
            "prompts.held_out and set training.eval_every; a run that has just begun has its first one soon."
        )
    return (
        f"{path} measured KL on held-out prompts but no reward there, neither proxy nor gold. Set reward.gold, which "
        "is measured and never optimised."
    )
