"""`kleash gauge`: measure how far models have moved from a reference, print it, and write it down."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from kleash.cli.dial import show
from kleash.cli.files import STDOUT, check_files, replace_file
from kleash.cli.gauge_summary import print_summary
from kleash.cli.screen import bars, screen
from kleash.errors import ConfigError, RunStopped
from kleash.report.wording import with_interval

if TYPE_CHECKING:
    from kleash.gauge.records import Gauge, Score

NOT_GIVEN: dict[str, Any] = {
    "curve": False,
    "lm_eval": [],
    "fail_above": None,
    "column": None,
    "corpus": None,
    "limit": None,
    "samples": 1,
    "max_length": 64,
    "seed": 0,
    "dtype": "auto",
    "batch_size": "auto",
    "scale": True,
    "cache": True,
    "scores": [],
}
"""What has no effect beside `--dial`, each as it is where it was not given."""
OPTIONS = {"scale": "--no-scale", "cache": "--no-cache", "scores": "--score"}
"""Of those, the ones that go by another name on the command line."""


def run(
    reference: str,
    tuned: Sequence[str],
    *,
    curve: bool = False,
    dial: bool = False,
    lm_eval: Sequence[Path] = (),
    json_path: str | None = None,
    out: Path | None = None,
    fail_above: float | None = None,
    **settings: Any,
) -> None:
    """Measure every tuned model against the reference, print the results, and write what is asked for.

    Args:
        reference: the model that drift is measured from.
        tuned: the models that have moved.
        curve: each of `tuned` is a run, and all of its checkpoints are measured.
        dial: `reference` is a run and there is no `tuned`: the scale of its adapter is varied instead.
        lm_eval: results of lm-evaluation-harness: the reference's first, then one a tuned model.
        json_path: where every number is written; `-` is standard output, and the summary goes to standard error.
        out: where the page is written.
        fail_above: nats per sequence that KL(tuned ‖ reference) may be.
        settings: what `kleash.gauge.measure` takes besides.

    Raises:
        KleashError: models, prompts or settings that cannot be used.
        RunStopped: the whole interval of a model is above `fail_above`.
        KeyboardInterrupt: Ctrl-C, after what was measured so far is printed and written.
    """
    if dial:
        _check_alone(tuned, {"curve": curve, "lm_eval": list(lm_eval), "fail_above": fail_above, **settings})
        show(Path(reference), prompts=settings["prompts"], json_path=json_path, out=out)
        return
    if not tuned:
        raise ConfigError(
            f"kleash gauge {reference}: nothing to measure against it. Give REFERENCE and TUNED, or a run with --dial."
        )
    _check(json_path, out, fail_above)
    console = screen(stderr=json_path == STDOUT)
    with _bar(console) as progress:
        from kleash.gauge.lm_eval import read_all
        from kleash.gauge.measuring import measure_many
        from kleash.gauge.sources import checkpoints

        names = [name for given in tuned for name in checkpoints(given)] if curve else list(tuned)
        more = read_all(lm_eval, len(names))
        found = measure_many(reference, names, progress=progress, **settings)
    gauges = [_with_scores(gauge, scores) for gauge, scores in zip(found, more, strict=False)]
    print_summary(console, gauges)
    _write(gauges, json_path, out, console)
    if len(gauges) < len(names) or any(gauge.partial for gauge in gauges):
        raise KeyboardInterrupt
    _hold(gauges, fail_above)


class Bar:
    """A bar with the time that is left, and what is being done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("loading", total=None, count="")
        self._done = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar; it begins anew with the next model."""
        if done < self._done:
            self._progress.reset(self._task)
        self._done = done
        self._progress.update(self._task, description=stage, completed=done, total=total, count=f"{done}/{total}")


@contextmanager
def _bar(console: Console) -> Iterator[Bar]:
    """Show a bar while a measurement goes on; nothing where the console is no terminal."""
    progress = bars(console, transient=True)
    with progress:
        yield Bar(progress)


def _with_scores(gauge: Gauge, more: Sequence[Score]) -> Gauge:
    """Return the gauge with further scores, which its verdict takes in."""
    from kleash.gauge.verdict import verdict

    if not more:
        return gauge
    scores = (*gauge.scores, *more)
    said = verdict(gauge.reverse, gauge.forward, gauge.corpus, gauge.scale, scores, partial=gauge.partial)
    return replace(gauge, scores=scores, verdict=said)


def _check_alone(tuned: Sequence[str], given: dict[str, Any]) -> None:
    """Refuse what has no effect beside `--dial`, which measures as the run itself does."""
    if tuned:
        raise ConfigError(f"--dial varies the adapter of one run and takes no second model. Leave {tuned[0]} out.")
    for name, default in NOT_GIVEN.items():
        if given[name] != default:
            option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise ConfigError(f"{option} has no effect beside --dial, which measures as the run does. Leave it out.")


def _check(json_path: str | None, out: Path | None, fail_above: float | None) -> None:
    """Refuse before the measurement what would be refused after it."""
    if fail_above is not None and not (math.isfinite(fail_above) and fail_above >= 0):
        raise ConfigError(
            f"--fail-above {fail_above:g} is no limit: a KL is 0 nats or more. Give a number such as 2.5."
        )
    check_files(json_path, out, "gauge.html")


def to_json(gauges: Sequence[Gauge]) -> str:
    """Return every number as JSON; the schema is in docs/gauge.md."""
    from kleash.gauge.records import SCHEMA_VERSION

    whole = {"schema_version": SCHEMA_VERSION, "gauges": [gauge.to_dict() for gauge in gauges]}
    return json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _write(gauges: Sequence[Gauge], json_path: str | None, out: Path | None, console: Console) -> None:
    if json_path == STDOUT:
        print(to_json(gauges), end="")
    elif json_path is not None:
        replace_file(Path(json_path), to_json(gauges))
        console.print(f"numbers    {json_path}", soft_wrap=True)
    if out is not None:
        from kleash.gauge.page import render

        replace_file(out, render(gauges))
        console.print(f"page       {out}", soft_wrap=True)


def _hold(gauges: Sequence[Gauge], limit: float | None) -> None:
    """Stop with exit code 3 where a model is above the limit beyond doubt."""
    if limit is None:
        return
    above = []
    for gauge in gauges:
        name, mean = gauge.tuned.name, gauge.reverse.per_sequence.mean if gauge.reverse else None
        if mean is None:
            raise ConfigError(f"--fail-above {limit:g}: {name} has no KL per sequence. Give it prompts.")
        if math.isfinite(mean.value) and math.isnan(mean.low):
            raise ConfigError(f"--fail-above {limit:g}: one prompt gives {name} no interval. Give two prompts or more.")
        if not mean.low <= limit:
            above.append(f"{name} moved {with_interval(mean.value, mean.low, mean.high)}")
    if above:
        raise RunStopped(
            f"{'; '.join(above)} nats per sequence, KL(tuned ‖ reference): the whole 95 % interval is above the limit "
            f"of {limit:g} that --fail-above sets."
        )
