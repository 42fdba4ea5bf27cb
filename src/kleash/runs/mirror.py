"""metrics.jsonl: the steps once more, a flat JSON object a line, for `tail -f`, jq and pandas.

The database is the record. A line that a killed process left torn is mended on resume by writing the mirror
anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kleash.runs.encoding import dump, store
from kleash.runs.records import Step


def line(step: Step) -> str:
    """Return a step as one line: `step`, each metric under its key, then `KEY.stderr` and `note.NAME`.

    A metric that was not measured is null; NaN and the infinities are the strings "nan", "inf" and "-inf".
    """
    flat: dict[str, object] = {"step": step.step}
    flat |= {key: store(value) for key, value in step.metrics.items()}
    flat |= {f"{key}.stderr": store(value) for key, value in step.stderr.items()}
    flat |= {f"note.{name}": text for name, text in step.notes.items()}
    return dump(flat) + "\n"


def rewrite(path: Path, steps: Iterable[Step]) -> None:
    """Replace the mirror as a whole: readers see the file before or the file after."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("".join(line(step) for step in steps), encoding="utf-8")
    os.replace(fresh, path)
