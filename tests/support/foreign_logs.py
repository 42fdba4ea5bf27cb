"""Logs as other trainers write them, a few lines each, made from their documentation and source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CARD = "---\nlibrary_name: transformers\ntags:\n- generated_from_trainer\n- trl\n- {tag}\n---\n\n# Model Card\n"


def trainer_state(
    output: Path, history: Iterable[Mapping[str, Any]], *, step: int = 2, tag: str = "", **state: Any
) -> Path:
    """A Hugging Face trainer's output directory with one checkpoint; returns the state's file."""
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    if tag:
        (output / "README.md").write_text(CARD.format(tag=tag), encoding="utf-8")
    path = folder / "trainer_state.json"
    whole = {"global_step": step, "max_steps": 40, "log_history": list(history), **state}
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


def json_lines(path: Path, rows: Iterable[Mapping[str, Any]], *, end: str = "\n") -> Path:
    """A JSON Lines file; `end` is what follows the last line."""
    path.write_text("\n".join(json.dumps(row) for row in rows) + end, encoding="utf-8")
    return path


def event_file(folder: Path, scalars: Mapping[str, Mapping[int, float]], arguments: Mapping[str, Any] | None = None):
    """A TensorBoard event file with values by tag and step, and the trainer's arguments as Hugging Face writes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    if arguments is not None:
        text = TensorProto(dtype="DT_STRING", string_val=[json.dumps(arguments).encode()])
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        value = Summary.Value(tag="args/text_summary", metadata=metadata, tensor=text)
        writer.add_event(Event(step=0, wall_time=0.0, summary=Summary(value=[value])))
    for tag, values in scalars.items():
        for step, number in values.items():
            value = Summary.Value(tag=tag, simple_value=number)
            writer.add_event(Event(step=step, wall_time=float(step), summary=Summary(value=[value])))
    writer.close()
    return next(folder.glob("*tfevents*"))
