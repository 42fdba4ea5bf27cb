"""`kleash label candidates`: fill a label store with samples of a model."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.cli.screen import bars, screen
from kleash.cli.settings import load_arguments
from kleash.errors import ConfigError
from kleash.labels.store import LabelStore


def run(arguments: Sequence[str], store: str, pairs: int) -> None:
    """Sample pairs of completions on the training prompts of a run, and put them into the queue.

    Args:
        arguments: at most one TOML file, and `key=value` settings.
        store: an SQLite file or a database URL.
        pairs: how many to add.

    Raises:
        KleashError: settings, data, a model or a store that cannot be used.
    """
    if pairs < 1:
        raise ConfigError(f"--pairs {pairs} asks for nothing to compare. Give 1 or more.")
    config = load_arguments(arguments).config
    with LabelStore.open(store) as labels:
        from kleash.training.candidates import candidate_pairs

        with bars(screen()) as progress:
            task = progress.add_task("sampling", total=None, count="")
            found = candidate_pairs(
                config, pairs, lambda done, total: progress.update(task, completed=done, total=total)
            )
        added = labels.add(found)
        waiting, name = labels.progress().total, labels.name
    known = len(found) - added
    there = f", {known} were there already" if known else ""
    print(f"{added} pairs added to {name}{there}; {waiting} in all")
    print("Compare them: kleash label serve, with the same --store")
