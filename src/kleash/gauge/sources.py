"""What the name of a model means, before any weight is read.

A name is one of

* a hub id, a local Hugging Face folder, or `demo`;
* a PEFT adapter, as a folder or hub id: its base with the adapter on;
* a `.gguf` file, whose weights transformers dequantises;
* a Kleash run: `RUN` is its newest checkpoint, `RUN@40` or `RUN/checkpoints/step_40` is one of them;
* in Python also a pair (model, tokenizer) that is in memory already.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kleash.errors import ModelError, RunDirError, near_match
from kleash.gauge.records import ModelKind
from kleash.models.names import load_tokenizer, resolve
from kleash.models.tokenizer import Tokenizer, wrap
from kleash.runs.reader import RunReader
from kleash.runs.schema import DATABASE

ADAPTER_CONFIG = "adapter_config.json"

Named = str | Path | tuple[Any, Any]
"""A name, or a (model, tokenizer) pair."""


@dataclass(frozen=True)
class Source:
    """Where weights come from.

    Attributes:
        name: as given.
        kind: what the name turned out to be.
        weights: hub id, folder or GGUF file of the whole weights; the base where there is an adapter.
        adapter: folder or hub id of a PEFT adapter on top of them, or None.
        loaded: the model and tokenizer in memory, or None.
    """

    name: str
    kind: ModelKind
    weights: str
    adapter: str | None = None
    loaded: tuple[Any, Any] | None = None

    @property
    def key(self) -> str:
        """Equal for sources that share one load."""
        return f"memory:{id(self.loaded[0])}" if self.loaded else _canonical(self.weights)

    @property
    def described(self) -> str:
        """What it is, in words."""
        if self.kind == "gguf":
            return f"{self.name}: the weights of the file dequantised by transformers, not llama.cpp's own arithmetic"
        if self.loaded is not None:
            return f"{self.name}, in memory"
        if self.adapter is not None:
            return f"adapter {self.adapter} on {self.weights}"
        return self.weights


def identify(name: Named, base: Source | None = None) -> Source:
    """Find out what `name` is.

    Args:
        name: see the module's docstring.
        base: the reference that an adapter must belong to; None takes the base that the adapter names.

    Raises:
        ModelError: no such file, or an adapter that belongs to another base.
        RunDirError: a run without that checkpoint.
    """
    if isinstance(name, tuple):
        _check_apart(name[0], base)
        config = name[0].config
        return Source(str(config._name_or_path or config.model_type), "memory", "", None, name)
    text = str(name)
    run, checkpoint = _in_run(text)
    if run is not None:
        return replace(_folder(text, str(checkpoint), base), kind="run")
    if text.endswith(".gguf"):
        return _gguf(text)
    return _folder(text, resolve(text), base)


def checkpoints(run: str | Path) -> list[str]:
    """Names of all checkpoints of a Kleash run that are on disk, by step: one `measure` each makes a curve.

    Raises:
        RunDirError: no run there, or it has no checkpoint.
    """
    with RunReader(run) as reader:
        found = [f"{run}@{checkpoint.step}" for checkpoint in reader.checkpoints() if checkpoint.path.is_dir()]
    if not found:
        raise RunDirError(f"{run} has no checkpoint on disk. Train it further, or choose another run")
    return found


def tokenizer_of(source: Source) -> Tokenizer:
    """The tokenizer beside the weights; an adapter's own files are not read for it.

    Raises:
        ModelError: it cannot be read.
    """
    if source.loaded is not None:
        model, inner = source.loaded
        return wrap(inner, model.config, getattr(model, "generation_config", None), source.name)
    if source.kind == "gguf":
        return _gguf_tokenizer(source)
    return load_tokenizer(source.weights)


def rows_of(source: Source) -> int:
    """Rows of its output layer, as its config says. Call `tokenizer_of` first: it explains what cannot be read."""
    from transformers import AutoConfig

    if source.loaded is not None:
        config = source.loaded[0].config
    elif source.kind == "gguf":
        path = Path(source.weights)
        config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
    else:
        config = AutoConfig.from_pretrained(source.weights)
    return int(config.get_text_config().vocab_size)


def cannot_read_gguf(path: str, error: Exception) -> ModelError:
    """One sentence on why transformers refuses a GGUF file."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ModelError(
        f"{path} cannot be read by transformers: {first}. Gauge the Hugging Face folder that the file was made from"
    )


def _check_apart(model: Any, base: Source | None) -> None:
    """Refuse a PEFT model over the very object that is the reference: its adapter is on in both."""
    if base is None or base.loaded is None or base.loaded[0] is model:
        return
    under, reference = (getattr(it, "get_base_model", lambda it=it: it)() for it in (model, base.loaded[0]))
    if under is reference:
        raise ModelError(
            "the tuned model in memory is a PEFT wrapper around the reference's own layers, so that its adapter is on "
            "in both. Save the adapter and give its folder"
        )


def _in_run(name: str) -> tuple[Path | None, Path | None]:
    """The run folder and checkpoint folder that a name means, or twice None."""
    folder, _, step = name.rpartition("@")
    if folder and step.isdigit() and Path(folder).is_dir():
        return Path(folder), _checkpoint(Path(folder), int(step))
    path = Path(name)
    if (path / DATABASE).is_file():
        return path, _checkpoint(path, None)
    if path.is_dir() and (path.parent.parent / DATABASE).is_file():
        return path.parent.parent, path
    return None, None


def _checkpoint(run: Path, step: int | None) -> Path:
    with RunReader(run) as reader:
        there = {checkpoint.step: checkpoint.path for checkpoint in reader.checkpoints() if checkpoint.path.is_dir()}
    if not there:
        raise RunDirError(f"{run} has no checkpoint on disk. Train it further, or choose another run")
    if step is not None and step not in there:
        raise RunDirError(f"{run} has no checkpoint of step {step}; there are {sorted(there)}. Choose one of these")
    return there[max(there) if step is None else step]


def _folder(name: str, place: str, base: Source | None) -> Source:
    """Whole weights, or an adapter on its base."""
    config = _adapter_config(place)
    if config is None:
        _check_folder(name, place)
        return Source(name, "model", place)
    named = str(config.get("base_model_name_or_path") or "")
    if base is None:
        if not named:
            raise ModelError(
                f"{name} is an adapter that does not name its base (base_model_name_or_path in {ADAPTER_CONFIG} is "
                "empty), so it cannot be the reference. Write the base's name there"
            )
        return Source(name, "adapter", named, place)
    if named and not _same_base(named, base):
        raise ModelError(
            f"{name} is an adapter for {named!r}, but the reference is {base.name!r}: on another base it is another "
            f"model. Gauge it against {named!r}; if the two are the same weights, write {base.weights!r} as "
            f"base_model_name_or_path into its {ADAPTER_CONFIG}; to gauge it against another model, merge it first"
        )
    return Source(name, "adapter", base.weights, place, base.loaded)


def _same_base(named: str, base: Source) -> bool:
    """Same folder, same hub id, or a folder of the same last name where the named one is not here to compare."""
    if base.loaded is not None and not base.weights:
        return named == base.name or Path(named).name == Path(base.name).name
    if _canonical(named) == _canonical(base.weights):
        return True
    return not Path(named).exists() and Path(named).name == Path(base.weights).name


def _canonical(place: str) -> str:
    path = Path(place).expanduser()
    return str(path.resolve()) if path.exists() else place


def _adapter_config(place: str) -> dict[str, Any] | None:
    """The settings of a PEFT adapter, or None where the folder or hub id holds none."""
    path = Path(place).expanduser()
    if path.exists():
        file = path / ADAPTER_CONFIG
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    from transformers.utils.peft_utils import find_adapter_config_file

    try:
        found = find_adapter_config_file(place)
    except (OSError, ValueError):
        return None
    return json.loads(Path(found).read_text(encoding="utf-8")) if found else None


def _check_folder(name: str, place: str) -> None:
    path = Path(place).expanduser()
    if not path.exists() and (path.is_absolute() or place.startswith(".") or place.count("/") > 1):
        near = near_match(path.name, (entry.name for entry in path.parent.iterdir())) if path.parent.is_dir() else ""
        raise ModelError(f"model {name!r}: there is no such local folder.{near} Check the path")
    if path.is_file():
        raise ModelError(f"model {name!r} is a file of no kind that is known. Give a folder, a .gguf file, or a hub id")
    if path.is_dir() and not (path / "config.json").is_file():
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        hint = f"Name the GGUF file in it: {ggufs[0]}" if ggufs else "Give the folder that save_pretrained wrote"
        raise ModelError(
            f"model {name!r}: the folder holds neither config.json nor {ADAPTER_CONFIG}, so it is no model. {hint}"
        )


def _gguf(name: str) -> Source:
    if not Path(name).is_file():
        raise ModelError(f"model {name!r}: there is no such file. Check the path to the .gguf file")
    try:
        import gguf  # noqa: F401 - transformers needs it to read the file
    except ImportError as error:
        raise ModelError(f"{name} is a GGUF file: to read it, install `pip install 'kleash[demo]'`") from error
    return Source(name, "gguf", name)


def _gguf_tokenizer(source: Source) -> Tokenizer:
    from transformers import AutoConfig, AutoTokenizer

    folder, file = str(Path(source.weights).parent), Path(source.weights).name
    try:
        config = AutoConfig.from_pretrained(folder, gguf_file=file)
        inner = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    except Exception as error:  # a damaged or unknown file raises whatever the reader met first
        raise cannot_read_gguf(source.weights, error) from error
    return wrap(inner, config, None, source.name)
