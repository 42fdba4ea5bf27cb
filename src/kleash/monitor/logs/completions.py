"""The completions that TRL keeps with `log_completions`: a Parquet file a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kleash.monitor.log import LoggedSample
from kleash.monitor.logs.raw import to_number, to_step

_GIVEN = frozenset({"step", "prompt", "completion", "advantage"})


def read_completions(folder: Path) -> tuple[list[LoggedSample], list[str]]:
    """Return the samples of every file in a folder, by step, and a note on each file that cannot be read.

    Without the `pyarrow` package there are none, and a note says what to install: the numbers are read all the same.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        return [], []
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        return [], [
            f"{folder} holds {len(files)} files of completions, which need pyarrow, and that is not installed: "
            "pip install 'kleash[data]'."
        ]
    samples: list[LoggedSample] = []
    notes: list[str] = []
    for path in files:
        try:
            table = pyarrow.parquet.read_table(path)
            samples += [_sample(row, path) for row in table.to_pylist()]
        except (OSError, ValueError, KeyError) as error:
            reason = f"no column {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
            notes.append(f"{path} cannot be read ({reason}): it is torn or not TRL's. Its completions are left out.")
    return sorted(samples, key=lambda sample: sample.step), notes


def _sample(row: Mapping[str, Any], path: Path) -> LoggedSample:
    rewards = {
        name: to_number(value)
        for name, value in row.items()
        if name not in _GIVEN and isinstance(value, int | float | None)
    }
    step = to_step(row["step"], str(path), "step")
    return LoggedSample(step, _text(row["prompt"]), _text(row["completion"]), rewards)


def _text(value: Any) -> str:
    """Return a prompt or completion as text: a conversation has a line a message."""
    if isinstance(value, list):
        return "\n".join(f"{message.get('role', '')}: {message.get('content', '')}" for message in value)
    return str(value)
