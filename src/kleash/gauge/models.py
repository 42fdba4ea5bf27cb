"""Weights in memory: models that are gauged, with one load for all that share a base.

An adapter is switched on and off on its base: switched off it is the reference where that is the base, with no second
copy of the weights. Nothing is merged: merging in bfloat16 would move the model.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from kleash.errors import ModelError
from kleash.gauge.records import ModelFacts
from kleash.gauge.sources import Source, cannot_read_gguf
from kleash.models.batch import TokenBatch
from kleash.models.device import pick_attention, pick_device, pick_dtype
from kleash.models.fingerprint import fingerprint
from kleash.models.scoring import check_head, head_weight, response_hidden

DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float64: "float64"}

REMEMBERED_BYTES = 1_000_000_000


class GaugedModel:
    """One model as it is measured: weights, with an adapter on or all adapters off."""

    def __init__(self, facts: ModelFacts, weights: Callable[[], Weights], adapter: str | None) -> None:
        """View what `weights` gives with `adapter` on; None: all adapters off."""
        self.facts, self._weights, self._adapter = facts, weights, adapter

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return torch.device(next(self._weights().causal_lm.parameters()).device)

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Weight of its output layer."""
        return head_weight(self._weights().causal_lm)

    @contextlib.contextmanager
    def active(self) -> Iterator[Any]:
        """Within the block the shared weights are this model."""
        weights = self._weights()
        with weights.switched(self._adapter):
            yield weights.causal_lm

    @torch.no_grad()
    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        with self.active() as causal_lm:
            return response_hidden(causal_lm, batch)


class Weights:
    """A causal language model in memory, and the adapters that were put on it."""

    def __init__(self, causal_lm: Any, base_fingerprint: str) -> None:
        """Share `causal_lm`; the fingerprint is of its weights without adapters."""
        self.causal_lm, self.fingerprint = causal_lm, base_fingerprint
        self.parameters = sum(parameter.numel() for parameter in causal_lm.parameters())
        self._peft_model: Any = None
        self._adapters: dict[str, str] = {}

    @contextlib.contextmanager
    def switched(self, adapter: str | None) -> Iterator[None]:
        """Within the block, run with this adapter, or with none."""
        if self._peft_model is None:
            yield
        elif adapter is None:
            self._peft_model.base_model.disable_adapter_layers()
            try:
                yield
            finally:
                self._peft_model.base_model.enable_adapter_layers()
        else:
            self._peft_model.base_model.set_adapter(adapter, inference_mode=True)
            yield

    def attach(self, folder: str, name: str) -> str:
        """Put the adapter in `folder` on the weights; returns what `switched` calls it.

        Raises:
            ModelError: it does not fit the weights, or needs arithmetic that cannot be switched off.
        """
        if folder not in self._adapters:
            label = f"gauged_{len(self._adapters)}"
            self._load_adapter(folder, label, name)
            self._adapters[folder] = label
        return self._adapters[folder]

    def adapter_tensors(self, label: str) -> list[tuple[str, Tensor]]:
        """The adapter's tensors."""
        return [(key, tensor) for key, tensor in self.causal_lm.state_dict().items() if f".{label}" in key]

    def _load_adapter(self, folder: str, label: str, name: str) -> None:
        from peft import PeftConfig, PeftModelForCausalLM

        config = PeftConfig.from_pretrained(folder)
        if config.is_prompt_learning:
            raise ModelError(f"{name} is a {config.peft_type.value} adapter, which adds virtual tokens: not supported")
        if getattr(config, "bias", "none") != "none":
            raise ModelError(
                f"{name} trains biases (bias = {config.bias!r}), which PEFT cannot switch off: its base would no "
                "longer be the base. Merge it with merge_and_unload, save it, and gauge that folder"
            )
        try:
            if self._peft_model is None:
                config.inference_mode = True
                self._peft_model = PeftModelForCausalLM(self.causal_lm, config, adapter_name=label)
            result = self._peft_model.load_adapter(folder, adapter_name=label, is_trainable=False)
        except (RuntimeError, ValueError, KeyError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise _foreign(name, f"it does not fit the weights ({reason})") from error
        left_over = [*result.missing_keys, *result.unexpected_keys]
        if left_over:
            raise _foreign(name, f"{len(left_over)} of its tensors have no place in its base (such as {left_over[0]})")
        self._peft_model.eval()
        self._check_outputs(name)

    def _check_outputs(self, name: str) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer
        from peft.utils.other import AuxiliaryTrainingWrapper

        if isinstance(self.causal_lm.get_output_embeddings(), BaseTunerLayer | AuxiliaryTrainingWrapper):
            raise ModelError(
                f"{name} trains the output layer, which is applied here to hidden states without its adapter. "
                "Merge it with merge_and_unload, save it, and gauge that folder"
            )


class Loader:
    """Loads each set of weights once."""

    def __init__(self, *, dtype: str, context: int, device: torch.device | None = None) -> None:
        """Compute in `dtype` on `device`; `context` is the longest sequence, which decides the attention kernel.

        `auto` is float32 on a CPU, where a small drift should not drown in rounding, and what the hardware multiplies
        on a GPU.
        """
        self.device = device or pick_device()
        on_cpu = dtype == "auto" and self.device.type == "cpu"
        self.dtype = torch.float32 if on_cpu else pick_dtype(self.device, dtype)
        self._context = context
        self._loaded: dict[str, Weights] = {}

    def load(self, source: Source) -> GaugedModel:
        """The model that `source` names.

        Raises:
            ModelError: it cannot be read, its head is of a kind without an exact KL here, or an adapter does not fit.
        """
        weights = self._weights(source)
        adapter = None if source.adapter is None else weights.attach(source.adapter, source.name)
        digest = weights.fingerprint
        if adapter is not None:
            own = fingerprint((key.replace(adapter, ""), tensor) for key, tensor in weights.adapter_tensors(adapter))
            digest = hashlib.sha256(f"{digest} {own}".encode()).hexdigest()
        facts = ModelFacts(
            name=source.name,
            kind=source.kind,
            description=source.described,
            dtype=DTYPE_NAMES[weights.causal_lm.dtype],
            parameters=weights.parameters,
            vocabulary=head_weight(weights.causal_lm).shape[0],
            fingerprint=digest,
        )
        return GaugedModel(facts, lambda: weights, adapter)

    def release(self, source: Source) -> None:
        """Forget the weights of a source; models made from them keep working."""
        self._loaded.pop(source.key, None)

    def _weights(self, source: Source) -> Weights:
        if source.key not in self._loaded:
            causal_lm = self._in_memory(source) if source.loaded else self._read(source)
            check_head(causal_lm, source.name)
            named = [*causal_lm.named_parameters(), *causal_lm.named_buffers()]
            self._loaded[source.key] = Weights(causal_lm, fingerprint(named))
        return self._loaded[source.key]

    def _in_memory(self, source: Source) -> Any:
        assert source.loaded is not None
        model = source.loaded[0]
        return (model.get_base_model() if hasattr(model, "get_base_model") else model).eval()

    def _read(self, source: Source) -> Any:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        _give_back_memory()
        options: dict[str, Any] = {
            "dtype": self.dtype,
            "attn_implementation": pick_attention(self.device, self._context),
        }
        if source.kind == "gguf":
            path = Path(source.weights)
            try:
                model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, **options)
            except Exception as error:  # a damaged or unknown file raises whatever the reader met first
                raise cannot_read_gguf(source.weights, error) from error
            return model.to(self.device).eval()
        try:
            model = AutoModelForCausalLM.from_pretrained(source.weights, **options)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(f"model {source.name!r} cannot be read as a causal language model: {first}") from error
        return model.to(self.device).eval()


def _give_back_memory() -> None:
    """Return what tokenizers and checks have freed to the system before weights come; glibc would keep it."""
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class Remembering:
    """A model that keeps its hidden states: the reference on its own replies, which every tuned model is scored on.

    The first that fit `REMEMBERED_BYTES` are kept, the others are computed anew each time.
    """

    def __init__(self, model: GaugedModel) -> None:
        """Answer for `model`."""
        self.facts, self._model = model.facts, model
        self._states: dict[bytes, Tensor] = {}
        self._bytes = 0

    @property
    def head(self) -> Float[Tensor, "V H"]:
        """Weight of its output layer."""
        return self._model.head

    def hidden(self, batch: TokenBatch) -> Float[Tensor, "N H"]:
        """Hidden states that predict the response tokens; no gradient."""
        asked = hashlib.sha256()
        for tensor in (batch.input_ids, batch.predicts_response):
            asked.update(f"{tuple(tensor.shape)}".encode() + tensor.cpu().numpy().tobytes())
        key = asked.digest()
        if key in self._states:
            return self._states[key]
        states = self._model.hidden(batch)
        if self._bytes + states.nbytes <= REMEMBERED_BYTES:
            self._bytes += states.nbytes
            self._states[key] = states
        return states


def rounded(model: GaugedModel, kind: str, copy: Callable[[Any], nn.Module]) -> GaugedModel:
    """`model` with its weights rounded by `copy`, which is called when they are first needed; `kind` names it."""

    @functools.cache
    def weights() -> Weights:
        with model.active() as causal_lm:
            return Weights(copy(causal_lm), digest)

    digest = f"{kind} rounding of {model.facts.fingerprint}"
    name = f"{model.facts.name} rounded to {kind}"
    return GaugedModel(replace(model.facts, name=name, description=name, fingerprint=digest), weights, None)


class Narrowed:
    """A model to sample from, over the first `rows` of its head: the distribution that is scored."""

    def __init__(self, causal_lm: Any, rows: int) -> None:
        """Cut the head of `causal_lm`; the weights are shared."""
        self.config, self.base_model = causal_lm.config, causal_lm.base_model
        self.parameters = causal_lm.parameters
        self._head = nn.Module()
        self._head.weight = head_weight(causal_lm)[:rows]

    def get_output_embeddings(self) -> nn.Module:
        """The narrowed output layer."""
        return self._head


def _foreign(name: str, reason: str) -> ModelError:
    return ModelError(f"{name} is not an adapter for this base: {reason}. Gauge it against the base it was trained on")
