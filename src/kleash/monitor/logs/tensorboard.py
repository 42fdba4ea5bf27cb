"""TensorBoard event files: the scalars of a run, and the settings that the Hugging Face trainer writes beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from kleash.errors import DataError
from kleash.monitor.logs.lines import parse_json
from kleash.monitor.logs.raw import Entry, Raw, gather

EVENTS = "*tfevents*"
_ALL = 0  # of TensorBoard's size guidance: keep every value instead of a sample of them
_ARGUMENTS = "args/text_summary"
_KEPT_SETTINGS = ("beta", "max_steps", "kl_estimator", "learning_rate", "num_train_epochs")


def event_files(folder: Path) -> list[Path]:
    """Return the event files in a folder and below, the newest first."""
    found = [path for path in folder.rglob(EVENTS) if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def read(path: Path) -> Raw:
    """Read the newest event files of a folder, or one event file.

    Raises:
        DataError: nothing in it can be read as events.
        ModuleNotFoundError: the `tensorboard` package is not installed.
    """
    files = event_files(path) if path.is_dir() else [path]
    source = files[0].parent if path.is_dir() else path
    others = sorted({file.parent for file in files} - {source}) if path.is_dir() else []
    accumulator = _load(source)
    tags = accumulator.Tags()["scalars"]
    if not tags:
        raise DataError(
            f"{source} holds no scalar: its event file is empty, torn at its start, or has only text and histograms. "
            "Audit it when a step has been logged, or give the folder of another run."
        )
    entries = (
        Entry(f"{source}: {tag}", int(event.step), {tag: float(event.value)})
        for tag in tags
        for event in accumulator.Scalars(tag)
    )
    rows, doubled = gather(entries)
    left = [f"Newest of {len(others) + 1} folders with event files; left aside: {', '.join(map(str, others))}."]
    return Raw(
        path,
        f"TensorBoard event files in {source}",
        rows,
        notes=[*(left if others else []), *doubled],
        settings=_settings(accumulator),
        tag=_tag(accumulator),
        tag_from="a setting among the trainer's arguments",
    )


def _load(source: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it reports a torn end as a warning of its own
    accumulator = EventAccumulator(str(source), size_guidance={"scalars": _ALL, "tensors": _ALL})
    try:
        accumulator.Reload()
    except Exception as error:  # the reader of records and the parser of messages share no base class
        raise DataError(
            f"{source} cannot be read as TensorBoard events ({type(error).__name__}: {error}). The file is damaged or "
            "of another kind; restore it from a copy."
        ) from error
    return accumulator


def _settings(accumulator: Any) -> dict[str, Any]:
    arguments = _arguments(accumulator)
    return {name: arguments[name] for name in _KEPT_SETTINGS if arguments.get(name) is not None}


def _tag(accumulator: Any) -> str:
    """Tell TRL's RLOO from GRPO by a setting that only one of them has; empty where that says nothing."""
    arguments = _arguments(accumulator)
    settings = (("normalize_advantages", "rloo"), ("scale_rewards", "grpo"))
    return next((tag for name, tag in settings if name in arguments and "num_generations" in arguments), "")


def _arguments(accumulator: Any) -> dict[str, Any]:
    """Return the trainer's arguments, which Hugging Face's reporter writes as one JSON text."""
    if _ARGUMENTS not in accumulator.Tags()["tensors"]:
        return {}
    texts = [text for event in accumulator.Tensors(_ARGUMENTS) for text in event.tensor_proto.string_val]
    try:
        found = parse_json(_ARGUMENTS, texts[-1].decode()) if texts else {}
    except (ValueError, DataError):  # cut by a limit on its length, or no UTF-8
        return {}
    return found if isinstance(found, dict) else {}
