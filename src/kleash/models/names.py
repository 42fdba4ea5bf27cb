"""What a model is called: hub ids, local folders, and the demo model. Nothing here reads weights, or needs PEFT."""

from __future__ import annotations

from pathlib import Path

from kleash.errors import ModelError
from kleash.models import demo_model
from kleash.models.tokenizer import Tokenizer, wrap

DEMO = "demo"


def resolve(name: str) -> str:
    """A hub id or local folder; `demo` is fetched.

    Raises:
        ModelError: the demo model is out of reach.
    """
    return demo_model.fetch() if name == DEMO else name


def load_tokenizer(name: str, revision: str | None = None) -> Tokenizer:
    """Tokenizer, stop tokens and context of a model, before any weight is read.

    Raises:
        ModelError: there is no such model, or it cannot be read.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    name = resolve(name)
    try:
        config = AutoConfig.from_pretrained(name, revision=revision)
        inner = AutoTokenizer.from_pretrained(name, revision=revision)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(cannot_load(name, error)) from error
    try:
        generation = GenerationConfig.from_pretrained(name, revision=revision)
    except OSError:
        generation = None
    return wrap(inner, config, generation, name)


def cannot_load(name: str, error: Exception) -> str:
    """Why a name gave no model, in a sentence."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    local = Path(name).expanduser()
    if local.exists():
        return f"model {name!r}: the folder cannot be read as a Hugging Face model: {first}"
    return (
        f"model {name!r}: no such local folder, and the hub gave nothing ({first}). "
        "Check the spelling, log in with `hf auth login` if it is gated, or give a folder"
    )
