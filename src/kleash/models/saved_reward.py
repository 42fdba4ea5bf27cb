"""A reward model on disk: which folder a path means, what is in it, and how its texts became tokens.

Only configs and the headers of safetensors files are read; weights are for `kleash.models.scalar_loading`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from kleash.errors import ModelError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_HEAD, MODEL_HEAD = "base_model.model.score.", "score."
"""How the names of the head's tensors begin in an adapter's file, and in a whole model's."""
RENDERING_FILE = "kleash.json"


@dataclass(frozen=True)
class Rendering:
    """How texts became tokens in training; whoever scores must do the same.

    Attributes:
        append_stop: each completion was followed by the tokenizer's first stop token.
        as_chat: plain prompts were wrapped as user messages.
        system_prompt: put before every conversation; None for none.
        origin: a member's mean score over some comparisons. Comparisons leave a constant of each member open, so that
            members of an ensemble are compared with it taken off; of a model on its own nothing is.
    """

    append_stop: bool = True
    as_chat: bool = False
    system_prompt: str | None = None
    origin: float = 0.0

    def write(self, folder: Path) -> None:
        """Put `kleash.json` into a folder."""
        (folder / RENDERING_FILE).write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")


@dataclass(frozen=True)
class SavedReward:
    """A reward model that was found.

    Attributes:
        folder: where it is.
        members: an adapter's folder each, or one folder with a whole model.
        base: hub id or folder of the model under the adapters; None for a whole model.
        revision: commit or branch of a base on the hub.
        rendering: from `kleash.json`; its defaults where there is no such file.
        origins: what is taken off each member's scores; 0 for a model on its own.
    """

    folder: Path
    members: tuple[Path, ...]
    base: str | None
    revision: str | None
    rendering: Rendering
    origins: tuple[float, ...] = (0.0,)

    @property
    def weights(self) -> str:
        """Hub id or folder of the backbone."""
        return self.base if self.base is not None else str(self.folder)


def open_saved(path: str | Path) -> SavedReward:
    """Find the reward model that a path means, and check that it has a head.

    Args:
        path: a folder that `ScalarModel.save` or Hugging Face wrote, or a run directory, which stands for its newest
            checkpoint.

    Raises:
        ModelError: nothing there, no head called `score`, more than one label, or a base that has gone.
    """
    folder = _newest_checkpoint(Path(path).expanduser())
    numbered = [child for child in folder.glob("member_*") if re.fullmatch(r"member_\d+", child.name)]
    members = sorted(numbered, key=_number) or [folder]
    bases = {_checked_base(member) for member in members}
    if len(bases) > 1:
        raise ModelError(
            f"{folder} holds members of different bases ({', '.join(sorted(str(base) for base, _ in bases))}); an "
            "ensemble shares one. Name one of its member folders"
        )
    base, revision = bases.pop()
    renderings = [_rendering(member) for member in members]
    origins = tuple(rendering.origin for rendering in renderings) if len(members) > 1 else (0.0,)
    return SavedReward(folder, tuple(members), base, revision, renderings[0], origins)


def pinned(path: str) -> str:
    """The folder that a path means now: a run stands for its newest checkpoint, which changes as the run goes on."""
    return str(_newest_checkpoint(Path(path).expanduser()))


def tensor_names(folder: Path, pattern: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors in the safetensors files that match, from their headers.

    Raises:
        ModelError: a file is torn.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob(pattern)):
        try:
            with safe_open(str(file), framework="np") as opened:
                shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file} cannot be read: {error}. Copy it again, or use another checkpoint") from error
    return shapes


def _newest_checkpoint(path: Path) -> Path:
    if not path.is_dir():
        raise ModelError(
            f"reward model {str(path)!r}: there is no such folder. Give a run, a checkpoint or a Hugging Face folder; "
            "fetch one from the hub with `hf download`"
        )
    if not (path / "checkpoints").is_dir():
        return path
    steps = [child for child in (path / "checkpoints").iterdir() if re.fullmatch(r"step_\d+", child.name)]
    if not steps:
        raise ModelError(f"run {str(path)!r} has no checkpoint yet. Let it reach one, or give another reward model")
    return max(steps, key=_number)


def _number(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def _checked_base(folder: Path) -> tuple[str | None, str | None]:
    """Base and revision of an adapter with a head; no base for a whole model with one."""
    if (folder / ADAPTER_CONFIG).is_file():
        _check_head(folder, ADAPTER_WEIGHTS, ADAPTER_HEAD)
        return _existing_base(folder)
    if (folder / "config.json").is_file():
        _check_head(folder, "model*.safetensors", MODEL_HEAD)
        return None, None
    held = ", ".join(sorted(child.name for child in folder.iterdir())[:8]) or "nothing"
    raise ModelError(
        f"{folder} is no reward model: it has neither {ADAPTER_CONFIG} nor config.json, but {held}. "
        "Give the folder that a run of algorithm.type = 'reward_model' or save_pretrained wrote"
    )


def _check_head(folder: Path, pattern: str, prefix: str) -> None:
    shapes = tensor_names(folder, pattern)
    weight = shapes.get(f"{prefix}weight")
    if weight is None:
        outside = [name for name in shapes if "lora_" not in name and "layers." not in name and ".h." not in name]
        outside.sort(key=lambda name: (name.count("."), name))
        held = f"{len(shapes)} tensors, outside of its layers {', '.join(outside[:5]) or 'none'}"
        raise ModelError(
            f"head not found: {folder} holds {held if shapes else f'no {pattern}'}, and none is "
            f"'{prefix}weight'. A policy cannot score: train a reward model from it with "
            "algorithm.type = 'reward_model', or give a sequence-classification checkpoint with a head called score"
        )
    if weight[0] != 1:
        raise ModelError(
            f"{folder} has a head of num_labels = {weight[0]}: a reward is one number. "
            "Use a checkpoint that was trained with num_labels = 1"
        )


def _existing_base(folder: Path) -> tuple[str, str | None]:
    config = _read_json(folder / ADAPTER_CONFIG)
    base = config.get("base_model_name_or_path")
    if not base:
        raise ModelError(
            f"{folder / ADAPTER_CONFIG} names no base model. Write the model it was trained on into its "
            "base_model_name_or_path"
        )
    local = Path(base).expanduser()
    if (local.is_absolute() or base.startswith(".")) and not local.exists():
        raise ModelError(
            f"the adapter in {folder} belongs to the local folder {base!r}, which has gone away. Put the folder back, "
            f"or write where that model is now into base_model_name_or_path in {folder / ADAPTER_CONFIG}"
        )
    return str(base), config.get("revision")


def _rendering(folder: Path) -> Rendering:
    path = folder / RENDERING_FILE
    if not path.is_file():
        return Rendering()
    values = _read_json(path)
    try:
        return Rendering(values["append_stop"], values["as_chat"], values["system_prompt"], values.get("origin", 0.0))
    except KeyError as error:
        raise ModelError(
            f"{path} lacks {error}: how texts became tokens is not known in full. Write append_stop, as_chat and "
            "system_prompt into it, as they were in training"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}. Copy it again, or write it anew") from error
