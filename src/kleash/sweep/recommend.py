"""Which value of the swept settings to take: the best held-out reward of checkpoints that qualify.

Each run is represented by the checkpoint that `frontier.choosing` takes from it. Runs that differ in `training.seed`
alone are repeats of one value: their mean counts, and its error is that over seeds. A value qualifies only if each of
its repeats has a checkpoint that does: one that goes wrong with some seeds is not to be recommended.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from kleash.frontier.choosing import Choice, choose
from kleash.frontier.points import Mean, RewardKind
from kleash.frontier.points import Point as Measured
from kleash.report.wording import number, with_error
from kleash.sweep.points import Point, short_keys

SEED = "training.seed"
SIGNIFICANCE = 0.05
NOTHING_GAINED = "That is where training started: none of the values has gained anything."
NOTHING_MEASURED = "nothing was measured on held-out prompts"


@dataclass(frozen=True)
class Value:
    """One combination of the swept settings, seeds aside.

    Attributes:
        settings: value of each swept key but the seed, as written.
        label: in short: "beta=0.02".
        chosen: the best checkpoint of each repeat that has one.
        failures: of the other repeats: which, and why.
        by: the reward that is compared.
    """

    settings: Mapping[str, str]
    label: str
    chosen: tuple[Measured, ...]
    failures: tuple[str, ...]
    by: RewardKind

    @property
    def qualifies(self) -> bool:
        """Whether every repeat has a checkpoint to take."""
        return bool(self.chosen) and not self.failures

    @property
    def reward(self) -> Mean:
        """Mean over repeats with its error over repeats; of a single one, with its error over held-out prompts."""
        return _over_repeats([_reward(point, self.by) for point in self.chosen])

    @property
    def kl(self) -> Mean:
        """The same for the KL, nats per sequence."""
        return _over_repeats([point.kl for point in self.chosen])

    @property
    def spread(self) -> float | None:
        """Standard deviation of the reward over repeats; None for a single one."""
        rewards = [_reward(point, self.by).value for point in self.chosen]
        return statistics.stdev(rewards) if len(rewards) > 1 else None

    @property
    def numbers(self) -> str:
        """Reward and KL in words."""
        return (
            f"{self.by} {with_error(self.reward.value, self.reward.stderr)} at "
            f"{with_error(self.kl.value, self.kl.stderr)} nats per sequence"
        )

    @property
    def is_start(self) -> bool:
        """Whether nothing that was trained is better than the model before it."""
        return all(point.is_start for point in self.chosen)

    @property
    def best_run(self) -> Measured:
        """The checkpoint with the highest reward among the repeats."""
        return max(self.chosen, key=lambda point: _reward(point, self.by).value)


@dataclass(frozen=True)
class Recommendation:
    """What a sweep has found.

    Attributes:
        values: those that qualify, the best first, then the others.
        by: the reward that they are compared by.
        max_kl: the limit that a checkpoint's KL had to keep, nats per sequence.
    """

    values: tuple[Value, ...]
    by: RewardKind
    max_kl: float | None

    @property
    def best(self) -> Value | None:
        """The value to take; None where none qualifies."""
        return next((value for value in self.values if value.qualifies), None)

    @property
    def runner_up(self) -> Value | None:
        """The next best that qualifies."""
        return next((value for value in self.values[1:] if value.qualifies), None)

    @property
    def told_apart(self) -> bool:
        """Whether the best is better than the runner-up by more than noise, at 95 %."""
        return self.best is not None and self.runner_up is not None and _is_better(self.best, self.runner_up)

    @property
    def nearest(self) -> Value | None:
        """Of those that qualify and cannot be told apart from the best, the one with the least KL; may be the best."""
        if self.best is None:
            return None
        alike = [value for value in self.values if value.qualifies and not _is_better(self.best, value)]
        return min(alike, key=lambda value: value.kl.value)

    def sentences(self) -> list[str]:
        """Say which value to take, how sure that is, and what did not qualify."""
        limit = "" if self.max_kl is None else f" within {number(self.max_kl)} nats per sequence"
        left_out = [
            f"{value.label} does not qualify: {'; '.join(value.failures)}."
            for value in self.values
            if not value.qualifies
        ]
        if self.best is None:
            return [f"No value qualifies{limit}.", *left_out]
        errors = _what_the_errors_are(self.best)
        if not self.best.settings:
            return [f"Over {len(self.best.chosen)} seeds{limit}: {self.best.numbers}.", errors]
        return [
            f"Take {self.best.label}: {self.best.numbers}, the best of {len(self.values)} values{limit}.",
            *([NOTHING_GAINED] if self.best.is_start else []),
            *self._compared(self.best),
            errors,
            *_at_the_edge(self.best, self.values),
            *left_out,
        ]

    def _compared(self, best: Value) -> list[str]:
        if self.runner_up is None:
            return ["Nothing else qualifies."]
        lead = best.reward.minus(self.runner_up.reward)
        verdict = "told apart" if self.told_apart else "not told apart at 95 %"
        behind = with_error(lead.value, lead.stderr)
        said = [f"Runner-up: {self.runner_up.label}, {self.runner_up.numbers}; {behind} less, {verdict}."]
        if self.nearest is self.runner_up:
            said.append("The runner-up is the nearest to the start among those that the best cannot be told from.")
        elif self.nearest is not None and self.nearest is not best:
            said.append(
                f"Nearest to the start among those that the best cannot be told from: {self.nearest.label}, "
                f"{self.nearest.numbers}."
            )
        return said


def recommend(
    points: Sequence[Point], measured: Mapping[Point, Sequence[Measured]], max_kl: float | None, by: RewardKind
) -> Recommendation:
    """Compare the values of a sweep.

    Args:
        points: of the sweep.
        measured: the held-out evaluations of those that have some.
        max_kl: limit of KL for a checkpoint, nats per sequence.
        by: the reward to compare by.

    Raises:
        DataError: the runs have different rewards of that kind, whose numbers cannot be ranked.
    """
    choose([found for evaluations in measured.values() for found in evaluations], max_kl, by)
    repeats: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in points:
        others = tuple((key, value) for key, value in point.values.items() if key != SEED)
        repeats.setdefault(others, []).append(point)
    values = [_value(dict(settings), runs, measured, max_kl, by) for settings, runs in repeats.items()]
    able = sorted(filter(_qualifies, values), key=lambda value: (-value.reward.value, value.kl.value))
    return Recommendation((*able, *itertools.filterfalse(_qualifies, values)), by, max_kl)


def _qualifies(value: Value) -> bool:
    return value.qualifies


def _value(
    settings: Mapping[str, str],
    runs: Sequence[Point],
    measured: Mapping[Point, Sequence[Measured]],
    max_kl: float | None,
    by: RewardKind,
) -> Value:
    chosen, failures = [], []
    for run in runs:
        evaluations = [found for found in measured.get(run, ()) if found.reward(by) is not None]
        choice = choose(evaluations, max_kl, by) if evaluations else None
        if choice is not None and choice.chosen is not None:
            chosen.append(choice.chosen)
        else:
            seed = f"seed {run.values[SEED]}: " if SEED in run.values else ""
            failures.append(seed + (NOTHING_MEASURED if choice is None else _reasons(choice)))
    shorts = short_keys(settings)
    label = " ".join(f"{shorts[key]}={value}" for key, value in settings.items()) or "the run"
    return Value(settings, label, tuple(chosen), tuple(failures), by)


def _reasons(choice: Choice) -> str:
    return ", ".join(f"{one.reason} ({len(one.points)} of its points)" for one in choice.exclusions)


def _over_repeats(means: Sequence[Mean]) -> Mean:
    if len(means) == 1:
        return means[0]
    values = [mean.value for mean in means]
    return Mean(statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values)))


def _is_better(best: Value, other: Value) -> bool:
    """Welch's test over repeats; by the errors over held-out prompts where both values have a single run."""
    repeats = len(best.chosen), len(other.chosen)
    if repeats == (1, 1):
        return best.reward.is_above(other.reward)
    if min(repeats) == 1 or not (best.spread or other.spread):
        return False
    test = stats.ttest_ind_from_stats(
        best.reward.value, best.spread, repeats[0], other.reward.value, other.spread, repeats[1], equal_var=False
    )
    return bool(test.pvalue < SIGNIFICANCE and best.reward.value > other.reward.value)


def _what_the_errors_are(best: Value) -> str:
    if best.spread is None:
        return (
            "± is over the held-out prompts of one run each: how much runs scatter is not in it. "
            "training.seed=0,1,2 beside the values shows that."
        )
    return f"± is over {len(best.chosen)} seeds, whose rewards have a standard deviation of {number(best.spread)}."


def _at_the_edge(best: Value, values: Sequence[Value]) -> list[str]:
    """Say where the best of several numbers is the smallest or the largest one: the optimum may lie beyond."""
    said = []
    for key, text in best.settings.items():
        numbers = {_number(value.settings[key]) for value in values}
        if None in numbers or len(numbers) < 2:
            continue
        known = [one for one in numbers if one is not None]
        edge = "smallest" if _number(text) == min(known) else "largest" if _number(text) == max(known) else ""
        if edge and _number(text) != 0:
            said.append(f"{key} = {text} is the {edge} value tried: a better one may lie beyond.")
    return said


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _reward(point: Measured, by: RewardKind) -> Mean:
    reward = point.reward(by)
    if reward is None:
        raise ValueError(f"{point.name} has no {by} reward")
    return reward
