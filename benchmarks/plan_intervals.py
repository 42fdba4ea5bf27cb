"""How often do the intervals of `kleash plan` cover, wherever it claims something?

`python benchmarks/plan_intervals.py`, two minutes on one core. Rewards of known distributions: for each of 32 prompts,
with its own mean or scale, 64 samples are drawn and predicted from, 100 times. The truth is the same reweighting with
3,000 samples of each of 4,000 prompts.

normal       normal within a prompt, its sd 0.8 to 1.6
uniform      bounded
right/wrong  1 or 0, right in about a fifth of the samples
rare         a reward of 1 in 3 % of the samples, on normal noise of 0.3
exponential  an exponential tail: no number of samples shows where it ends
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kleash.gauge.tilting import PromptDraws, predict, tilt

PROMPTS, SAMPLES, REPEATS = 32, 64, 100
TRUE_PROMPTS, TRUE_SAMPLES, AT_ONCE = 4_000, 3_000, 200
SHARES = (4.0, 2.0, 1.0, 0.7, 0.5)
"""Betas, in standard deviations of the reward within a prompt."""

Floats = NDArray[np.float64]
Family = Callable[[Floats, int, np.random.Generator], Floats]

FAMILIES: dict[str, Family] = {
    "normal": lambda a, n, rng: a + (0.8 + 0.25 * abs(a)) * rng.normal(size=(len(a), n)),
    "uniform": lambda a, n, rng: a + (0.5 + abs(a)) * rng.uniform(-1, 1, size=(len(a), n)),
    "right/wrong": lambda a, n, rng: (rng.uniform(size=(len(a), n)) < 1 / (1 + np.exp(1.5 - a))).astype(float),
    "rare": lambda a, n, rng: 0.3 * rng.normal(size=(len(a), n)) + (rng.uniform(size=(len(a), n)) < 0.03),
    "exponential": lambda a, n, rng: a + (0.3 + 0.1 * abs(a)) * rng.exponential(size=(len(a), n)),
}


def prompts(count: int, rng: np.random.Generator) -> Floats:
    """What tells prompts apart, `[count, 1]`."""
    return rng.normal(size=(count, 1))


def truth(family: Family, beta: float) -> tuple[float, float]:
    """KL and reward of the optimum."""
    rng, kl, reward = np.random.default_rng(1), [], []
    for _ in range(TRUE_PROMPTS // AT_ONCE):
        rewards = family(prompts(AT_ONCE, rng), TRUE_SAMPLES, rng)
        found = tilt(np.full(TRUE_SAMPLES, -np.log(TRUE_SAMPLES)), rewards, beta)
        kl.append(found.kl.mean())
        reward.append((found.weights * rewards).sum(1).mean())
    return float(np.mean(kl)), float(np.mean(reward))


def measure(name: str, family: Family) -> None:
    """Print a row for each beta: its KL, how often something was claimed, and how often the interval held the truth."""
    rng = np.random.default_rng(2)
    sd = float(family(prompts(1_000, rng), 200, rng).std(axis=1).mean())
    exact = {share: truth(family, share * sd) for share in SHARES}
    held: dict[float, list[tuple[bool, bool]]] = {share: [] for share in SHARES}
    for _ in range(REPEATS):
        rows = family(prompts(PROMPTS, rng), SAMPLES, rng)
        draws = [PromptDraws("", [""] * SAMPLES, row, row, None, np.ones(SAMPLES)) for row in rows]
        for share, (kl, reward) in exact.items():
            found = predict(draws, share * sd).predicted
            if found is None:
                break
            held[share].append((found.kl.low <= kl <= found.kl.high, found.reward.low <= reward <= found.reward.high))
    for share, hits in held.items():
        covered = (
            " ".join(f"{100 * value:9.0f} %" for value in np.mean(hits, axis=0)) if hits else "        –           –"
        )
        print(f"{name:12s} {share:5.1f} {exact[share][0]:7.3f} {len(hits) / REPEATS:9.0%} {covered}", flush=True)


if __name__ == "__main__":
    print(f"{'reward':12s} {'b/sd':>5s} {'KL':>7s} {'claimed':>9s} {'KL held':>11s} {'reward held':>11s}")
    for name, family in FAMILIES.items():
        measure(name, family)
