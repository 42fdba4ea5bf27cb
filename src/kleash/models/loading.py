"""From settings to models: the policy with its adapter and sampling copy, and the reference."""

from __future__ import annotations

from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from kleash.config.schema import Model
from kleash.errors import ModelError
from kleash.models import lora
from kleash.models.device import pick_attention, pick_device, pick_dtype
from kleash.models.folding import FoldedCopy, share
from kleash.models.names import cannot_load, load_tokenizer, resolve
from kleash.models.policy import Policy
from kleash.models.reference import ModelReference, Reference, moving_reference, starting_reference
from kleash.models.scoring import check_head, head_weight
from kleash.models.tokenizer import Tokenizer, wrap


def load_policy(
    settings: Model,
    *,
    context: int,
    seed: int,
    device: torch.device | None = None,
    loaded: tuple[Any, Any] | None = None,
) -> Policy:
    """The model to train, with its adapter and the copy to sample from.

    Args:
        settings: the `model` table of a run.
        context: longest prompt + completion, which decides the attention kernel.
        seed: of a fresh adapter.
        device: default `pick_device()`.
        loaded: a model and its tokenizer that are in memory already; the model is trained in place.
    """
    device = device or pick_device()
    dtype = pick_dtype(device, settings.dtype)
    if loaded is None:
        name = resolve(settings.name)
        causal_lm = _load_weights(name, settings.revision, dtype, device, pick_attention(device, context))
        tokenizer = load_tokenizer(name, settings.revision)
    else:
        name, (model, inner) = settings.name, loaded
        causal_lm = model.to(device=device, dtype=dtype).eval()
        tokenizer = wrap(inner, model.config, model.generation_config, name)
    check_head(causal_lm, name)
    twin = share(causal_lm)
    whole = settings.lora is False and settings.adapter is None
    causal_lm.requires_grad_(whole)
    peft_model = None if whole else _with_adapter(causal_lm, settings, seed)
    _switch_dropout_off(causal_lm)
    policy = Policy(name, causal_lm, peft_model, tokenizer, FoldedCopy(twin, causal_lm))
    if settings.gradient_checkpointing:
        causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
        causal_lm.train()
    return policy


def load_reference(settings: Model, policy: Policy, *, context: int) -> Reference:
    """The reference that the `model` table asks for; call it before the first update.

    Raises:
        ModelError: the other model has another vocabulary, or cannot be read.
    """
    if settings.reference is None:
        original = starting_reference(policy)
    else:
        name = resolve(settings.reference)
        attention = pick_attention(policy.device, context)
        other = _load_weights(name, None, policy.dtype, policy.device, attention)
        check_head(other, name)
        _switch_dropout_off(other)
        _same_tokenizer(policy.tokenizer, load_tokenizer(name))
        _same_head(policy, other, name)
        original = ModelReference(other, name)
    if settings.reference_ema is None and settings.reference_reset_every is None:
        return original
    return moving_reference(policy, original, mix=settings.reference_ema, reset_every=settings.reference_reset_every)


def load_frozen(name: str, revision: str | None, dtype: torch.dtype, device: torch.device, context: int) -> Any:
    """A causal language model that is only read: nothing trainable, no dropout.

    Args:
        name: hub id, local folder, or `demo`.
        revision: commit or branch on the hub.
        dtype: of its weights.
        device: where it is put.
        context: longest sequence, which decides the attention kernel.

    Raises:
        ModelError: there is no such model, or it cannot be read.
    """
    model = _load_weights(resolve(name), revision, dtype, device, pick_attention(device, context))
    _switch_dropout_off(model)
    return model.requires_grad_(False)


def _load_weights(name: str, revision: str | None, dtype: torch.dtype, device: torch.device, attention: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            name, revision=revision, dtype=dtype, attn_implementation=attention
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ModelError(cannot_load(name, error)) from error
    return model.to(device).eval()


def _with_adapter(causal_lm: nn.Module, settings: Model, seed: int) -> Any:
    if settings.adapter is not None:
        return lora.load(causal_lm, settings.adapter, frozen_copy=True)
    assert settings.lora is not False
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return lora.attach(
            causal_lm,
            r=settings.lora.r,
            alpha=settings.lora.alpha,
            target_modules=settings.lora.target_modules,
        )


def _switch_dropout_off(model: nn.Module) -> None:
    """Scores must not be random: a reference that differs from itself has no KL."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def _same_tokenizer(policy: Tokenizer, reference: Tokenizer) -> None:
    ours, theirs = policy.inner.get_vocab(), reference.inner.get_vocab()
    different = [token for token in ours if theirs.get(token) != ours[token]]
    if different or len(ours) != len(theirs):
        raise ModelError(
            f"reference {reference.name!r} has another tokenizer than {policy.name!r}: "
            f"{len(different)} tokens differ (such as {different[:3]}), sizes {len(theirs)} and {len(ours)}. "
            "A KL needs one vocabulary: use a reference of the same family"
        )


def _same_head(policy: Policy, other: Any, name: str) -> None:
    ours, theirs = policy.head.shape[0], head_weight(other).shape[0]
    if ours != theirs:
        raise ModelError(
            f"reference {name!r} has {theirs} rows in its output layer and {policy.name!r} has {ours}: the same "
            "tokenizer, padded to another size. A KL needs one vocabulary: call resize_token_embeddings on one of them"
        )
