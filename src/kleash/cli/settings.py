"""Command-line words to a checked configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kleash.config.loader import Loaded, load
from kleash.errors import ConfigError


def load_arguments(arguments: Sequence[str]) -> Loaded:
    """Load `run.toml key=value ...`: a word with an equals sign is a setting, any other the file.

    Raises:
        ConfigError: two files, or settings that cannot work.
    """
    files = [word for word in arguments if "=" not in word]
    if len(files) > 1:
        raise ConfigError(
            f"There are {len(files)} files on the command line ({', '.join(files)}); a run has one. Merge them, or "
            "give single settings as key=value."
        )
    overrides = [word for word in arguments if "=" in word]
    return load(Path(files[0]) if files else None, overrides)
