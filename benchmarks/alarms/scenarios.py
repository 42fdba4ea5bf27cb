"""Scripted faults: what is done to a healthy run, from a random step on.

A fault starts between steps 250 and 600, after the 200 steps that a baseline takes; the early ones start at step 60.
Held-out measurements go along. beta stays as it was: a controller's answer would only be one more sign of trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.alarms.nulls import ADDITIVE, LENGTH, STOP_RATE, healthy
from benchmarks.alarms.numbers import Array, Numbers
from kleash.runs.records import Step

Fault = Callable[[Numbers, Array], Numbers]
"""Takes a healthy run and the steps since the onset (negative before it); returns the run with the fault."""

FIRST_ONSET, LAST_ONSET, EARLY_ONSET = 250, 600, 60
SPIKE_STEPS = 5
FASTEST = 25
"""Steps in which the fastest ramp doubles: no rule can be sure of catching that one before 2x."""
TIME_CONSTANT = 10
SLOW_STEPS = 60
KL_SERIES = ("kl/exact", "kl/k1", "kl/forward", "kl/sequence", "kl/token", "kl/class")
FOREIGN_KEYS = ("reward/proxy", "kl/k1_per_token", "entropy/per_token", "length/mean", "optim/")
"""What the log of another trainer has that samples its KL on the drawn tokens alone."""
PROXY_SD, GOLD_SD = (series.sd for series in ADDITIVE if series.key in ("reward/proxy", "reward/gold"))


@dataclass(frozen=True)
class Scenario:
    """One kind of fault.

    Args:
        title: what happens, in words.
        fault: makes it happen.
        limit: how many steps from the onset it is looked for.
        deadline: how many steps from the onset it should be spoken of in.
        early: whether it starts at step 60, before a baseline exists.
        doubling: of a ramp, the steps in which the KL doubles; None for other faults.
        other_log: whether the log is that of another trainer from its first step on.
    """

    title: str
    fault: Fault
    limit: int
    deadline: float
    early: bool = False
    doubling: int | None = None
    other_log: bool = False

    def onset(self, seed: int) -> int:
        """Return the step in which the fault starts."""
        if self.early:
            return EARLY_ONSET
        return int(np.random.default_rng([seed, 1]).integers(FIRST_ONSET, LAST_ONSET, endpoint=True))


def scenario(name: str, kind: str, seed: int) -> tuple[list[Step], int]:
    """Return the steps of a run with that fault, as many as it is looked for in, and the step it starts in."""
    chosen = SCENARIOS[name]
    onset = chosen.onset(seed)
    return faulty(chosen, healthy(kind, LONGEST, seed), onset).steps(0, onset + chosen.limit), onset


def faulty(chosen: Scenario, numbers: Numbers, onset: int) -> Numbers:
    """Return a healthy run with the fault from `onset` on; the steps before are the same."""
    return chosen.fault(numbers.copy(), np.arange(len(numbers), dtype=float) - onset)


def _scale(numbers: Numbers, keys: tuple[str, ...], factor: Array) -> Numbers:
    """Multiply series and their standard errors, held-out ones too."""
    for columns in (numbers.values, numbers.stderrs):
        for key in columns:
            if key.removeprefix("eval/").startswith(keys):
                columns[key] = columns[key] * factor
    return numbers


def _shift(numbers: Numbers, key: str, amount: Array) -> Numbers:
    """Add to a series, the held-out one too."""
    for name in (key, f"eval/{key}"):
        if name in numbers.values:
            numbers.values[name] = numbers.values[name] + amount
    return numbers


def _approach(since: Array, final: float) -> Array:
    """Return 1 before the onset, then an exponential approach to `final`."""
    return final + (1 - final) * np.exp(-np.maximum(since, 0) / TIME_CONSTANT)


def _linear(since: Array, steps: int) -> Array:
    """Return 0 before the onset, then a line that reaches 1 after so many steps and stays there."""
    return np.clip(since / steps, 0, 1)


def _ramp(doubling: int) -> Fault:
    return lambda numbers, since: _scale(numbers, KL_SERIES, 2 ** (np.maximum(since, 0) / doubling))


def _spike(factor: float) -> Fault:
    return lambda numbers, since: _scale(
        numbers, KL_SERIES, np.where((since >= 0) & (since < SPIKE_STEPS), factor, 1.0)
    )


def _negative(numbers: Numbers, since: Array) -> Numbers:
    """The sampled log-ratio drifts to -1 nat per sequence within 20 steps; the exact KL stays."""
    for key, final in (("kl/k1_per_sequence", -1.0), ("kl/k1_per_token", -1.0 / LENGTH)):
        level = float(np.mean(numbers.values[key][100:]))
        _shift(numbers, key, _linear(since, 20) * (final - level))
    return numbers


def _negative_foreign(numbers: Numbers, since: Array) -> Numbers:
    """The same in a log that has no other KL."""
    numbers = _negative(numbers, since)
    return Numbers({key: array for key, array in numbers.values.items() if key.startswith(FOREIGN_KEYS)})


def _entropy_collapse(numbers: Numbers, since: Array) -> Numbers:
    return _scale(numbers, ("entropy/per_token",), _approach(since, 0.2))


def _length_blow_up(numbers: Numbers, since: Array) -> Numbers:
    """Replies grow and run into their limit; the leash holds the KL per sequence, so that per token falls."""
    growth = _approach(since, 3.0)
    _scale(numbers, ("length/mean",), growth)
    _scale(numbers, ("length/stop_rate",), _approach(since, 0.2 / STOP_RATE))
    return _scale(numbers, ("kl/exact_per_token", "kl/k1_per_token", "kl/forward_per_token", "kl/token"), 1 / growth)


def _loop(numbers: Numbers, since: Array) -> Numbers:
    _shift(numbers, "text/repeated_4gram", 0.49 * (1 - _approach(since, 0.0)))
    return _scale(numbers, ("text/distinct_2",), _approach(since, 1 / 3))


def _gold_split(numbers: Numbers, since: Array) -> Numbers:
    _shift(numbers, "reward/proxy", PROXY_SD * np.maximum(since, 0) / 20)
    _shift(numbers, "reward/gold", -GOLD_SD * np.maximum(since, 0) / 20)
    return _scale(numbers, KL_SERIES, 1 + 0.5 * _linear(since, SLOW_STEPS))


def _no_signal(numbers: Numbers, since: Array) -> Numbers:
    """All samples of a prompt come to the same reward."""
    left = np.where(since < 4 * TIME_CONSTANT, _approach(since, 0.0), 0.0)
    numbers.stderrs["reward/proxy"] = numbers.stderrs["reward/proxy"] * left
    return _scale(numbers, ("reward/group_sd",), left)


def _hacking(numbers: Numbers, since: Array) -> Numbers:
    grown = _linear(since, SLOW_STEPS)
    _shift(numbers, "reward/proxy", 4 * PROXY_SD * grown)
    _scale(numbers, KL_SERIES, 1 + 2 * grown)
    _scale(numbers, ("entropy/per_token",), 1 - 0.4 * grown)
    return _scale(numbers, ("text/distinct_2",), 1 - 0.3 * grown)


def _ramp_scenario(doubling: int) -> Scenario:
    """Looked at until the KL is three-fold; due before it has doubled, the fastest before it is three-fold."""
    threefold = doubling * float(np.log2(3))
    deadline = threefold if doubling == FASTEST else doubling
    title = f"KL doubles every {doubling} steps"
    return Scenario(title, _ramp(doubling), int(np.ceil(threefold)), deadline, doubling=doubling)


SCENARIOS = {
    "ramp_25": _ramp_scenario(FASTEST),
    "ramp_100": _ramp_scenario(100),
    "ramp_200": _ramp_scenario(200),
    "ramp_400": _ramp_scenario(400),
    "spike_4": Scenario("KL four-fold for 5 steps", _spike(4.0), SPIKE_STEPS, 3),
    "spike_6": Scenario("KL six-fold for 5 steps", _spike(6.0), SPIKE_STEPS, 3),
    "negative": Scenario("sampled KL falls to -1 nat within 20 steps, exact KL stays", _negative, 100, 100),
    "negative_foreign": Scenario(
        "the same in a log with sampled KL per token only", _negative_foreign, 100, 100, other_log=True
    ),
    "entropy_collapse": Scenario("entropy falls to a fifth, time constant 10 steps", _entropy_collapse, 100, 100),
    "length_blow_up": Scenario("replies three times as long, few still stop", _length_blow_up, 100, 100),
    "loop": Scenario("half of the 4-grams repeated, distinct bigrams 0.9 to 0.3", _loop, 100, 100),
    "gold_split": Scenario("proxy +1 sd and gold -1 sd every 20 steps, KL +50 %", _gold_split, 200, 200),
    "no_signal": Scenario("no spread of reward within a group", _no_signal, 100, 100),
    "hacking": Scenario("reward up, KL x3, entropy x0.6, distinct bigrams x0.7 in 60 steps", _hacking, 100, 100),
    "early_spike": Scenario("KL six-fold for 5 steps, at step 60", _spike(6.0), SPIKE_STEPS, 3, early=True),
    "early_collapse": Scenario("entropy falls to a fifth, at step 60", _entropy_collapse, 100, 100, early=True),
}

LONGEST = LAST_ONSET + max(each.limit for each in SCENARIOS.values())
