"""What was measured before: replies and token numbers on disk, keyed by fingerprints of everything they depend on.

A measurement that was interrupted goes on from here, and a second tuned model finds the reference's replies done.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kleash.models.demo_model import cache_dir

VERSION = 1
"""Raise it when what is stored, or how it is measured, changes."""

Arrays = dict[str, np.ndarray[Any, Any]]


class Cache:
    """Named arrays under a digest of their key, in memory and in `folder`, if there is one."""

    def __init__(self, folder: Path | None) -> None:
        """Keep entries in `folder` too, which is made when the first is written."""
        self._folder = folder
        self._memory: dict[str, Arrays] = {}

    def get(self, **key: Any) -> Arrays | None:
        """What was put under the same key, or None. A damaged entry counts as none."""
        name = _digest(key)
        if name in self._memory or self._folder is None:
            return self._memory.get(name)
        try:
            with (self._folder / name).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, arrays: Arrays, **key: Any) -> None:
        """Store arrays, all of them or nothing. A folder that cannot be written ends the caching, not the work."""
        name = _digest(key)
        self._memory[name] = arrays
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part", delete=False) as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            os.replace(file.name, self._folder / name)
        except OSError:
            self._folder = None


def standard() -> Cache:
    """The cache in the user's cache folder, `$KLEASH_CACHE/gauge` if that is set."""
    return Cache(cache_dir() / "gauge")


def _digest(key: Mapping[str, Any]) -> str:
    text = json.dumps({"version": VERSION, **key}, sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
