"""Reward: nothing left to learn from."""

from __future__ import annotations

import math

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import POSITIVE_FACTORS, Watch, factors, fresh, span
from kleash.runs.records import Cause

FROM_START = factors(0.2, 0.0)
"""The spread shrinks as a reward is learned; a fifth of it leaves advantages that are mostly noise. Never critical:
nothing is damaged by a gradient of 0."""
FROM_BASELINE = factors(0.3, 0.0)
"""The same against what the run had settled on."""
FLAT_SHARE = 0.95
"""Share of groups without any difference at which hardly a prompt is learned from."""
FLAT_STEPS = 10
"""Steps in a row, at the least: rewards that are 0 or 1 leave a small batch without a difference now and then."""
CHANCE = 1e-5
"""As many steps in a row are asked for as chance would give this seldom, at the share of such steps before."""


class NoSignal:
    """The samples of a prompt all get the same reward: the advantages vanish and nothing more is learned."""

    name = "reward/no_signal"
    title = "no learning signal"
    looks_at = ("reward/group_sd", "reward/sd", "reward/flat_groups")
    causes = (
        Cause(
            "the replies to a prompt are all alike",
            "samples of one prompt; entropy/per_token and text/distinct_2 falling with it",
        ),
        Cause(
            "the reward is at its end: solved, or exploited", "reward/proxy near its largest value; read the samples"
        ),
        Cause("the reward can not tell replies apart", "the reward of two replies of which one is plainly worse"),
        Cause("the prompts are too hard or too easy: all replies fail, or all succeed", "reward/proxy by prompt"),
        Cause(
            "clipping makes them equal",
            "reward/clipped_share; the bounds that rewards are cut to (in Kleash: reward.clip)",
        ),
    )
    advice = (
        "If the replies read well, the run is done. If they are all alike, go back to a checkpoint with more entropy; "
        "if the task is too hard or too easy, change the prompts or sample more replies to each (in Kleash: "
        "algorithm.num_generations)."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watches = {
            key: Watch(key, POSITIVE_FACTORS, from_start=FROM_START, from_baseline=FROM_BASELINE)
            for key in self.looks_at[:2]
        }
        self._flat = _FlatSteps()

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest spread with the start, later with the baseline; count the steps without any."""
        self._flat.push(history)
        key = history.first_of(self.looks_at[:2])
        shift = None if key is None else self._watches[key].look(history, facts)
        if shift is not None:
            message = (
                f"The reward's spread is {shift.now:.2g} ({shift.key}), {shift.now / shift.level:.1%} of the "
                f"{shift.level:.3g} of {shift.against}."
            )
            return Finding("warning", message, shift.values, shift.began)
        steps, track = self._flat.steps, history["reward/group_sd" if self._flat.by_spread else "reward/flat_groups"]
        if steps < self._flat.needed:
            return None
        message = (
            f"In each of {span(track, steps)} (nearly) all prompts had replies with one and the same reward: there is "
            "no gradient."
        )
        return Finding("warning", message, {"steps": float(steps)}, int(track.steps(steps)[0]))


class _FlatSteps:
    """Counts the steps in a row in which the replies to a prompt had one reward, as far as it was measured.

    Attributes:
        steps: the newest in a row.
        needed: how many of them are more than chance.
        by_spread: whether the spread within a group tells of it, not the share of groups without one.
    """

    def __init__(self) -> None:
        self.steps, self.needed = 0, FLAT_STEPS
        self.by_spread = False
        self._measured = self._flat = 0

    def push(self, history: History) -> None:
        """Take the newest step in."""
        spread, share = fresh(history, "reward/group_sd"), fresh(history, "reward/flat_groups")
        if spread is None and share is None:
            return
        self.by_spread = spread is not None
        if spread == 0.0 or (share is not None and share >= FLAT_SHARE):
            self.steps += 1
            return
        self._measured += self.steps + 1
        self._flat += self.steps
        self.steps = 0
        if self._flat:
            self.needed = max(FLAT_STEPS, math.ceil(math.log(CHANCE) / math.log(self._flat / self._measured)))
