"""Task scores of both models from the results files of lm-evaluation-harness.

`lm_eval --output_path ...` writes one `results_*.json` a model. A task has its metrics as `metric,filter` and their
standard errors as `metric_stderr,filter`. Metrics of which less is better, such as perplexity, are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kleash.errors import ConfigError, DataError
from kleash.gauge.records import Estimate, Score

Z = 1.959964
"""Half width of a normal 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Mean:
    """A metric of one model; the standard error is NaN where the harness gives none."""

    value: float
    stderr: float
    count: int


def read_all(paths: Sequence[Path], tuned: int) -> list[tuple[Score, ...]]:
    """Return the scores of each tuned model; none where no file is given.

    Args:
        paths: the results of the reference, then those of each tuned model.
        tuned: how many tuned models there are.

    Raises:
        ConfigError: another number of files than of models.
        DataError: a file that holds no results, or none that the reference's has too.
    """
    if not paths:
        return [()] * tuned
    if len(paths) != tuned + 1:
        raise ConfigError(
            f"--lm-eval is given {len(paths)} times for 1 reference and {tuned} tuned: a results file holds the scores "
            "of one model. Give it once for REFERENCE, then once for each TUNED, in their order."
        )
    return [read_scores(paths[0], path) for path in paths[1:]]


def read_scores(reference: Path, tuned: Path) -> tuple[Score, ...]:
    """Return every metric that both files have, with normal 95 % intervals from their standard errors.

    The interval of a difference takes the two as independent: on the same questions it is wider than need be.

    Raises:
        DataError: a file that holds no results, or no metric in common.
    """
    ours, theirs = _read(reference), _read(tuned)
    shared = [name for name in ours if name in theirs]
    if not shared:
        raise DataError(
            f"{tuned} has no score in common with {reference}: it has {_some(theirs)}, the reference's has "
            f"{_some(ours)}. Run both models on the same tasks."
        )
    return tuple(_score(name, ours[name], theirs[name]) for name in shared)


def _score(name: str, reference: Mean, tuned: Mean) -> Score:
    stderr = math.hypot(reference.stderr, tuned.stderr)
    difference = Mean(tuned.value - reference.value, stderr, min(reference.count, tuned.count))
    return Score(name, *(_estimate(one) for one in (reference, tuned, difference)))


def _estimate(mean: Mean) -> Estimate:
    return Estimate(mean.value, mean.value - Z * mean.stderr, mean.value + Z * mean.stderr, mean.count, mean.count)


def _read(path: Path) -> dict[str, Mean]:
    """Return the metrics of a results file, named as `task metric`, with the filter where it has one."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"--lm-eval {path} cannot be read: {error.strerror}. Check the path.") from error
    except ValueError as error:
        raise DataError(f"--lm-eval {path} is no JSON: {error}. Give the results_*.json of lm_eval.") from error
    results = whole.get("results") if isinstance(whole, Mapping) else None
    if not isinstance(results, Mapping):
        raise DataError(
            f"--lm-eval {path} has no 'results'. Give the results_*.json that lm_eval --output_path writes."
        )
    found = {}
    for task, metrics in results.items():
        less_is_better = {name for name, more in _part(whole, "higher_is_better", task).items() if more is False}
        count = int(_part(whole, "n-samples", task).get("effective", 0))
        for key, value in metrics.items():
            metric, _, kind = key.partition(",")
            if _is_score(metric, value) and metric not in less_is_better:
                stderr = metrics.get(f"{metric}_stderr,{kind}")
                name = f"{task} {metric}" + (f" ({kind})" if kind not in ("", "none") else "")
                found[name] = Mean(float(value), float(stderr) if _is_number(stderr) else math.nan, count)
    return found


def _part(whole: Mapping[str, Any], section: str, task: str) -> Mapping[str, Any]:
    """Return what a section says about a task; nothing where it is silent."""
    return dict((whole.get(section) or {}).get(task) or {})


def _is_score(metric: str, value: Any) -> bool:
    return _is_number(value) and not metric.endswith("_stderr") and metric != "sample_len"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _some(names: Mapping[str, Mean]) -> str:
    return ", ".join(list(names)[:3]) + (", ..." if len(names) > 3 else "") if names else "none"
