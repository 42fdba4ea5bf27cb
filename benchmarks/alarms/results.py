"""All that the table states: how much is measured, on which seeds, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.alarms import traces
from benchmarks.alarms.measure import Detections, FalseAlarms, Onset, all_onsets, detections, false_alarms
from benchmarks.alarms.nulls import KINDS, SCRIPTED

CHOOSING_SEEDS = range(10_000)
"""Seeds on which the thresholds of Kleash's rules were chosen; nothing is evaluated on them."""


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Args:
        runs: healthy runs of each kind.
        run_steps: steps of each; so that every rule estimates its baseline as in use.
        repeats: faulty runs of each scenario on each kind of noise.
        first_healthy: seed of the first healthy run.
        first_faulty: seed of the first faulty run.
    """

    runs: int
    run_steps: int
    repeats: int
    first_healthy: int = 3_000_000
    first_faulty: int = 4_000_000

    @property
    def healthy_seeds(self) -> range:
        """Return the seeds of the healthy runs."""
        return range(self.first_healthy, self.first_healthy + self.runs)

    @property
    def faulty_seeds(self) -> range:
        """Return the seeds of the faulty runs."""
        return range(self.first_faulty, self.first_faulty + self.repeats)


FULL = Amounts(runs=100, run_steps=2000, repeats=200)
QUICK = Amounts(runs=10, run_steps=2000, repeats=20)
CHOOSING = Amounts(runs=100, run_steps=2000, repeats=200, first_healthy=0, first_faulty=5_000)
"""For choosing thresholds: all its seeds are among `CHOOSING_SEEDS`."""


@dataclass(frozen=True)
class Replayed:
    """A real run as it was, and what Kleash and each published rule say of it."""

    name: str
    steps: int
    onsets: dict[str, list[Onset]]


@dataclass(frozen=True)
class Results:
    """What came out.

    Args:
        amounts: how much was measured.
        false_alarms: by kind of healthy run and set of rules.
        detections: by kind of noise, scenario and set of rules.
        real: the real runs, each replayed once.
    """

    amounts: Amounts
    false_alarms: dict[str, dict[str, FalseAlarms]]
    detections: dict[str, dict[str, dict[str, Detections]]]
    real: list[Replayed]


def measure(amounts: Amounts, progress: Callable[[str], None]) -> Results:
    """Measure everything; the full amount takes minutes on one core."""
    return Results(
        amounts,
        {kind: false_alarms(kind, amounts.healthy_seeds, amounts.run_steps, progress) for kind in KINDS},
        {kind: detections(kind, amounts.faulty_seeds, progress) for kind in SCRIPTED},
        [replayed(name) for name in traces.names()],
    )


def replayed(name: str) -> Replayed:
    """Return what is said of a real run."""
    numbers = traces.read(name)
    return Replayed(name, len(numbers), all_onsets(numbers))
