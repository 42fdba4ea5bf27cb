"""TRL's output directory: the newest trainer_state.json, the model card's tag, and completions where they were kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kleash.errors import DataError
from kleash.monitor.logs.completions import read_completions
from kleash.monitor.logs.lines import parse_json, text_of
from kleash.monitor.logs.raw import Entry, Raw, gather, numbers, to_step
from kleash.runs.records import Checkpoint
from kleash.runs.schema import DATABASE

STATE = "trainer_state.json"
HISTORY = "log_history"
CARD = "README.md"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_CALLBACK_RUN = "kleash"
_KEPT_SETTINGS = ("max_steps", "num_train_epochs", "logging_steps", "train_batch_size", "eval_steps", "save_steps")
_NO_TRAINER = frozenset({"trl", "generated_from_trainer", "lora", "transformers", "hf_jobs"})


def is_output(folder: Path) -> bool:
    """Whether a folder is an output directory or a checkpoint of a Hugging Face trainer."""
    return (folder / STATE).is_file() or any((path / STATE).is_file() for _, path in _checkpoints(folder))


def read(path: Path) -> Raw:
    """Read an output directory, one of its checkpoints, or a trainer_state.json.

    Raises:
        DataError: no state in it can be read.
    """
    folder = path if path.is_dir() else path.parent
    state_path, state, notes = _newest(path, folder)
    rows, doubled = gather(_entries(state_path, state))
    samples, torn = read_completions(folder / "completions")
    return Raw(
        path,
        f"A Hugging Face trainer's state, {state_path}",
        rows,
        notes=[*notes, *doubled, *torn, *_callback_note(folder)],
        samples=samples,
        settings={name: state[name] for name in _KEPT_SETTINGS if isinstance(state.get(name), int | float)},
        checkpoints=[Checkpoint(step, place) for step, place in _checkpoints(folder)],
        tag=_tag(folder, state_path.parent),
        tag_from="the model card README.md",
    )


def _newest(path: Path, folder: Path) -> tuple[Path, Mapping[str, Any], list[str]]:
    """Return the state that has got furthest, and a note on each newer one that is torn."""
    inside = [place / STATE for _, place in reversed(_checkpoints(folder))]
    candidates = [path] if path.is_file() else [place for place in (folder / STATE, *inside) if place.is_file()]
    notes: list[str] = []
    found: list[tuple[Path, Mapping[str, Any]]] = []
    problem: DataError | None = None
    for candidate in candidates:
        try:
            found.append((candidate, _state(candidate)))
        except DataError as error:
            problem = error
            notes.append(f"{error} An older one is read.")
            continue
        if candidate.parent != folder:
            break
    if not found:
        assert problem is not None, "a folder without any state is not read as TRL's"
        raise problem
    place, state = max(found, key=lambda pair: pair[1].get("global_step") or 0)
    return place, state, notes


def _state(path: Path) -> Mapping[str, Any]:
    try:
        state = parse_json(str(path), text_of(path))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} is not whole JSON ({error.msg} at line {error.lineno}): it is still being written, or was cut off."
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get(HISTORY), list):
        raise DataError(
            f"{path} has no list {HISTORY}, so it is no trainer's state. Give a trainer's output directory."
        )
    return state


def _entries(path: Path, state: Mapping[str, Any]) -> Iterator[Entry]:
    for index, logged in enumerate(state[HISTORY]):
        where = f"{path}: {HISTORY}[{index}]"
        if not isinstance(logged, dict):
            raise DataError(f"{where} is a {type(logged).__name__}, not an object of named numbers.")
        values = numbers({name: value for name, value in logged.items() if name != "step"})
        yield Entry(where, to_step(logged.get("step"), where, "step"), values)


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    named = ((_CHECKPOINT.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in named if match and path.is_dir())


def _tag(*folders: Path) -> str:
    """Return the trainer that a model card names among its tags; empty where there is none."""
    for folder in dict.fromkeys((*folders, *(folder.parent for folder in folders))):
        card = folder / CARD
        if not card.is_file():
            continue
        head = card.read_text(encoding="utf-8", errors="replace").split("---")
        tags = re.findall(r"^- ([a-z-]+)$", head[1], flags=re.MULTILINE) if len(head) > 2 else []
        if "trl" in tags:
            return next((tag for tag in tags if tag not in _NO_TRAINER), "")
    return ""


def _callback_note(folder: Path) -> list[str]:
    run = folder / _CALLBACK_RUN
    if not (run / DATABASE).is_file():
        return []
    return [f"KleashCallback measured this run exactly: `kleash audit {run}` reads that, with its own alarms."]
