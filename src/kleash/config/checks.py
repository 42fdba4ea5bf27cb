"""What no single setting can be blamed for: combinations that contradict each other or have no effect.

Each check yields sentences that give the keys and values, why they cannot work together, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from kleash import choices
from kleash.config.describe import toml
from kleash.config.schema import (
    Controller,
    FixedBeta,
    Grpo,
    Kl,
    Model,
    Prompts,
    Reward,
    RunConfig,
    Settings,
    TargetBeta,
    Training,
)
from kleash.errors import ConfigError


def check(config: RunConfig, explicit: Set[str]) -> tuple[str, ...]:
    """Refuse contradictions and explicit settings without effect; return a warning for each inherited one.

    Args:
        config: a valid configuration.
        explicit: dotted keys that the user gave. Any other value that differs from its default was inherited.

    Raises:
        ConfigError: one line for each thing that cannot work.
    """
    problems = list(_contradictions(config))
    warnings = []
    for key, reason in _without_effect(config):
        given = sorted(name for name in explicit if name == key or name.startswith(key + "."))
        value, default = _value_and_default(config, key)
        problems += [f"{name} = {_shown(config, name)} has no effect: {reason}" for name in given]
        if not given and value != default:
            warnings.append(f"{key} = {_shown(config, key)}, inherited, has no effect: {reason}")
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(warnings)


def controller_of(kl: Kl) -> Controller:
    """Return the controller of beta: the one given, else `target` with a target and `fixed` without."""
    if kl.controller is not None:
        return kl.controller
    return FixedBeta() if _targets(kl) == [] else TargetBeta()


def updates_per_step(training: Training) -> int:
    """Return how many optimiser updates one step makes on its samples; only the first is on-policy."""
    return training.num_epochs * training.num_minibatches


def _contradictions(config: RunConfig) -> Iterator[str]:
    yield from _penalty(config)
    yield from _control(config.algorithm.kl)
    yield from _model(config.model)
    yield from _prompts(config.prompts)
    yield from _reward(config.reward)
    yield from _batch(config.training)


def _penalty(config: RunConfig) -> Iterator[str]:
    kl = config.algorithm.kl
    try:
        choice = choices.penalty(kl.estimator, kl.scope, kl.placement)
    except ConfigError as refusal:
        yield f"algorithm.kl: {refusal}"
        return
    if choice.on_policy_only and updates_per_step(config.training) > 1:
        yield (
            f"algorithm.kl.estimator = '{kl.estimator}' with scope = '{kl.scope}' follows its gradient only"
            f" while the samples are the policy's own, and {_several_updates(config.training)} reuse them."
            " Set both to 1, or use estimator = 'exact' with scope = 'sequence', which stays true"
            " off-policy."
        )


def _control(kl: Kl) -> Iterator[str]:
    controller = controller_of(kl)
    targets = _targets(kl)
    if len(targets) == 2:
        yield (
            f"algorithm.kl has two targets, {' and '.join(targets)}, and one beta cannot hold both. Give one of them."
        )
    if isinstance(controller, FixedBeta):
        for target in targets:
            yield (
                f"algorithm.kl.{target} has nothing to hold it: controller.type = 'fixed' never moves beta."
                " Remove the target, or use controller.type = 'target'."
            )
        return
    if not targets:
        yield (
            f"algorithm.kl.controller.type = '{controller.type}' steers beta towards a KL target, and none is"
            " given. Add algorithm.kl.target_nats_per_sequence or target_nats_per_token."
        )
    if kl.beta == 0:
        yield (
            f"algorithm.kl.beta = 0 with controller.type = '{controller.type}': the controller multiplies"
            " beta, so it would stay 0 for ever. Start above 0, leave beta out to have it chosen, or remove"
            " the target for a run without a penalty."
        )
    goal = kl.target_nats_per_sequence
    if goal is not None and kl.stop_above is not None and kl.stop_above <= goal:
        yield (
            f"algorithm.kl.stop_above = {toml(kl.stop_above)} ends the run before the KL reaches"
            f" target_nats_per_sequence = {toml(goal)}. Set it well above the target."
        )


def _model(model: Model) -> Iterator[str]:
    if model.adapter is not None and model.lora is False:
        yield (
            f"model.adapter = {toml(model.adapter)} with model.lora = false: continuing an adapter trains"
            " the adapter, and lora = false trains every weight. Remove one; to train every weight from"
            " there, merge the adapter into the model first."
        )
    moving = model.reference_ema is not None or model.reference_reset_every is not None
    if model.reference is not None and moving:
        yield (
            f"model.reference = {toml(model.reference)} with a moving reference: a moving one starts at the policy and "
            "would never be that model. Leave out one of the two"
        )
    if model.reference_ema is not None and model.reference_reset_every is not None:
        yield (
            f"model.reference_ema = {toml(model.reference_ema)} and model.reference_reset_every ="
            f" {model.reference_reset_every} both move the reference. Give one of them."
        )


def _prompts(prompts: Prompts) -> Iterator[str]:
    if prompts.limit is not None and prompts.held_out_path is None and prompts.limit <= prompts.held_out:
        yield (
            f"prompts.limit = {prompts.limit} leaves nothing to train on: prompts.held_out ="
            f" {prompts.held_out} are set aside from these. Raise the limit or hold out fewer."
        )


def _reward(reward: Reward) -> Iterator[str]:
    if reward.weights is not None and len(reward.weights) != len(reward.functions):
        yield (
            f"reward.weights = {toml(reward.weights)} has {len(reward.weights)} and reward.functions has"
            f" {len(reward.functions)}. Give one weight for each function, in the same order."
        )
    if reward.clip is not None and reward.clip[0] >= reward.clip[1]:
        yield (
            f"reward.clip = {toml(reward.clip)} makes every reward the same: it is [lowest, highest], and the"
            " first must be below the second."
        )


def _batch(training: Training) -> Iterator[str]:
    prompts, minibatches = training.prompts_per_step, training.num_minibatches
    accumulation = training.gradient_accumulation_steps
    if minibatches > prompts:
        yield (
            f"training.num_minibatches = {minibatches} is more than training.prompts_per_step = {prompts}:"
            " some updates would have no prompt. Lower the first or raise the second."
        )
    elif accumulation != "auto" and accumulation > prompts / minibatches:
        yield (
            f"training.gradient_accumulation_steps = {accumulation} is more than the"
            f" {prompts / minibatches:g} prompts of an update (prompts_per_step = {prompts}, num_minibatches"
            f" = {minibatches}): some micro-batches would be empty. Lower it, or leave it at 'auto'."
        )
    if training.warmup_steps >= training.steps:
        yield (
            f"training.warmup_steps = {training.warmup_steps} never ends in training.steps ="
            f" {training.steps}, so the learning rate would never reach learning_rate. Make the warm-up"
            " shorter."
        )


def _without_effect(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for every setting that changes nothing in this configuration."""
    kl, reward, prompts, training = config.algorithm.kl, config.reward, config.prompts, config.training
    if updates_per_step(training) == 1:
        once = (
            "with one update a step (training.num_epochs = 1, training.num_minibatches = 1) the policy is"
            " the one that sampled, and every ratio is 1. Remove it, or ask for more updates."
        )
        yield "algorithm.epsilon", once
        yield "algorithm.kl.max_weight", once
        if isinstance(config.algorithm, Grpo):
            yield "algorithm.epsilon_high", once
    if kl.estimator != "k1":
        yield (
            "algorithm.kl.credit",
            f"it belongs to k1 in the reward, and estimator = '{kl.estimator}' is charged in the loss. Remove it.",
        )
    if reward.length_penalty == 0:
        yield (
            "reward.length_penalty_from",
            "reward.length_penalty = 0 charges nothing. Set length_penalty, or remove it.",
        )
    if config.model.adapter is not None and config.model.lora is not False:
        yield "model.lora", "the adapter in model.adapter brings its own rank, scale and layers. Remove it."
    if prompts.held_out_path is not None:
        yield (
            "prompts.held_out",
            f"with prompts.held_out_path = {toml(prompts.held_out_path)} nothing is set aside. Remove one.",
        )
    elif prompts.held_out == 0:
        for key in ("training.eval_every", "training.eval_samples"):
            yield key, "prompts.held_out = 0 leaves no prompts to evaluate on. Hold some out, or remove it."


def _targets(kl: Kl) -> list[str]:
    given = {
        "target_nats_per_sequence": kl.target_nats_per_sequence,
        "target_nats_per_token": kl.target_nats_per_token,
    }
    return [f"{name} = {toml(value)}" for name, value in given.items() if value is not None]


def _several_updates(training: Training) -> str:
    return f"training.num_epochs = {training.num_epochs} with num_minibatches = {training.num_minibatches}"


def _value_and_default(config: RunConfig, key: str) -> tuple[Any, Any]:
    *tables, name = key.split(".")
    owner: Settings = config
    for table in tables:
        owner = getattr(owner, table)
    return getattr(owner, name), type(owner).model_fields[name].default


def _shown(config: RunConfig, key: str) -> str:
    value, _ = _value_and_default(config, key)
    return toml(value.model_dump(mode="json") if isinstance(value, Settings) else value)
