"""A scorer's adapter on a model: a fresh one, or one from its folder with the head that was saved beside it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import Linear as PeftLoraLinear
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from kleash.config.schema import Lora
from kleash.errors import ModelError
from kleash.models.lora import FusedLoraLinear
from kleash.models.saved_reward import ADAPTER_HEAD, ADAPTER_WEIGHTS
from kleash.models.scalar_model import Member, adapter_tensors, new_head


def fresh_config(lora: Lora, targets: str | Collection[str], revision: str | None) -> LoraConfig:
    """Settings of a fresh adapter under a score; `revision` is that of its base on the hub."""
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        target_modules=targets if isinstance(targets, str) else sorted(targets),
        lora_dropout=0.0,
        bias="none",
        task_type="SEQ_CLS",
        revision=revision,
    )


def saved_config(folder: Path) -> LoraConfig:
    """A saved adapter's settings, for training or scoring with our own arithmetic.

    Raises:
        ModelError: arithmetic that we do not have.
    """
    config = LoraConfig.from_pretrained(str(folder))
    further = sorted(set(getattr(config, "modules_to_save", None) or ()) - {"score", "classifier"})
    if not isinstance(config, LoraConfig) or config.use_dora or config.bias != "none" or further:
        raise ModelError(
            f"{folder} is a {config.peft_type} adapter with use_dora = {getattr(config, 'use_dora', None)}, bias = "
            f"{getattr(config, 'bias', None)!r} and besides the head {further or 'nothing'} in modules_to_save; only "
            "plain LoRA with a head can be read. Merge it into its base with PEFT, and give that folder"
        )
    config.lora_dropout, config.modules_to_save, config.inference_mode = 0.0, None, False
    return config


def add_adapter(
    model: nn.Module, peft_model: PeftModel | None, adapter: str, config: LoraConfig, seed: int
) -> PeftModel:
    """Put one more adapter on the model; the first one makes the PEFT model."""
    config._register_custom_module({nn.Linear: FusedLoraLinear})
    targets = config.target_modules
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if peft_model is None:
                peft_model = PeftModel(model, config, adapter_name=adapter)
            else:
                peft_model.add_adapter(adapter, config)
    except ValueError as error:
        raise ModelError(
            f"target_modules = {targets!r} matches no linear layer of this model: {error}. "
            "Use 'all-linear', or names from model.named_modules()"
        ) from error
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer) and not isinstance(module, PeftLoraLinear):
            raise ModelError(
                f"target_modules = {targets!r} trains {name!r} ({type(module).__name__}); only low-rank adapters of "
                "linear layers can be trained. Leave that layer out of the adapter"
            )
    return peft_model


@torch.no_grad()
def read_member(model: nn.Module, adapter: str, folder: Path) -> Member:
    """Fill an adapter that is on the model from its folder, and make its head."""
    try:
        stored = load_file(folder / ADAPTER_WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder / ADAPTER_WEIGHTS} cannot be read: {error}. Copy it again") from error
    head_state = {
        key.removeprefix(ADAPTER_HEAD): stored.pop(key) for key in list(stored) if key.startswith(ADAPTER_HEAD)
    }
    ours = adapter_tensors(model, adapter)
    unlike = [key for key in ours.keys() | stored.keys() if _shape(ours.get(key)) != _shape(stored.get(key))]
    if unlike:
        raise ModelError(
            f"the adapter in {folder} does not fit its base: {len(unlike)} tensors differ in name or shape, such as "
            f"{min(unlike)!r}. Use the model it was trained on"
        )
    for key, parameter in ours.items():
        parameter.copy_(stored[key])
    weight = head_state["weight"]
    head = new_head(weight.shape[1], next(model.parameters()).device, bias="bias" in head_state)
    head.load_state_dict(head_state)
    return Member(adapter, head)


def _shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)
