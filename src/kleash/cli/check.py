"""`kleash check`: run the preflight of a run and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.cli.progress import watching
from kleash.cli.settings import load_arguments
from kleash.config.loader import to_dict
from kleash.errors import RunStopped
from kleash.report.run_summary import controlled_key


def run(arguments: Sequence[str]) -> None:
    """Check the run that the file and settings describe; no run directory is made.

    Raises:
        RunStopped: a check failed that `skip_checks` does not name.
        KleashError: settings, data or a model that cannot be used.
    """
    loaded = load_arguments(arguments)
    with watching(controlled_key(to_dict(loaded.config))) as observer:
        for warning in loaded.warnings:
            observer.fact(f"note       {warning}")
        from kleash.training import run as training

        passed = training.check(loaded.config, observer=observer)
    if not passed:
        raise RunStopped(
            "A check failed, so this run would stop before its first step. Mend what it names above, or list the check "
            "in skip_checks if it is meant."
        )
    print(f"All checks passed: kleash train {' '.join(arguments)}")
