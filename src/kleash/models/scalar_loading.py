"""From settings, saved folders and policies to reward models and critics.

A causal checkpoint gets a head of zeros, a sequence-classification checkpoint keeps its own. Only heads called `score`
are read: Hugging Face's decoders name it so.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear as PeftLoraLinear
from safetensors import SafetensorError, safe_open
from torch import nn

from kleash.config.schema import Model
from kleash.errors import ModelError
from kleash.models.device import pick_attention, pick_device, pick_dtype
from kleash.models.loading import _switch_dropout_off
from kleash.models.lora import TRAINED
from kleash.models.names import cannot_load, load_tokenizer, resolve
from kleash.models.policy import Policy
from kleash.models.saved_reward import ADAPTER_WEIGHTS, MODEL_HEAD, SavedReward, open_saved, tensor_names
from kleash.models.scalar_adapters import add_adapter, fresh_config, read_member, saved_config
from kleash.models.scalar_model import Member, ScalarModel, new_head
from kleash.models.tokenizer import Tokenizer

CRITIC = "critic"
"""PEFT's name of the critic's adapter on a policy."""
OTHER_HEADS = ("classifier", "classification_head", "v_head", "value_head", "reward_head", "regression_head")


def load_scalar_model(
    settings: Model, *, members: int, seed: int, context: int, device: torch.device | None = None
) -> ScalarModel:
    """A reward model to train.

    Args:
        settings: the `model` table of a run: a causal or sequence-classification checkpoint.
        members: adapters, each with a head; 1 where `settings.lora` is False, which trains the whole backbone.
        seed: of the adapters: member i draws with seed + i. Heads start at zero, or as the checkpoint has them.
        context: longest prompt + completion, which decides the attention kernel.
        device: default `pick_device()`.

    Raises:
        ModelError: no such model, a head that is not one number called `score`, an adapter to continue, or several
            members that train everything.
    """
    if settings.adapter is not None:
        raise ModelError(
            f"model.adapter = {settings.adapter!r} cannot be continued with a score for an answer. Merge it into its "
            "base with `kleash export --merge`, and give that folder as model.name"
        )
    if settings.lora is False and members != 1:
        raise ModelError(
            f"algorithm.members = {members} with model.lora = false: members share one backbone, and here each would "
            "train it. Set members = 1, or train adapters"
        )
    device = device or pick_device()
    name = resolve(settings.name)
    model = _load_backbone(name, settings.revision, pick_dtype(device, settings.dtype), device, context)
    peft_model, scorers = None, []
    if settings.lora is False:
        model.requires_grad_(True)
        scorers.append(Member(None, model.score))
    else:
        for index in range(members):
            scorers.append(Member(f"member_{index}", copy.deepcopy(model.score).requires_grad_(True)))
            config = fresh_config(settings.lora, settings.lora.target_modules, settings.revision)
            peft_model = add_adapter(model, peft_model, f"member_{index}", config, seed + index)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    tokenizer = load_tokenizer(name, settings.revision)
    return ScalarModel(name, model, peft_model, tuple(scorers), tokenizer, borrowed=False)


def load_saved(
    saved: SavedReward, *, context: int, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> ScalarModel:
    """A saved reward model with all its members, to score with or to train on.

    Args:
        saved: what `open_saved` found.
        context: longest prompt + completion, which decides the attention kernel.
        device: default `pick_device()`.
        dtype: of compute; by default what the hardware multiplies.

    Raises:
        ModelError: its base or its weights cannot be read, or do not fit each other.
    """
    device = device or pick_device()
    model = _load_backbone(saved.weights, saved.revision, dtype or pick_dtype(device, "auto"), device, context)
    tokenizer = load_saved_tokenizer(saved)
    if saved.base is None:
        model.requires_grad_(True)
        return ScalarModel(saved.weights, model, None, (Member(None, model.score),), tokenizer, borrowed=False)
    peft_model, members = None, []
    for index, folder in enumerate(saved.members):
        peft_model = add_adapter(model, peft_model, f"member_{index}", saved_config(folder), seed=0)
        members.append(read_member(model, f"member_{index}", folder))
    return ScalarModel(saved.base, model, peft_model, tuple(members), tokenizer, borrowed=False)


def load_saved_tokenizer(saved: SavedReward) -> Tokenizer:
    """The tokenizer a reward model was saved with; its base's where none was."""
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(saved.weights, saved.revision)
    own = saved.members[0]
    if not (own / "tokenizer_config.json").is_file():
        return tokenizer
    return replace(tokenizer, inner=AutoTokenizer.from_pretrained(own), name=str(saved.folder))


def critic_on_policy(policy: Policy, *, settings: Model, seed: int, context: int) -> ScalarModel:
    """A critic that starts at V = 0.

    It is an adapter on the policy's own backbone, of the policy's layers and the rank of `settings.lora`, with a head
    of zeros: no second copy of the weights. A policy that is trained whole would drag such a critic along; there it is
    a model of its own, loaded by name and trained whole.

    Args:
        policy: whose tokens are valued; its numbers, weights and checkpoints stay as they are.
        settings: the `model` table that the policy was made from.
        seed: of the adapter.
        context: longest prompt + completion.
    """
    if policy.peft_model is None or settings.lora is False:
        return load_scalar_model(
            settings.model_copy(update={"adapter": None}),
            members=1,
            seed=seed,
            context=context,
            device=policy.device,
        )
    targets = policy.peft_model.peft_config[TRAINED].target_modules
    _add_critic(policy, fresh_config(settings.lora, targets, settings.revision), seed)
    return _borrowed(policy, Member(CRITIC, new_head(policy.head.shape[1], policy.device)))


def critic_from_reward_model(policy: Policy, saved: SavedReward, *, context: int) -> ScalarModel:
    """A critic that starts as a reward model.

    Where that is one adapter on the policy's own base and layers, adapter and head are loaded onto the policy's
    backbone; else it is a model of its own.

    Args:
        policy: whose tokens are valued; its numbers, weights and checkpoints stay as they are.
        saved: what `open_saved` found.
        context: longest prompt + completion.

    Raises:
        ModelError: several members, or another tokenizer than the policy's: a critic reads the policy's tokens.
    """
    if len(saved.members) > 1:
        raise ModelError(
            f"{saved.folder} holds {len(saved.members)} members, and a critic starts from one. "
            f"Set algorithm.critic.start = '{saved.members[0]}'"
        )
    _check_same_tokens(policy.tokenizer, load_saved_tokenizer(saved))
    if not _fits_policy(policy, saved):
        return load_saved(saved, context=context, device=policy.device, dtype=policy.dtype)
    _add_critic(policy, saved_config(saved.members[0]), seed=0)
    return _borrowed(policy, read_member(policy.causal_lm, CRITIC, saved.members[0]))


def merge(folder: Path, out: Path) -> None:
    """Write an adapter's folder as one whole AutoModelForSequenceClassification, with its tokenizer and `kleash.json`.

    Base + adapter is rounded once, to the dtype that the base is stored in.

    Raises:
        ModelError: a whole model already, or several members.
    """
    from transformers import AutoConfig

    saved = open_saved(folder)
    if saved.base is None:
        raise ModelError(f"{saved.folder} is a whole model: there is no adapter to merge. Use it as it is")
    if len(saved.members) > 1:
        raise ModelError(
            f"{saved.folder} holds {len(saved.members)} members, which make no one model. "
            f"Merge one, such as {saved.members[0]}"
        )
    stored_dtype = AutoConfig.from_pretrained(saved.base, revision=saved.revision).dtype or torch.float32
    loaded = load_saved(saved, context=1, device=torch.device("cpu"), dtype=stored_dtype)
    assert loaded.peft_model is not None
    merged = loaded.peft_model.merge_and_unload(progressbar=False)
    merged.score = loaded.members[0].head
    whole = replace(loaded, model=merged, peft_model=None, members=(Member(None, merged.score),))
    whole.save(out, saved.rendering)


def _load_backbone(name: str, revision: str | None, dtype: torch.dtype, device: torch.device, context: int) -> Any:
    """The checkpoint as a classifier of one label; `score` is zero unless the checkpoint has it."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    try:
        config = AutoConfig.from_pretrained(name, revision=revision)
        classifies = any(a.endswith("ForSequenceClassification") for a in config.architectures or ())
        if classifies and config.num_labels != 1:
            raise ModelError(
                f"model {name!r} is a classifier of num_labels = {config.num_labels}: a reward is one number. "
                "Use a checkpoint of num_labels = 1, or a causal language model, which gets a fresh head"
            )
        config.num_labels = 1
        with _quiet(), torch.random.fork_rng():
            model, report = AutoModelForSequenceClassification.from_pretrained(
                name,
                revision=revision,
                config=config,
                dtype=dtype,
                attn_implementation=pick_attention(device, context),
                output_loading_info=True,
            )
    except ModelError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(cannot_load(name, error)) from error
    _check_head(model, report, name, classifies)
    fresh = "score.weight" in report["missing_keys"]
    model.score = new_head(model.score.in_features, device) if fresh else _own_head(model.score, name, device)
    _switch_dropout_off(model)
    return model.to(device).eval().requires_grad_(False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what transformers says of a head that is fresh on purpose, and its progress bars."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _check_head(model: Any, report: dict[str, Any], name: str, classifies: bool) -> None:
    unread = sorted(key for key in report["unexpected_keys"] if any(head in key.split(".") for head in OTHER_HEADS))
    if not isinstance(getattr(model, "score", None), nn.Linear):
        inside = {id(parameter) for parameter in model.base_model.parameters()}
        unread = [key for key, parameter in model.named_parameters() if id(parameter) not in inside]
    if unread:
        raise ModelError(
            f"model {name!r} has its head in {', '.join(unread)}; only decoders whose head is one linear layer called "
            "'score' are supported. Rename those tensors if that is what they are, or use another checkpoint"
        )
    if classifies and "score.weight" in report["missing_keys"]:
        raise ModelError(
            f"head not found: model {name!r} is a sequence classifier, and its weights have no 'score.weight'. "
            "Save it again with its head, or use the causal language model it came from"
        )


def _own_head(score: nn.Linear, name: str, device: torch.device) -> nn.Linear:
    """A checkpoint's head in float32; from a local folder as stored, before any rounding to the compute dtype."""
    head = new_head(score.in_features, device, bias=score.bias is not None)
    state = {key: tensor.float() for key, tensor in score.state_dict().items()}
    for file in sorted(Path(name).glob("model*.safetensors")):
        with safe_open(str(file), framework="pt") as opened:
            state |= {key: opened.get_tensor(MODEL_HEAD + key) for key in state if MODEL_HEAD + key in opened.keys()}  # noqa: SIM118
    head.load_state_dict(state)
    return head


def _add_critic(policy: Policy, config: LoraConfig, seed: int) -> None:
    add_adapter(policy.causal_lm, policy.peft_model, CRITIC, config, seed)
    assert policy.peft_model is not None
    policy.peft_model.set_adapter(TRAINED)


def _borrowed(policy: Policy, critic: Member) -> ScalarModel:
    return ScalarModel(policy.name, policy.causal_lm, policy.peft_model, (critic,), policy.tokenizer, borrowed=True)


def _fits_policy(policy: Policy, saved: SavedReward) -> bool:
    """Whether a reward model is one adapter on the policy's own base and on the same layers as the policy's."""
    if policy.peft_model is None or saved.base is None or _place(saved.base) != _place(policy.name):
        return False
    theirs = {
        key.partition(".lora_A")[0] for key in tensor_names(saved.members[0], ADAPTER_WEIGHTS) if ".lora_A" in key
    }
    layers = [name for name, module in policy.causal_lm.named_modules() if isinstance(module, PeftLoraLinear)]
    return theirs == {f"base_model.model.{name}" for name in layers}


def _place(name: str) -> str:
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _check_same_tokens(policy: Tokenizer, critic: Tokenizer) -> None:
    ours, theirs = policy.inner.get_vocab(), critic.inner.get_vocab()
    if ours == theirs:
        return
    different = sorted({token for token, _ in ours.items() ^ theirs.items()})
    raise ModelError(
        f"the critic would start from {critic.name!r}, whose tokenizer is not that of the policy {policy.name!r}: "
        f"{len(different)} tokens differ (such as {different[:3]}), sizes {len(theirs)} and {len(ours)}. A critic "
        "values the policy's tokens: start from a reward model of the same family, or leave algorithm.critic.start out"
    )
