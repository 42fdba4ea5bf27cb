"""Reward: nothing left to learn from."""

from __future__ import annotations

from kleash.monitor.history import History
from kleash.monitor.rule import Facts, Finding
from kleash.monitor.rules.trends import FACTORS, Watch, factors, fresh
from kleash.runs.records import Cause

FROM_START = factors(0.2, 0.0)
"""The spread shrinks as a reward is learned; a fifth of it leaves advantages that are mostly noise. Never critical:
nothing is damaged by a gradient of 0."""
FROM_BASELINE = factors(0.3, 0.0)
"""The same against what the run had settled on."""
FLAT_SHARE = 0.95
"""Share of groups without any difference at which hardly a prompt is learned from."""
FLAT_STEPS = 10
"""Steps in a row: rewards that are 0 or 1 leave a small batch without a difference now and then."""


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
        Cause("clipping makes them equal", "reward/clipped_share and reward.clip"),
    )
    advice = (
        "If the replies read well, the run is done. If they are all alike, go back to a checkpoint with more entropy; "
        "if the task is too hard or too easy, change the prompts or raise algorithm.num_generations."
    )

    def __init__(self) -> None:
        """Start without a baseline."""
        self._watches = {
            key: Watch(key, FACTORS, from_start=FROM_START, from_baseline=FROM_BASELINE) for key in self.looks_at[:2]
        }
        self._flat_since: int | None = None
        self._flat = 0

    def __call__(self, history: History, facts: Facts) -> Finding | None:
        """Compare the newest spread with the start, later with the baseline; count the steps without any."""
        self._count(history)
        key = history.first_of(self.looks_at[:2])
        shift = None if key is None else self._watches[key].look(history, facts)
        if shift is not None:
            message = (
                f"The reward's spread is {shift.now:.2g} ({shift.key}), {shift.now / shift.level:.1%} of the "
                f"{shift.level:.3g} of {shift.against}."
            )
            return Finding("warning", message, shift.values, shift.began)
        if self._flat < FLAT_STEPS or self._flat_since is None:
            return None
        message = (
            f"In each of the last {self._flat} steps (nearly) all prompts had replies with one and the same reward: "
            "there is no gradient."
        )
        return Finding("warning", message, {"steps": float(self._flat)}, self._flat_since)

    def _count(self, history: History) -> None:
        spread, share = fresh(history, "reward/group_sd"), fresh(history, "reward/flat_groups")
        if spread is None and share is None:
            return
        if spread == 0.0 or (share is not None and share >= FLAT_SHARE):
            self._flat += 1
            self._flat_since = history.now if self._flat == 1 else self._flat_since
        else:
            self._flat, self._flat_since = 0, None
