"""What every controller refuses, said once: settings, measurements and saved states that cannot work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

from kleash.errors import ConfigError, RunDirError, RunStopped, near_match

ROUNDING_NATS = 1e-4
"""How far below 0 rounding may push an exact KL before it is called negative; nats."""


def positive(name: str, value: float, why: str) -> float:
    """Return ``value`` if it is a finite number above 0.

    Raises:
        ConfigError: it is not; ``why`` says in a clause why that cannot work.
    """
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} = {value!r} cannot work: {why}. Give a finite number above 0.")
    return float(value)


def not_negative(name: str, value: float, why: str) -> float:
    """Return ``value`` if it is a finite number, 0 or above.

    Raises:
        ConfigError: it is not; ``why`` says in a clause why that cannot work.
    """
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} = {value!r} cannot work: {why}. Give a finite number, 0 or above.")
    return float(value)


def at_least_one(name: str, value: int, why: str) -> int:
    """Return ``value`` if it is 1 or more.

    Raises:
        ConfigError: it is not; ``why`` says in a clause why that cannot work.
    """
    if value < 1:
        raise ConfigError(f"{name} = {value!r} cannot work: {why}. Give 1 or more.")
    return value


def multiplicative_beta(beta: float) -> float:
    """Return a starting beta that a multiplicative rule can move: finite and above 0.

    Raises:
        ConfigError: beta is 0 (any factor leaves it 0 for ever), negative or not finite.
    """
    if beta == 0:
        raise ConfigError(
            "beta = 0 cannot work: this controller multiplies beta, so it would stay 0 for ever. "
            "Start above 0, or use Fixed(beta=0) for a run without a penalty."
        )
    return positive("beta", beta, "a negative penalty pays for drift, and a non-finite one is no number")


def one_target(nats_per_sequence: float | None, nats_per_token: float | None) -> tuple[float, str]:
    """Return the target that was given and its unit in words.

    Raises:
        ConfigError: both or neither were given, or the target is not a finite number above 0.
    """
    if (nats_per_sequence is None) == (nats_per_token is None):
        given = "neither" if nats_per_sequence is None else f"both ({nats_per_sequence!r} and {nats_per_token!r})"
        raise ConfigError(
            f"target_nats_per_sequence and target_nats_per_token: {given} given, and a controller holds one "
            "target in one unit. Give exactly one of them."
        )
    why = "KL is never below 0 and is measured relative to its target"
    if nats_per_sequence is not None:
        return positive("target_nats_per_sequence", nats_per_sequence, why), "nats per sequence"
    assert nats_per_token is not None
    return positive("target_nats_per_token", nats_per_token, why), "nats per token"


def beta_range(beta: float, beta_min: float | None, beta_max: float | None) -> tuple[float, float]:
    """Return the bounds of beta; each one left out lies a factor of 1000 from the starting beta.

    Raises:
        ConfigError: the bounds are not positive, not in order, or do not hold the starting beta.
    """
    why = "beta moves in log beta, which needs finite bounds above 0"
    low = positive("beta_min", beta / 1000 if beta_min is None else beta_min, why)
    high = positive("beta_max", beta * 1000 if beta_max is None else beta_max, why)
    if low >= high:
        raise ConfigError(
            f"beta_min = {low:g} and beta_max = {high:g} leave beta no room to move. "
            "Set beta_min below beta_max, or use Fixed."
        )
    if not low <= beta <= high:
        raise ConfigError(
            f"beta = {beta:g} lies outside beta_min = {low:g} to beta_max = {high:g}, so the run would start "
            "at a bound. Widen the bounds or move the starting beta."
        )
    return low, high


def shortening(factor: float) -> float:
    """Return a factor that makes a leash shorter.

    Raises:
        ConfigError: it is not between 0 and 1.
    """
    if not 0 < factor < 1:
        raise ConfigError(
            f"factor = {factor!r} cannot tighten: the target is multiplied by it. Give a number between 0 and 1, such "
            "as 0.7."
        )
    return factor


def finite_kl(kl: float) -> float:
    """Return a KL that is a number.

    Raises:
        RunStopped: it is NaN or infinite. A clip would read NaN as a full step up and hide the fault.
    """
    if not math.isfinite(kl):
        raise RunStopped(
            f"The measured KL is {kl!r}, and no beta can be chosen from it. Look at this step's "
            "log-probabilities for the first non-finite token; the run resumes from its last checkpoint."
        )
    return float(kl)


def exact_kl(kl: float) -> float:
    """Return a KL that is a number and not negative beyond rounding.

    Raises:
        RunStopped: it is not finite, or below ``-ROUNDING_NATS``.
    """
    if finite_kl(kl) < -ROUNDING_NATS:
        raise RunStopped(
            f"The measured KL is {kl:g} nats, and an exact KL is never negative: this is the k1 estimate, or "
            "the two models scored different tokens. Feed the controller the exact KL."
        )
    return float(kl)


def sequence_count(num_sequences: int) -> int:
    """Return a number of sequences that a KL can have been measured on.

    Raises:
        RunStopped: it is below 1.
    """
    if num_sequences < 1:
        raise RunStopped(
            f"num_sequences = {num_sequences!r} at an update: no sequence, no measured KL. "
            "Pass the number of sequences that the KL is a mean over."
        )
    return num_sequences


def checked_state(state: Mapping[str, Any], controller: str, keys: Set[str]) -> Mapping[str, Any]:
    """Return a saved state that has exactly ``keys`` beside its ``"controller"``.

    Raises:
        RunDirError: it was saved by another controller, or a key is missing, unknown or not finite.
    """
    saved_by = state.get("controller")
    if saved_by != controller:
        raise RunDirError(
            f"The saved controller state is of {saved_by!r}, and this run uses {controller!r}: one cannot go "
            "on from the other. Resume with the controller the run was started with, or start a new run."
        )
    wanted = keys | {"controller"}
    for name in state:
        if name not in wanted:
            raise RunDirError(
                f"The saved {controller} state has an unknown key {name!r}.{near_match(name, wanted)} "
                "It comes from another version of kleash: resume with that version, or start a new run."
            )
    missing = sorted(wanted - set(state))
    if missing:
        raise RunDirError(
            f"The saved {controller} state lacks {', '.join(missing)}, so resuming would not repeat the run. "
            "Resume from an intact checkpoint, or start a new run."
        )
    for name in keys:
        value = state[name]
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            raise RunDirError(
                f"The saved {controller} state has {name} = {value!r}, which no update can start from. "
                "Resume from an earlier checkpoint."
            )
    return state
