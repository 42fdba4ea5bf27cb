"""Healthy runs that alarms must stay silent on: scripted ones under two kinds of noise, and a real one, resampled.

A scripted run is what Kleash's RLOO records when nothing is wrong: a controller ramps the KL to 6 nats per sequence
within 12 steps (its root grows linearly) and holds it there; reward, entropy and diversity settle within the first
hundred steps. Every series then has noise around its level, log-normal with an sd of 0.2 for the KL, and the others
as real runs of the demo have it (32 replies a step; lengths and stop rate are those of replies that end by
themselves). "independent" draws each step's noise anew; "ar" gives every series, that of the KL too, an
autocorrelation of 0.9 from step to step with the same marginal sd. Held-out measurements, behind `eval/`, come every
10 steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter
from scipy.stats import binom, norm

from benchmarks.alarms import traces
from benchmarks.alarms.numbers import Array, Numbers
from kleash.runs.records import Step

SCRIPTED = ("independent", "ar")
KINDS = (*SCRIPTED, "real")
AUTOCORRELATION = {"independent": 0.0, "ar": 0.9}

TARGET = 6.0
LOG_KL_SD = 0.2
RAMP_STEPS = 12
EVAL_EVERY, EVAL_KL_SD = 10, 0.05
EVAL_SPREAD = 0.65
"""Held-out prompts are always the same ones, so that their means vary less, about as the standard errors say."""
LENGTH = 60.0
NUM_REPLIES = 32
STOP_RATE = 0.95
REPEATED_LEVEL, REPEATED_SD = 0.006, 0.01


@dataclass(frozen=True)
class Series:
    """One series of a scripted run: from `start` to `level` with time constant `settle`, and noise around that."""

    key: str
    start: float
    level: float
    settle: float
    sd: float
    stderr: float | None = None

    def mean(self, steps: int) -> Array:
        """Return the level by step, without noise."""
        return self.level + (self.start - self.level) * np.exp(-np.arange(steps) / self.settle)


ADDITIVE = (
    Series("reward/proxy", 0.15, 0.70, 15, sd=0.08, stderr=0.058),
    Series("reward/gold", 0.20, 0.50, 15, sd=0.07, stderr=0.05),
    Series("entropy/per_token", 3.4, 3.0, 40, sd=0.14, stderr=0.10),
    Series("length/mean", LENGTH, LENGTH, 1, sd=5.5, stderr=5.0),
    Series("text/distinct_2", 0.94, 0.905, 40, sd=0.015),
    Series("sampler/mismatch_mean", 0.007, 0.046, 0.3, sd=0.0019, stderr=0.0018),
    Series("sampler/mismatch_p99", 0.09, 0.19, 0.3, sd=0.015),
)
"""Series with normal noise; sd in the series' own unit."""

MULTIPLICATIVE = (
    Series("reward/group_sd", 0.35, 0.25, 15, sd=0.28),
    Series("control/beta", 0.05, 0.05, 1, sd=0.5),
    Series("optim/grad_norm", 3.3, 3.3, 1, sd=0.25),
    Series("ratio/clip_fraction", 0.004, 0.004, 1, sd=0.6),
)
"""Series with log-normal noise; sd of the logarithm."""

KL_PARTS = {
    "kl/forward_per_token": (0.98 / LENGTH, 0.03),
    "kl/exact_per_token": (1 / LENGTH, 0.03),
    "kl/sequence_p90": (1.35, 0.1),
    "kl/token_p95": (3.1 / LENGTH, 0.08),
    "kl/token_p99": (5.5 / LENGTH, 0.12),
    "kl/token_max": (9.5 / LENGTH, 0.3),
    "kl/class_digit": (0.002, 1.0),
    "kl/class_punctuation": (0.06, 0.15),
    "kl/class_stop": (0.001, 1.0),
    "kl/class_whitespace": (0.01, 0.35),
    "kl/class_word": (0.927, 0.01),
}
"""By key: which multiple of the KL per sequence, and the sd of its own log-normal noise on top of the KL's."""

KL_RELATIVE_STDERR = 0.06
WITH_STDERR = ("kl/forward_per_token", "kl/exact_per_token", "kl/class_punctuation", "kl/class_word")
TRAINING_ONLY = ("reward/group_sd", "control/", "optim/", "ratio/")
"""What a held-out measurement does not have."""


def null(kind: str, steps: int, seed: int) -> list[Step]:
    """Return a healthy run of so many steps."""
    return healthy(kind, steps, seed).steps()


def healthy(kind: str, steps: int, seed: int) -> Numbers:
    """Return the numbers of a healthy run: "independent" or "ar" scripted, or "real" resampled."""
    if kind == "real":
        return resampled(trained(traces.read("long")), steps, seed)
    rng = np.random.default_rng(seed)
    noise = _Noise(rng, steps, AUTOCORRELATION[kind])
    kl = controlled_kl(steps) * np.exp(LOG_KL_SD * noise.draw())
    numbers = _measure(noise, rng, kl, spread=1.0)
    evaluated = _measure(noise, rng, kl * np.exp(EVAL_KL_SD * noise.draw()), spread=EVAL_SPREAD)
    absent = np.arange(steps) % EVAL_EVERY != 0
    for source, target in ((evaluated.values, numbers.values), (evaluated.stderrs, numbers.stderrs)):
        for key, array in source.items():
            if not key.startswith(TRAINING_ONLY):
                target[f"eval/{key}"] = np.where(absent, np.nan, array)
    return numbers


def controlled_kl(steps: int) -> Array:
    """Return the KL per sequence that the controller holds, in nats: its root ramps linearly."""
    return TARGET * np.minimum(1.0, np.arange(steps) / RAMP_STEPS) ** 2


def lag_1(values: Array) -> float:
    """Return the correlation of a series with itself one step later."""
    return float(np.corrcoef(values[1:], values[:-1])[0, 1])


class _Noise:
    """Draws standard normal series with one autocorrelation, all of one length."""

    def __init__(self, rng: np.random.Generator, steps: int, autocorrelation: float) -> None:
        self._rng, self._steps, self._rho = rng, steps, autocorrelation

    def draw(self) -> Array:
        """Return another series, stationary from its first step on."""
        white = self._rng.standard_normal(self._steps + 1)
        innovations = np.sqrt(1 - self._rho**2) * white[1:]
        filtered: Array = lfilter([1.0], [1.0, -self._rho], innovations, zi=[self._rho * white[0]])[0]
        return filtered


def _measure(noise: _Noise, rng: np.random.Generator, kl: Array, spread: float) -> Numbers:
    """Return what a step measures of a policy at this KL (nats per sequence, by step).

    `spread` scales the normal noise.
    """
    steps = len(kl)
    numbers = Numbers({"kl/exact_per_sequence": kl}, {"kl/exact_per_sequence": KL_RELATIVE_STDERR * kl})
    for key, (multiple, sd) in KL_PARTS.items():
        numbers.values[key] = multiple * kl * np.exp(sd * noise.draw())
        if key in WITH_STDERR:
            numbers.stderrs[key] = KL_RELATIVE_STDERR * numbers.values[key]
    numbers.values["kl/class_special"] = np.zeros(steps)
    sampling_sd = np.sqrt(2 * kl / NUM_REPLIES)
    numbers.values["kl/k1_per_sequence"] = kl + sampling_sd * noise.draw()
    numbers.stderrs["kl/k1_per_sequence"] = sampling_sd
    numbers.values["kl/k1_per_token"] = numbers.values["kl/k1_per_sequence"] / LENGTH
    numbers.stderrs["kl/k1_per_token"] = sampling_sd / LENGTH
    for series in ADDITIVE:
        numbers.values[series.key] = series.mean(steps) + spread * series.sd * noise.draw()
        if series.stderr is not None:
            numbers.stderrs[series.key] = series.stderr * np.exp(0.15 * rng.standard_normal(steps))
    for series in MULTIPLICATIVE:
        numbers.values[series.key] = series.mean(steps) * np.exp(series.sd * noise.draw())
    stopped = binom.ppf(norm.cdf(noise.draw()), NUM_REPLIES, STOP_RATE) / NUM_REPLIES
    numbers.values["length/stop_rate"] = stopped
    numbers.stderrs["length/stop_rate"] = np.sqrt(stopped * (1 - stopped) / (NUM_REPLIES - 1))
    numbers.values["text/repeated_4gram"] = np.maximum(0.0, REPEATED_LEVEL + REPEATED_SD * noise.draw())
    numbers.values["ratio/max"] = 1 + 0.29 * np.exp(0.3 * noise.draw())
    numbers.values["control/target"] = TARGET * np.minimum(1.0, (np.arange(steps) + 2) / RAMP_STEPS) ** 2
    for key, value in (("control/saturated", 0.0), ("optim/learning_rate", 5e-4), ("reward/unscored_share", 0.0)):
        numbers.values[key] = np.full(steps, value)
    return numbers


MEAN_BLOCK = 50
STEADY_FROM = 200


def trained(real: Numbers) -> Numbers:
    """Return a run without what is measured after its last update: there are only held-out numbers in it."""
    return real.until(int(np.flatnonzero(np.isfinite(real.values["kl/exact_per_sequence"]))[-1]) + 1)


def resampled(real: Numbers, steps: int, seed: int) -> Numbers:
    """Return a longer run made of a real one: its start as it was, then blocks of its steady part.

    The stationary bootstrap of Politis and Romano: blocks begin anywhere in the steady part, have geometric lengths
    with a mean of 50 steps, and wrap around at its end. All series are taken together.
    """
    rng = np.random.default_rng(seed)
    total = len(real)
    jumps = rng.random(steps) < 1 / MEAN_BLOCK
    starts = rng.integers(0, total - STEADY_FROM, steps)
    rows = np.arange(steps)
    steady = min(STEADY_FROM, steps)
    jumps[:steady] = False
    jumps[steady : steady + 1] = True
    last_jump = np.maximum.accumulate(np.where(jumps, rows, 0))
    offset = (starts[last_jump] + rows - last_jump) % (total - STEADY_FROM)
    index = np.where(rows < STEADY_FROM, rows, STEADY_FROM + offset)
    return Numbers(
        {key: array[index] for key, array in real.values.items()},
        {key: array[index] for key, array in real.stderrs.items()},
    )
