"""What can go wrong, who is at fault, and the exit code that says so.

A `KleashError` is the user's to mend: the command line prints its text without a traceback. A message says the
value and where it came from, why that cannot work, and what to do. Anything else that escapes is our bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_STOPPED = 3
EXIT_ALARM = 4
EXIT_INTERRUPTED = 130


class KleashError(Exception):
    """Base of every error whose text is written for the user."""

    exit_code = EXIT_USER


class ConfigError(KleashError, ValueError):
    """A setting that cannot work: raised at load, before any weight is read."""


class DataError(KleashError, ValueError):
    """Prompts, rewards or comparisons that cannot be used."""


class ModelError(KleashError, ValueError):
    """A model, adapter or tokenizer that cannot be loaded or does not fit the run."""


class RunDirError(KleashError, OSError):
    """A run directory that cannot be written, read or resumed."""


class RunStopped(KleashError, RuntimeError):
    """A rule ended the run: a non-finite number, a KL limit, a failed check. The run stays resumable."""

    exit_code = EXIT_STOPPED


def near_match(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
