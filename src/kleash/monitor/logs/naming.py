"""From a trainer's columns to the catalogue's keys: each column is taken for something, or left out with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kleash.errors import DataError, near_match
from kleash.metrics import HELD_OUT, METRICS, lookup
from kleash.monitor.log import Column, Log
from kleash.monitor.logs.mappings import OVER_BETA, Row, rows_of
from kleash.monitor.logs.raw import Raw, to_number
from kleash.monitor.logs.trainers import KLEASH, NO_TRAINER, Place, Recognised, catalogue_key, recognise
from kleash.runs.records import Step

DRIFT = ("kl/", HELD_OUT + "kl/")
"""Where the KL to the reference is; `update/` and `sampler/` hold other comparisons."""

_STDERR = ".stderr"


@dataclass(frozen=True)
class _Taken:
    """A column that is kept: under which key, and what is done to a value."""

    key: str
    convert: Callable[[float], float]


def to_log(raw: Raw, columns: Mapping[str, str], trainer: str | None, beta: float | None) -> Log:
    """Give a log the catalogue's names.

    Args:
        raw: the log as it was written.
        columns: the user's own map, from column to key; it comes before the trainer's.
        trainer: the trainer's name where the user says it.
        beta: the reward per nat where the user says it; else it is the one of the log's settings.

    Raises:
        DataError: an unknown trainer, column or key, or a log of which nothing is known.
    """
    names = dict.fromkeys(name for row in raw.rows.values() for name in row)
    _check_map(columns, names, raw)
    found = recognise(names, raw.tag, raw.tag_from, trainer)
    settings = dict(raw.settings) if beta is None else {**raw.settings, "beta": beta}
    known_beta = to_number(settings.get("beta"))
    rows = rows_of(found.trainer.name, settings.get("kl_estimator"))
    said, taken = _columns(found, rows, columns, _logged_beta(raw, found, rows) if known_beta is None else known_beta)
    if not taken:
        raise _nothing_known(raw, names)
    return Log(
        path=raw.path,
        source=found.trainer.name,
        steps=_steps(raw, taken),
        columns=said,
        notes=[*_notes(raw, found, taken), *raw.notes],
        samples=raw.samples,
        settings=settings,
        checkpoints=raw.checkpoints,
    )


def _columns(
    found: Recognised, rows: Mapping[str, Row], given: Mapping[str, str], beta: float | None
) -> tuple[list[Column], dict[str, _Taken]]:
    """Say of each column what it is, and which are kept: a key is filled by the user's or the first."""
    said: dict[str, Column] = {}
    taken: dict[str, _Taken] = {}
    filled: dict[str, str] = {}
    for name, key in given.items():
        if key != "step":
            said[name] = Column(name, key, f"{_meaning(key)}; --column says so")
            taken[name], filled[key] = _Taken(key, float), name
    for row, name, key in _matches(found, rows, given):
        column, kept = _by_row(row, name, key, beta, filled.get(key or ""))
        said[name] = column
        if kept is not None:
            taken[name], filled[kept.key] = kept, name
    rest = (name for name in found.places if not (name in said or name.startswith("_") or name.endswith(_STDERR)))
    unknown = [Column(name, None, f"not among the columns that are known of {found.trainer.name}") for name in rest]
    return [*said.values(), *unknown], taken


def _logged_beta(raw: Raw, found: Recognised, rows: Mapping[str, Row]) -> float | None:
    """Return the beta of a leash that does not move, where the trainer logs it at each step."""
    names = [name for _, name, key in _matches(found, rows, {}) if key == "control/beta"]
    values = {row[name] for row in raw.rows.values() for name in names if name in row}
    return values.pop() if len(values) == 1 else None


def _matches(
    found: Recognised, rows: Mapping[str, Row], given: Mapping[str, str]
) -> Iterable[tuple[Row | None, str, str]]:
    """Yield the columns that the trainer's rows know, in the order of the rows: better ones are first."""
    open_places = {name: place for name, place in found.places.items() if name not in given}
    if found.trainer.name == KLEASH:
        for name, place in open_places.items():
            if catalogue_key(name):
                yield None, name, _key(place.name, place)
        return
    for row in rows.values():
        for name, place in list(open_places.items()):
            key = row.matches(place.name)
            if key is not None:
                del open_places[name]
                yield row, name, _key(key, place) if key else ""
    for name in open_places:
        if catalogue_key(name) and "/" in name and found.trainer is NO_TRAINER:
            yield None, name, name


def _by_row(
    row: Row | None, name: str, key: str, beta: float | None, other: str | None
) -> tuple[Column, _Taken | None]:
    if row is None:
        return Column(name, key, _meaning(key)), _Taken(key, float)
    says = _says(row, key)
    if not key:
        return Column(name, None, "; ".join(filter(None, (says, "left out")))), None
    if other is not None:
        return Column(name, None, f"{says}; left out, for {other} is kept as {key}"), None
    if row.scale is OVER_BETA and not beta:
        return Column(name, None, f"{row.note}; left out, for beta is not in the log: tell it with --beta"), None
    return Column(name, key, says), _Taken(key, lambda value: _scaled(row, value, beta))


def _says(row: Row, key: str) -> str:
    """Say in words what a column is: who against whom, estimator, unit, scale, note."""
    if row.between:
        parts = [row.between, f"estimator {row.estimator}", row.unit or lookup(key).unit]
        head = ", ".join(parts)
    else:
        head = _meaning(key) if key else ""
    return "; ".join(filter(None, (head, row.scale.says, row.note)))


def _meaning(key: str) -> str:
    metric = lookup(key)
    held_out = ", held out" if key.startswith(HELD_OUT) else ""
    return ", ".join(filter(None, (metric.title + held_out, metric.unit)))


def _key(key: str, place: Place) -> str:
    return HELD_OUT + key if place.held_out and not key.startswith(HELD_OUT) else key


def _scaled(row: Row, value: float, beta: float | None) -> float:
    scaled = row.scale.apply(value, beta)
    assert scaled is not None, "a column that needs beta is kept only where beta is known"
    return scaled


def _steps(raw: Raw, taken: Mapping[str, _Taken]) -> list[Step]:
    steps = []
    for step, row in raw.rows.items():
        metrics = {taken[name].key: taken[name].convert(value) for name, value in row.items() if name in taken}
        errors = {taken[name].key: row[name + _STDERR] for name in row if name in taken and name + _STDERR in row}
        if metrics:
            steps.append(Step(step, metrics, errors))
    return steps


def _notes(raw: Raw, found: Recognised, taken: Mapping[str, _Taken]) -> list[str]:
    trainer = found.trainer
    if trainer is NO_TRAINER:
        notes = [f"{raw.format}. Its columns are of no known trainer; what is kept is what --column or the names say."]
    else:
        notes = [f"{raw.format}, of {trainer.name}: {found.why}."]
        if not trainer.tried:
            notes.append(
                f"{trainer.name}'s names were taken from its source and documentation; no log of a real run of it has "
                "been tried. Check a column that matters."
            )
    if not any(kept.key.startswith(DRIFT) for kept in taken.values()):
        notes.append(f"No KL to the reference was logged: {trainer.no_kl.removesuffix('.')}.")
    return notes


def _check_map(columns: Mapping[str, str], names: Mapping[str, None], raw: Raw) -> None:
    for name, key in columns.items():
        if key == "step":
            continue
        if name not in names:
            raise DataError(
                f"--column {name}={key}: {raw.path} has no column '{name}' with numbers.{near_match(name, names)} "
                f"It has: {_listed(names)}."
            )
        if not catalogue_key(key):
            raise DataError(
                f"--column {name}={key}: '{key}' is no key of the catalogue.{near_match(key, METRICS)} The keys are in "
                "docs/metrics.md, such as kl/k3_per_token; `step` names the step's column."
            )
    keys = [key for key in columns.values() if key != "step"]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        both = " and ".join(name for name, key in columns.items() if key == twice)
        raise DataError(f"--column: {both} are both given as {twice}, and a key holds one number. Leave one out.")


def _nothing_known(raw: Raw, names: Mapping[str, None]) -> DataError:
    if not names:
        return DataError(f"{raw.path} ({raw.format}) holds no numbers yet. Audit it when a step has been logged.")
    return DataError(
        f"{raw.path} ({raw.format}) has no column that is known: {_listed(names)}. Say who wrote it, such as "
        '--trainer "TRL GRPO" (one column alone does not tell), or which column is what, such as '
        "--column my_kl=kl/k3_per_token --column my_reward=reward/proxy; the keys are in docs/metrics.md."
    )


def _listed(names: Mapping[str, None]) -> str:
    shown = list(names)[:12]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
