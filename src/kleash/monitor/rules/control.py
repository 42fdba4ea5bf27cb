"""The leash: beta at its bounds, targets out of reach, and runs that stand still on a short one."""

from __future__ import annotations

import math

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import span
from kleash.monitor.rules.windows import contrast
from kleash.runs.records import Cause

SATURATED_STEPS = 20
"""Steps in a row at a bound: a controller that comes from a bad start touches one for a few."""
UNREACHABLE_STEPS = 50
"""Steps in a row at a bound after which the KL would have followed."""
RECENT_STEPS = 20
"""Newest steps whose mean KL is compared with the target."""
ABOVE, BELOW = 1.25, 0.8
"""Mean KL over target: what a controller that works keeps within."""

FLAT_WINDOW = 50
"""Steps whose mean reward is compared with that of as many before."""
FLAT_SCORE = 1.0
"""In standard errors."""
SETTLED = (0.8, 1.25)
"""Mean KL over target, or over that of the window before: the leash is taut, the drift does not move."""
TAUT = 0.1
"""Price of the drift, beta times the KL per sequence, over the reward's spread within a group. Below it the leash costs
so little that a longer one would change nothing."""


class _AtBound:
    """Counts the steps in a row in which beta was cut to a bound, by `control/saturated`, the number of them so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.since = 0
        self._before: float | None = None

    def push(self, history: History) -> None:
        """Take the newest step in; one that did not measure it changes nothing."""
        saturated = history.fresh.get("control/saturated")
        if saturated is None:
            return
        if self._before is None or saturated <= self._before:
            self.steps = 0
        else:
            self.steps += 1
            self.since = history.now if self.steps == 1 else self.since
        self._before = saturated


class Saturated:
    """beta is at a bound: the controller can not do what it wants to."""

    name = "control/saturated"
    title = "beta at its bound"
    looks_at = ("control/saturated", "control/beta", "control/target")
    causes = (
        Cause(
            "the starting beta is far off, and its bounds with it",
            "beta at the start (in Kleash: algorithm.kl.beta; the bounds are 1000 times off it)",
        ),
        Cause(
            "the target asks for more drift than the reward pays for",
            "KL below the target with beta at its floor: the leash is slack, which is no fault",
        ),
        Cause("the learning rate is too high: no beta holds the KL", "KL above the target; the learning rate"),
    )
    advice = (
        "If the KL is above its target, lower the learning rate or start from a larger beta (in Kleash: "
        "training.learning_rate, algorithm.kl.beta). If it is below with beta at its floor, the leash holds nothing "
        "back: set the target to the KL that you see, or leave it."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._at_bound = _AtBound()

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Count the steps at a bound."""
        bound = self._at_bound
        bound.push(history)
        if bound.steps < SATURATED_STEPS:
            return None
        beta, over = history.latest("control/beta"), _mean_over_target(history, facts, RECENT_STEPS)
        times = span(history["control/saturated"], bound.steps)
        slack = over is not None and over < 1
        held = "" if over is None else f", and the KL at {over:.2g} times its target"
        at = "at a bound" if beta is None else f"at a bound ({beta:.3g})"
        return Finding(
            "info" if slack else "warning",
            f"beta has been {at} in {times}{held}.",
            {"control/beta": beta, "steps": float(bound.steps), "kl_over_target": over},
            bound.since,
        )


class Unreachable:
    """No beta within the bounds brings the KL to its target."""

    name = "control/unreachable"
    title = "target out of reach"
    looks_at = ("control/saturated", "kl/exact_per_sequence", "kl/exact_per_token", "control/target")
    causes = (
        Cause(
            "the target is above what the reward asks for, or above what the replies have room for",
            "KL below the target with beta at its floor; reward/group_sd near 0",
        ),
        Cause(
            "the policy was carried away faster than beta could rise",
            "KL above the target with beta at its ceiling; the learning rate",
        ),
        Cause(
            "the target is in another unit than meant", "nats per sequence or per token; a reply has length/mean tokens"
        ),
    )
    advice = (
        "Below the target: set a lower one, or leave the run as it is, for the leash does not bind. Above it: go back "
        "to a checkpoint with a lower KL and lower the learning rate (in Kleash: training.learning_rate)."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._at_bound = _AtBound()

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the KL with its target after many steps at a bound."""
        bound = self._at_bound
        bound.push(history)
        over = _mean_over_target(history, facts, RECENT_STEPS) if bound.steps >= UNREACHABLE_STEPS else None
        if over is None or BELOW <= over <= ABOVE:
            return None
        below = over < 1
        return Finding(
            "info" if below else "warning",
            f"The KL stays {'below' if below else 'above'} its target, at {over:.2g} times it on average, though beta "
            f"has been at its bound in {span(history['control/saturated'], bound.steps)}.",
            {"kl_over_target": over, "control/beta": history.latest("control/beta"), "steps": float(bound.steps)},
            bound.since,
        )


class Stalled:
    """The reward has stopped rising while the leash is taut: a longer one may buy more."""

    name = "progress/stalled"
    title = "stalled on a short leash"
    looks_at = ("reward/proxy", "kl/exact_per_sequence", "control/beta", "control/target", "reward/group_sd")
    causes = (
        Cause(
            "the leash holds the policy where the reward can not rise further", "beta times the KL, beside the reward"
        ),
        Cause("the reward is at its end", "reward/proxy near its largest value, reward/group_sd near 0"),
        Cause("the learning rate is too low", "the learning rate; optim/grad_norm"),
    )
    advice = (
        "Where the samples read well, loosening is due: lower beta or raise the target by a quarter (in Kleash: "
        "algorithm.kl.beta, algorithm.kl.target_nats_per_sequence; monitor.loosen does it within a limit)."
    )

    def __init__(self) -> None:
        """Start before the first step."""
        self._found: Finding | None = None

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare two windows of the reward, and the drift with its target."""
        if "reward/proxy" in history.fresh and len(history["reward/proxy"]) % RECENT_STEPS == 0:
            self._found = _stalled(history, facts)
        return self._found


def _stalled(history: History, facts: Facts) -> Finding | None:
    rewards = history["reward/proxy"]
    reward = contrast(rewards, FLAT_WINDOW)
    kl = contrast(history["kl/exact_per_sequence"], FLAT_WINDOW)
    logged = history.latest("control/beta")
    beta = facts.beta if logged is None else logged
    if reward is None or kl is None or not beta or not reward.stderr or abs(reward.score) >= FLAT_SCORE:
        return None
    target = _mean_over_target(history, facts, FLAT_WINDOW)
    settled = target if target is not None else kl.newest / kl.before if kl.before > 0 else math.inf
    spread = history["reward/group_sd"].values(FLAT_WINDOW)
    if not SETTLED[0] <= settled <= SETTLED[1] or not len(spread):
        return None
    price = beta * kl.newest
    if price < TAUT * float(spread.mean()):
        return None
    return Finding(
        "info",
        f"The reward has stayed at {reward.newest:.3g} ± {reward.stderr:.2g} over {span(rewards, 2 * FLAT_WINDOW)}, "
        f"with the KL at {kl.newest:.3g} nats per sequence and its price at {price:.2g} (beta {beta:.3g}). Loosening "
        "may be due.",
        {"reward/proxy": reward.newest, "reward_before": reward.before, "kl": kl.newest, "price": price},
        int(rewards.steps(2 * FLAT_WINDOW)[0]),
    )


def _mean_over_target(history: History, facts: Facts, window: int) -> float | None:
    """Mean of the KL over the newest steps, over the newest target; None where there is no target."""
    target = history.latest("control/target")
    if facts.target_key is None or not target or not len(history[facts.target_key]):
        return None
    return float(history[facts.target_key].values(window).mean()) / target
