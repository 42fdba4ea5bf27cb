"""Checkpoints: a folder that any Hugging Face tool loads, with the training state beside it.

Random numbers depend on seed, purpose and step alone, so that there is no generator to save.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kleash.errors import RunDirError
from kleash.models.lora import TRAINED
from kleash.models.policy import Policy

STATE_FILE = "training_state.pt"


def save(folder: Path, state: Mapping[str, Any], write_weights: Callable[[Path], None]) -> None:
    """Write a checkpoint, all of it or nothing."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write_weights(unfinished)
    torch.save(dict(state), unfinished / STATE_FILE)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(unfinished, folder)


def save_weights(policy: Policy, folder: Path) -> None:
    """The adapter (PEFT) or the whole model (Hugging Face), with the tokenizer."""
    if policy.peft_model is None:
        policy.causal_lm.save_pretrained(folder)
    else:
        policy.peft_model.save_pretrained(str(folder), selected_adapters=[TRAINED], save_embedding_layers=False)
    policy.tokenizer.inner.save_pretrained(folder)


def read(folder: Path) -> dict[str, Any]:
    """The saved state.

    Raises:
        RunDirError: there is none, or it is torn.
    """
    path = folder / STATE_FILE
    try:
        return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:  # a damaged pickle raises whatever its bytes say
        raise RunDirError(
            f"{path}: no training state can be read there ({error}). Resume from another checkpoint"
        ) from error


@torch.no_grad()
def load_weights(policy: Policy, saved: Mapping[str, Any]) -> None:
    """Put the trained weights of a saved state into a freshly loaded policy."""
    masters = saved["optimizer"]["masters"]
    for name, parameter in policy.trained():
        parameter.copy_(masters[name])


def check_frozen(saved: Mapping[str, Any], fingerprint: str, what: str, name: str) -> None:
    """Refuse to go on from other frozen weights than the run began with.

    Raises:
        RunDirError: `what` (the reference, the base) of model `name` has changed.
    """
    if saved["reference_fingerprint"] != fingerprint:
        raise RunDirError(
            f"the {what} has changed: its weights hash to {fingerprint[:16]}, and this run was measured from "
            f"{saved['reference_fingerprint'][:16]}. Its numbers would mean something else. Put the old weights back "
            f"(model {name!r}), or start a new run"
        )
