"""What a page is told of a run: the run directory's records as JSON objects.

A number that is NaN or infinite is null, since JSON has no word for it. The health of a run is the worst severity
among the alarms that are open: begun and not over, or open when the run ended; "not watched" for a run from before
there was a monitor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import Any

from kleash.metrics import HELD_OUT, METRICS, Metric, lookup
from kleash.monitor.notify import masked
from kleash.monitor.suspects import Window, suspect_windows
from kleash.monitor.watched import measured_in, was_watched, windows_over
from kleash.report.catalogue import title
from kleash.report.run_summary import algorithm, controlled_key
from kleash.runs.reader import RunReader
from kleash.runs.records import SEVERITIES, Event, Sample
from kleash.runs.samples import FoundSamples, SampleNumbers
from kleash.runs.schema import DATABASE
from kleash.web.watch_imports import IMPORTED
from kleash.web.watch_library import Entry

Json = dict[str, Any]

KL_KEYS = tuple(
    f"kl/{estimator}_per_{unit}"
    for estimator in ("exact", "k1", "k3", "k2", "unstated")
    for unit in ("sequence", "token")
)
"""KL(policy ‖ reference) by every estimator that a run may have recorded, best first."""


def summary(entry: Entry, reader: RunReader) -> Json:
    """Return what the list says of a run."""
    config, imported, counts = reader.config, reader.meta.get(IMPORTED), reader.counts()
    events = reader.events()
    windows = _open(suspect_windows(events))
    watched = imported is not None or was_watched(config, events)
    model = config.get("model")
    return _head(entry) | {
        "source": imported["source"] if imported else "kleash",
        "status": "imported" if imported else reader.status,
        "reason": reader.status_reason,
        "algorithm": algorithm(config),
        "model": str(model.get("name", "") if isinstance(model, Mapping) else model or ""),
        "steps": reader.measured("time/total") or max(0, counts.last_step),
        "planned": imported["planned"] if imported else _planned(config),
        "started": None if imported else reader.created_at,
        "updated": _updated(entry),
        "health": _worst(windows) if watched else "not watched",
        "alarms": [_alarm(window.event) for window in windows],
        "latest": _latest(reader),
    }


def unreadable(entry: Entry, problem: str) -> Json:
    """Return what the list says of a run that cannot be read: as much as its place tells, and why."""
    nothing: Json = dict.fromkeys(("source", "status", "reason", "algorithm", "model"), "")
    nothing |= {"steps": 0, "planned": None, "started": None, "updated": None, "alarms": [], "latest": {}}
    return _head(entry) | nothing | {"health": "unreadable", "problem": problem}


def detail(entry: Entry, reader: RunReader) -> Json:
    """Return what the page of a run says, apart from its numbers and samples."""
    events, keys, meta = reader.events(), reader.metric_keys(), reader.meta
    windows = suspect_windows(events)
    imported = meta.get(IMPORTED, {})
    return summary(entry, reader) | {
        "settings": {key: shown_setting(key, value) for key, value in dotted(reader.config)},
        "versions": meta.get("versions", {}),
        "keys": [_declared(key) for key in sorted(keys, key=_place)],
        "target_key": controlled_key(reader.config) if "control/target" in keys else None,
        "events": [_event(event) for event in events],
        "windows": [_window(window) for window in windows],
        "checkpoints": _checkpoints(reader, windows),
        "splits": reader.sample_counts(),
        "notes": imported.get("notes", []),
        "columns": imported.get("columns", []),
    }


def found_samples(found: FoundSamples) -> Json:
    """Return a page of samples."""
    return {"total": found.total, "samples": [sample_numbers(sample) for sample in found.samples]}


def sample_numbers(sample: SampleNumbers) -> Json:
    """Return what was found of a sample; whether it stopped by itself is unknown where its tokens are."""
    return _finite(asdict(sample) | {"stopped": sample.stopped if sample.num_tokens else None})


def whole_sample(sample: Sample) -> Json:
    """Return a sample with its tokens."""
    known = {"num_tokens": len(sample.tokens) or None, "stopped": sample.stopped if sample.tokens else None}
    token_kl = [value if math.isfinite(value) else None for value in sample.token_kl]
    return _finite(asdict(sample) | known) | {"token_kl": token_kl}


def settings_diff(settings: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return every setting of some runs, in the order in which they come up; null where a run lacks it.

    Args:
        settings: of each run, as a table within tables.
    """
    flat = [dict(dotted(table)) for table in settings]
    keys = dict.fromkeys(key for table in flat for key in table)
    rows = [(key, [table.get(key) for table in flat]) for key in keys]
    return [
        {
            "key": key,
            "values": [shown_setting(key, value) for value in values],
            "differs": any(value != values[0] for value in values),
        }
        for key, values in rows
    ]


def shown_setting(key: str, value: Any) -> Any:
    """Return a setting as it may be shown: whoever knows a webhook's whole address can write to it."""
    return masked(value) if key.split(".")[-1] == "webhook" and isinstance(value, str) else value


def dotted(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting under its dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _head(entry: Entry) -> Json:
    return {"id": entry.id, "name": entry.name, "path": str(entry.path), "problem": None}


def _planned(config: Mapping[str, Any]) -> int | None:
    training = config.get("training")
    return training.get("steps") if isinstance(training, Mapping) else None


def _updated(entry: Entry) -> str | None:
    """Return when the run was last written, UTC: a run that was killed still says that it is running."""
    database = entry.path / DATABASE
    files = [database, database.with_name(f"{DATABASE}-wal")] if entry.path.is_dir() else [entry.path]
    written = [file.stat().st_mtime for file in files if file.exists()]
    return datetime.fromtimestamp(max(written), UTC).isoformat(timespec="seconds") if written else None


def _latest(reader: RunReader) -> Json:
    held = controlled_key(reader.config)
    kl = _newest(reader, "kl", [held, *KL_KEYS])
    reward = _newest(reader, "reward", ["reward/proxy"])
    beta = reader.last_value("control/beta")
    fixed = reader.meta.get(IMPORTED, {}).get("beta")
    kl_unit = _metric(kl["kl_key"]).unit if kl["kl_key"] else None
    return _finite(kl | reward | {"beta": fixed if beta is None else beta, "kl_unit": kl_unit})


def _newest(reader: RunReader, name: str, keys: Sequence[str]) -> Json:
    """Return the newest value of the first of some keys that was measured, in training before held out.

    It stands under `name`, its key and its step under `name_key` and `name_step`; all None where none was measured.
    """
    for key in (*keys, *(HELD_OUT + key for key in keys)):
        point = reader.last_point(key)
        if point is not None:
            return {name: point[1], f"{name}_key": key, f"{name}_step": point[0]}
    return dict.fromkeys((name, f"{name}_key", f"{name}_step"))


def _open(windows: Sequence[Window]) -> list[Window]:
    return [window for window in windows if window.last is None]


def _worst(windows: Sequence[Window]) -> str:
    severities = [window.event.severity for window in windows]
    return max(severities, key=SEVERITIES.index) if severities else "ok"


def _alarm(event: Event) -> Json:
    return {
        "name": event.name,
        "title": _titles().get(event.name, event.name),
        "severity": event.severity,
        "message": event.message,
        "began": event.began,
    }


def _event(event: Event) -> Json:
    return asdict(event) | {"title": _titles().get(event.name, event.name), "values": _finite(event.values)}


def _window(window: Window) -> Json:
    return {
        "first": window.first,
        "last": window.last,
        "name": window.event.name,
        "severity": window.event.severity,
    }


def _checkpoints(reader: RunReader, windows: Sequence[Window]) -> list[Json]:
    """Return each checkpoint and its alarms; trainers that are not Kleash measure it in the step after its number."""
    settings, foreign = reader.config, IMPORTED in reader.meta
    found = reader.checkpoints()
    steps = [(one.step + 1,) if foreign else measured_in(settings, one.step) for one in found]
    return [
        {
            "step": checkpoint.step,
            "path": str(checkpoint.path),
            "exists": checkpoint.path.exists(),
            "suspicions": [window.event.name for window in windows_over(windows, measured)],
        }
        for checkpoint, measured in zip(found, steps, strict=True)
    ]


@cache
def _titles() -> Mapping[str, str]:
    """Return what each rule is called in words, by its name."""
    from kleash.monitor.rules.table import make_rules

    return {rule.name: rule.title for rule in make_rules()}


def _metric(key: str) -> Metric:
    """Return the declaration of a key; one that the catalogue lacks stands for itself."""
    try:
        return lookup(key)
    except KeyError:
        return Metric(key, key, "", "")


def _declared(key: str) -> Json:
    metric = _metric(key)
    name = title(key) if key.removeprefix(HELD_OUT) in METRICS else metric.title
    return {"key": key, "title": name, "unit": metric.unit, "meaning": metric.meaning, "high": metric.high}


def _place(key: str) -> tuple[int, str]:
    """Return where a key stands: in the order of the catalogue, those that it lacks last."""
    order = list(METRICS)
    bare = key.removeprefix(HELD_OUT)
    return (order.index(bare) if bare in METRICS else len(order)), key


def _finite(values: Mapping[str, Any]) -> Json:
    """Return named values with None for every number that is NaN or infinite."""
    broken = {key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return {key: None if key in broken else value for key, value in values.items()}
