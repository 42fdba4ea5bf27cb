"""Checkpoints: an adapter or model folder that any Hugging Face tool loads, with the training state beside it.

Random numbers depend on seed, purpose and step alone, so that there is no generator to save.
"""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch

from kleash.errors import RunDirError
from kleash.models.lora import TRAINED
from kleash.models.policy import Policy
from kleash.models.reference import MovingReference
from kleash.training.experience import Spread
from kleash.training.session import Session, make_controller

STATE_FILE = "training_state.pt"


def save(session: Session, folder: Path, step: int, fingerprint: str) -> None:
    """Write the checkpoint after `step` updates, all of it or nothing."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_weights(session.policy, unfinished)
    spread = session.rewarder.spread
    state = {
        "step": step,
        "optimizer": session.optimizer.state_dict(),
        "starting_beta": session.starting_beta,
        "controller": session.controller.state_dict(),
        "loosening": None if session.loosening is None else session.loosening.state_dict(),
        "reference_fingerprint": fingerprint,
        "moving_reference": session.reference.state() if isinstance(session.reference, MovingReference) else None,
        "reward_spread": None if spread is None else (spread.mean, spread.sd, spread.count),
    }
    torch.save(state, unfinished / STATE_FILE)
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
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise RunDirError(
            f"{path}: no training state can be read there ({error}). Resume from another checkpoint"
        ) from error


@torch.no_grad()
def load_weights(policy: Policy, saved: dict[str, Any]) -> None:
    """Put the trained weights of a saved state into a freshly loaded policy."""
    masters = saved["optimizer"]["masters"]
    for name, parameter in policy.trained():
        parameter.copy_(masters[name])


def restore(session: Session, state: dict[str, Any], fingerprint: str) -> int:
    """Put a saved state into a session; returns the step to go on with.

    Raises:
        RunDirError: the reference is not the one that the run began with.
    """
    if state["reference_fingerprint"] != fingerprint:
        raise RunDirError(
            f"the reference has changed: its weights hash to {fingerprint[:16]}, and this run was measured from "
            f"{state['reference_fingerprint'][:16]}. Its KL would mean something else. Put the old weights back "
            f"(model {session.policy.name!r}), or start a new run"
        )
    session.optimizer.load_state_dict(state["optimizer"])
    session.starting_beta = state["starting_beta"]
    session.controller = make_controller(session.config.algorithm.kl, session.starting_beta)
    session.controller.load_state_dict(state["controller"])
    if session.loosening is not None:
        session.loosening.load_state_dict(state["loosening"])
    if isinstance(session.reference, MovingReference):
        session.reference.load_state(state["moving_reference"])
    if state["reward_spread"] is not None:
        session.rewarder.spread = Spread(*state["reward_spread"])
    return int(state["step"])
