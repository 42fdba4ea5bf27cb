"""From a recipe's settings to finished runs, by `kleash sweep`: finished ones are kept, interrupted ones go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kleash.cli import sweep
from kleash.sweep.record import open_sweep
from recipes.evidence.recipe import Run


def finished_runs(file: Path, settings: Sequence[str], folder: Path, jobs: int | None = None) -> list[Run]:
    """Train every combination of the settings' values that `folder` does not hold yet, and return all runs.

    Args:
        file: run.toml, what all runs share.
        settings: `key=value,value`, at least one with several values.
        folder: of the sweep.
        jobs: runs at once; None for as many as the machine has room for.

    Raises:
        KleashError: settings that cannot work, or runs that did not finish.
    """
    words = [str(file), *settings, f"name={folder.name}", f"output_dir={folder.parent}"]
    sweep.run(words, jobs=jobs)
    found = open_sweep(folder)
    return [Run(point.values, found.run_dir(point)) for point in found.points]
