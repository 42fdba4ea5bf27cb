"""`kleash train`: start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kleash.cli.progress import watching
from kleash.cli.settings import load_arguments
from kleash.config.loader import Loaded, to_dict
from kleash.errors import ConfigError
from kleash.report.run_summary import controlled_key
from kleash.runs.reader import RunReader


def run(arguments: Sequence[str], resume: Path | None = None) -> None:
    """Train as the file and settings say, or resume a run.

    Args:
        arguments: at most one TOML file, and `key=value` settings; none of them with `resume`.
        resume: folder of the run to go on with.

    Raises:
        KleashError: settings, data or a model that cannot be used, or a run that a rule stopped.
        KeyboardInterrupt: Ctrl-C, after a checkpoint.
    """
    if resume is None:
        start(load_arguments(arguments))
        return
    if arguments:
        raise ConfigError(
            f"{' '.join(arguments)} has no effect with --resume {resume}: a run goes on with the settings it was "
            "started with, which are stored in it. Leave it out, or start a new run without --resume."
        )
    with RunReader(resume) as reader:
        kl_key = controlled_key(reader.config)
    from kleash.training import run as training

    with watching(kl_key) as observer:
        training.resume(resume, observer=observer)


def start(loaded: Loaded) -> Path:
    """Start a run under the eyes of the terminal; return its folder."""
    with watching(controlled_key(to_dict(loaded.config))) as observer:
        observer.fact(f"settings   {loaded.source}")
        from kleash.training import run as training

        return training.train(loaded.config, observer=observer, warnings=loaded.warnings)
