"""The files that a command writes its results to: refused before the work, written in one piece after it."""

from __future__ import annotations

import os
from pathlib import Path

from kleash.errors import ConfigError, RunDirError

STDOUT = "-"
"""What `--json` takes for standard output."""


def check_files(json_path: str | None, out: Path | None, example: str) -> None:
    """Refuse what could not be written later.

    Args:
        json_path: what `--json` was given: a file, `-` or nothing.
        out: what `--out` was given.
        example: the name of a page, for a message.

    Raises:
        ConfigError: a folder that is not there, or one in place of a file.
    """
    for option, path in (("--json", None if json_path in (None, STDOUT) else Path(str(json_path))), ("--out", out)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{option} {path}: there is no folder {path.parent} to write it in. Make it first.")
        if path is not None and path.is_dir():
            raise ConfigError(f"{option} {path} is a folder. Give the name of a file, such as {path / example}.")


def replace_file(path: Path, text: str) -> None:
    """Write a file in one piece, so that a reader never finds half of it.

    Raises:
        RunDirError: it cannot be written.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise RunDirError(
            f"{path} cannot be written: {error.strerror or error}. Give a path in a folder that is yours."
        ) from error
