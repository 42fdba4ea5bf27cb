"""Two models of how beta moves the KL, to compare controllers in seconds before a run of hours.

State: s = sqrt(KL), nats per sequence, and its speed v per step. Each step, with beta the one returned after
the step before:

v <- lag v + (1 - lag) gain clip(rate(s, beta), +-SPEED_LIMIT)
s <- max(0, s + v)

and the controller sees s^2 times exp(0.1 N(0, 1)): the batch noise of a mean exact KL over 32 sequences.

The parameters come from two 60-step runs of SmolLM2-135M-Instruct (LoRA, AdamW 1e-3, 32 sequences of 24
tokens a step): least squares on the ten-step-ahead error of s on the run with a PI controller, then tried on
the one with an integral-only controller. RMS error there, in sqrt(nats): leaky 0.79, integrating 0.99,
against 1.82 for "it stays where it is".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kleash.control.controller import Controller

BATCH_NOISE = 0.1
"""Standard deviation of the log of a measured KL."""

SPEED_LIMIT = 0.6
"""Largest change of sqrt(KL) in one step; the fastest in either run was 0.6."""

SEQUENCES_PER_STEP = 32


class Plant(Protocol):
    """How beta moves sqrt(KL)."""

    @property
    def gain(self) -> float:
        """Factor on the speed: 1 is as fitted."""
        ...

    @property
    def lag(self) -> float:
        """Share of the speed carried over to the next step, as by the optimiser's momentum."""
        ...

    def rate(self, sqrt_kl: float, beta: float) -> float:
        """Speed of sqrt(KL) per step that beta asks for at this place."""
        ...


@dataclass(frozen=True)
class IntegratingPlant:
    """Speed depends on beta alone, not on the KL: rate = drift (1 - beta / balance_beta)."""

    drift: float = 0.233
    balance_beta: float = 0.0503
    lag: float = 0.0
    gain: float = 1.0

    def rate(self, sqrt_kl: float, beta: float) -> float:
        """Speed of sqrt(KL) per step."""
        return self.drift * (1 - beta / self.balance_beta)


@dataclass(frozen=True)
class LeakyPlant:
    """The penalty pulls harder the further the policy is out: rate = drift - pull beta sqrt(KL)."""

    drift: float = 0.272
    pull: float = 2.33
    lag: float = 0.76
    gain: float = 1.0

    def rate(self, sqrt_kl: float, beta: float) -> float:
        """Speed of sqrt(KL) per step."""
        return self.drift - self.pull * beta * sqrt_kl


def advance(plant: Plant, sqrt_kl: float, speed: float, beta: float) -> tuple[float, float]:
    """Return sqrt(KL) and its speed one step later."""
    rate = min(max(plant.rate(sqrt_kl, beta), -SPEED_LIMIT), SPEED_LIMIT)
    speed = plant.lag * speed + (1 - plant.lag) * plant.gain * rate
    moved = sqrt_kl + speed
    return (moved, speed) if moved >= 0 else (0.0, 0.0)


def simulate(controller: Controller, plant: Plant, *, num_steps: int, seed: int) -> npt.NDArray[np.float64]:
    """Run a controller on a plant from KL 0.

    Returns:
        ``[num_steps, 2]``: the latent KL of each step, before batch noise, and the beta that its update used.
    """
    noise = np.exp(BATCH_NOISE * np.random.default_rng(seed).standard_normal(num_steps))
    sqrt_kl = speed = 0.0
    trace = np.empty((num_steps, 2))
    for step in range(num_steps):
        beta = controller.beta
        trace[step] = sqrt_kl**2, beta
        controller.update(sqrt_kl**2 * float(noise[step]), SEQUENCES_PER_STEP)
        sqrt_kl, speed = advance(plant, sqrt_kl, speed, beta)
    return trace


def latent_kl(
    make_controller: Callable[[], Controller], plant: Plant, *, num_steps: int, num_seeds: int
) -> npt.NDArray[np.float64]:
    """Return the latent KL ``[num_seeds, num_steps]`` of a fresh controller a seed."""
    return np.stack(
        [simulate(make_controller(), plant, num_steps=num_steps, seed=seed)[:, 0] for seed in range(num_seeds)]
    )


def tracking_error(kl: npt.NDArray[np.float64], target: float) -> float:
    """Root mean square of log(latent KL / target) over steps 20 to 100.

    A KL under a thousandth of the target counts as a thousandth.

    Args:
        kl: latent KL ``[num_seeds, 101]`` in the unit of ``target``.
        target: the final target.
    """
    ratio = np.maximum(kl[:, 20:101] / target, 1e-3)
    return float(np.sqrt(np.mean(np.log(ratio) ** 2)))


def overshoot(kl: npt.NDArray[np.float64], target: float) -> float:
    """Return the 90 % quantile over seeds of the largest latent KL / target."""
    return float(np.quantile(kl.max(axis=1) / target, 0.9))


def replay_error(plant: Plant, kl: Sequence[float], beta: Sequence[float], *, steps_ahead: int = 10) -> float:
    """Root mean square error of sqrt(KL) predicted ``steps_ahead`` from each step of a recorded run.

    Args:
        plant: the model to try.
        kl: measured KL of each step.
        beta: the beta that the update of each step used.
        steps_ahead: how far the plant runs on its own.
    """
    squares: list[float] = []
    speed = 0.0
    for start in range(len(kl) - steps_ahead):
        s, v = math.sqrt(kl[start]), speed
        for step in range(start, start + steps_ahead):
            s, v = advance(plant, s, v, beta[step])
        squares.append((s - math.sqrt(kl[start + steps_ahead])) ** 2)
        speed = advance(plant, math.sqrt(kl[start]), speed, beta[start])[1]
    return math.sqrt(sum(squares) / len(squares))
