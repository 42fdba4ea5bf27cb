"""Where a recipe's numbers come from: commit, dates, seeds, weights and machine, as the runs recorded them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kleash
from kleash.report.wording import number
from kleash.runs.reader import RunReader
from recipes.evidence.recipe import Run

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Origin:
    """What a reader needs to know of how numbers were made; times are those of the steps, evaluation apart."""

    commit: str
    dates: tuple[str, ...]
    seeds: tuple[int, ...]
    weights: str
    torch: str
    device: str
    dtype: str
    minutes: tuple[float, float]
    """Of the fastest run and of the slowest."""

    @property
    def sentence(self) -> str:
        """In words, for README.md."""
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        return (
            f"Measured on {' and '.join(self.dates)}, commit `{self.commit}`, {seeds}; weights: {self.weights}; "
            f"torch {self.torch} on {self.device}, {self.dtype}. The steps of a run took "
            f"{number(self.minutes[0])} to {number(self.minutes[1])} minutes, beside whatever else the machine did."
        )


def origin_of(runs: Sequence[Run]) -> Origin:
    """Read from finished runs where they come from; the commit is that of the Kleash that reads them."""
    dates, seeds, minutes = set(), set(), []
    for run in runs:
        with RunReader(run.path) as reader:
            meta = reader.meta
            dates.add(reader.created_at[:10])
            seeds.add(int(reader.config["training"]["seed"]))
            minutes.append(sum(seconds for _, seconds, _ in reader.series("time/total")) / 60)
    return Origin(
        commit=commit(),
        dates=tuple(sorted(dates)),
        seeds=tuple(sorted(seeds)),
        weights=_weights(meta["weights_source"]),
        torch=meta["versions"]["torch"],
        device=meta["device"],
        dtype=meta["dtype"].removeprefix("torch."),
        minutes=(min(minutes), max(minutes)),
    )


def _weights(source: str) -> str:
    """Return where weights are from; a folder of this repository is named from its root."""
    folder = Path(source).resolve()
    return str(folder.relative_to(ROOT)) if folder.is_relative_to(ROOT) else source


def commit() -> str:
    """Return the commit that Kleash's source is at, or "unknown" where it is no checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        said = subprocess.run(command, cwd=Path(kleash.__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
