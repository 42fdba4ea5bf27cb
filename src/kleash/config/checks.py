"""What no single setting can be blamed for: combinations that contradict each other or have no effect.

Each check yields sentences that give the keys and values, why they cannot work together, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from kleash import choices
from kleash.config.algorithms import (
    Controller,
    Dpo,
    FixedBeta,
    Grpo,
    Kl,
    OnlineDpo,
    OnPolicy,
    Ppo,
    RewardModel,
    Rloo,
    TargetBeta,
)
from kleash.config.describe import toml
from kleash.config.monitor_checks import monitor_contradictions, monitor_without_effect
from kleash.config.schema import Prompts, Reward, RunConfig, Training
from kleash.config.settings import Settings
from kleash.errors import ConfigError

NEEDS = {
    "rloo": ("prompts", "reward"),
    "grpo": ("prompts", "reward"),
    "ppo": ("prompts", "reward"),
    "online_dpo": ("prompts", "reward"),
    "dpo": ("comparisons",),
    "reward_model": ("comparisons",),
    "sft": ("demonstrations",),
}
"""Tables that an algorithm cannot do without."""
MAY_HAVE = {"rloo": ("pretraining",), "grpo": ("pretraining",), "ppo": ("pretraining",)} | dict.fromkeys(
    ("dpo", "sft"), ("reward",)
)
"""Tables that it takes besides; any other is of no use to it."""
EXAMPLES = {
    "prompts": 'prompts = "prompts.jsonl"',
    "reward": 'reward = "module:function"',
    "comparisons": 'comparisons = "comparisons.jsonl"',
    "demonstrations": 'demonstrations = "demonstrations.jsonl"',
}


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


def _controller(config: RunConfig) -> Controller | None:
    """The controller of an algorithm that has one."""
    return controller_of(config.algorithm.kl) if isinstance(config.algorithm, OnPolicy) else None


def updates_per_step(training: Training) -> int:
    """Return how many optimiser updates one step makes on its samples; only the first is on-policy."""
    return training.num_epochs * training.num_minibatches


def _contradictions(config: RunConfig) -> Iterator[str]:
    yield from _tables(config)
    if isinstance(config.algorithm, OnPolicy):
        yield from _penalty(config.algorithm.kl, config)
        yield from _control(config.algorithm.kl)
        yield from _batch(config.training)
    if isinstance(config.algorithm, Ppo):
        yield from _ppo(config.algorithm)
    if isinstance(config.algorithm, Dpo | OnlineDpo):
        yield from _preferences(config.algorithm)
    yield from _model(config)
    if config.prompts is not None:
        yield from _prompts(config.prompts)
    if config.reward is not None:
        yield from _reward(config.reward, isinstance(config.algorithm, OnPolicy))
    yield from _warmup(config.training)
    yield from monitor_contradictions(config, _controller(config))


def _tables(config: RunConfig) -> Iterator[str]:
    kind = config.algorithm.type
    for table in NEEDS[kind]:
        if getattr(config, table) is None:
            yield f"algorithm.type = '{kind}' needs the table {table}, and there is none. Add {EXAMPLES[table]}."


def _penalty(kl: Kl, config: RunConfig) -> Iterator[str]:
    try:
        choice = choices.penalty(kl.estimator, kl.scope, kl.placement, research_only=kl.research_only)
    except ConfigError as refusal:
        yield f"algorithm.kl: {refusal}"
        return
    if kl.research_only and not isinstance(config.algorithm, Rloo | Grpo):
        kind = config.algorithm.type
        yield f"algorithm.kl.research_only = true works with rloo and grpo, and not with {kind}. Leave it out."
    if choice.on_policy_only and updates_per_step(config.training) > 1:
        yield (
            f"algorithm.kl.estimator = '{kl.estimator}' with scope = '{kl.scope}' follows its gradient only"
            f" while the samples are the policy's own, and {_several_updates(config.training)} reuse them."
            " Set both to 1, or use estimator = 'exact' with scope = 'sequence', which stays true"
            " off-policy."
        )


def _ppo(ppo: Ppo) -> Iterator[str]:
    in_loss = (
        f"with algorithm.kl.placement = '{ppo.kl.placement}' the penalty is not part of the rewards and would keep its"
        " size while they change theirs: beta would no longer be reward per nat. Leave it out, or use"
        " kl.estimator = 'k1' with kl.placement = 'reward'."
    )
    if ppo.kl.placement == "loss" and ppo.normalize_advantages == "whiten":
        yield f"algorithm.normalize_advantages = 'whiten' divides the advantages by their spread, and {in_loss}"
    if ppo.kl.placement == "loss" and ppo.scale_rewards == "unit_variance":
        yield f"algorithm.scale_rewards = 'unit_variance' divides the rewards by their spread, and {in_loss}"


def _preferences(settings: Dpo | OnlineDpo) -> Iterator[str]:
    smoothed = settings.loss in ("conservative", "robust")
    if smoothed and settings.label_smoothing == 0:
        yield (
            f"algorithm.loss = '{settings.loss}' with algorithm.label_smoothing = 0.0 is the sigmoid loss under another"
            " name. Give the share of labels that you think wrong, such as 0.1, or use loss = 'sigmoid'."
        )
    if not smoothed and settings.label_smoothing > 0:
        yield (
            f"algorithm.label_smoothing = {toml(settings.label_smoothing)} has no effect on algorithm.loss ="
            f" '{settings.loss}'. Use loss = 'conservative' or 'robust', or leave it out."
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


def _model(config: RunConfig) -> Iterator[str]:
    model, algorithm = config.model, config.algorithm
    if isinstance(algorithm, RewardModel):
        if model.lora is False and algorithm.members > 1:
            yield (
                f"algorithm.members = {algorithm.members} with model.lora = false: members are adapters on one base,"
                " and lora = false trains the base itself. Leave lora on, or train one member a run."
            )
        for key in ("adapter", "reference", "reference_ema", "reference_reset_every"):
            if getattr(model, key) is not None:
                yield (
                    f"model.{key} = {toml(getattr(model, key))} has no effect: a reward model has no reference and"
                    " begins with fresh adapters. Remove it; to start from an adapter, merge it first (kleash export"
                    " --merge)."
                )
    elif not isinstance(algorithm, OnPolicy):
        for key in ("reference_ema", "reference_reset_every"):
            if getattr(model, key) is not None:
                yield (
                    f"model.{key} = {toml(getattr(model, key))} moves the reference while the policy samples, and"
                    f" algorithm.type = '{algorithm.type}' does not sample. Remove it."
                )
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


def _reward(reward: Reward, optimised: bool) -> Iterator[str]:
    sources = [*reward.functions]
    sources += [] if reward.model is None else ["reward.model"]
    sources += [] if reward.judge is None else ["reward.judge"]
    if optimised and not sources:
        yield (
            "reward has nothing to optimise: no functions, no model and no judge. Add"
            ' reward.functions = ["module:function"], reward.model = "runs/..." or [reward.judge].'
        )
    if reward.combine != "mean" and reward.model is None:
        yield (
            f"reward.combine = '{reward.combine}' combines the members of a reward model, and reward.model is not set."
            " Set it, or remove combine."
        )
    if reward.weights is not None and len(reward.weights) != len(sources):
        yield (
            f"reward.weights = {toml(reward.weights)} has {len(reward.weights)}, and the rewards to weigh are"
            f" {len(sources)}: {', '.join(sources)}. Give one weight for each, in this order."
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


def _warmup(training: Training) -> Iterator[str]:
    if training.warmup_steps >= training.steps:
        yield (
            f"training.warmup_steps = {training.warmup_steps} never ends in training.steps ="
            f" {training.steps}, so the learning rate would never reach learning_rate. Make the warm-up"
            " shorter."
        )


def _without_effect(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for every setting that changes nothing in this configuration."""
    kind, reward = config.algorithm.type, config.reward
    for table in ("prompts", "reward", "comparisons", "demonstrations", "pretraining"):
        if getattr(config, table) is not None and table not in (*NEEDS[kind], *MAY_HAVE.get(kind, ())):
            takes = ", ".join((*NEEDS[kind], *MAY_HAVE.get(kind, ())))
            yield table, f"algorithm.type = '{kind}' takes {takes}. Remove the table, or choose another algorithm."
    if isinstance(config.algorithm, OnPolicy):
        yield from _without_effect_on_policy(config.algorithm, config.training)
    else:
        for key in ("num_minibatches", "num_epochs", "save_samples"):
            yield (
                f"training.{key}",
                f"algorithm.type = '{kind}' does not sample, and makes one update a step. Remove it.",
            )
    if kind == "reward_model":
        yield "rollout", "a reward model writes nothing. Remove the table."
        yield "training.eval_samples", "a reward model writes nothing. Remove it."
    if reward is not None and reward.length_penalty == 0:
        yield (
            "reward.length_penalty_from",
            "reward.length_penalty = 0 charges nothing. Set length_penalty, or remove it.",
        )
    if reward is not None and not isinstance(config.algorithm, OnPolicy):
        yield "reward.rescale", f"algorithm.type = '{kind}' only measures the reward, as it is. Remove it."
    if reward is not None and reward.combine != "mean_minus_sd":
        yield "reward.sd_weight", f"reward.combine = '{reward.combine}' takes no account of it. Remove it."
    if config.model.adapter is not None and config.model.lora is not False:
        yield "model.lora", "the adapter in model.adapter brings its own rank, scale and layers. Remove it."
    yield from monitor_without_effect(config.monitor)
    yield from _without_held_out(config)


def _without_effect_on_policy(algorithm: OnPolicy, training: Training) -> Iterator[tuple[str, str]]:
    if updates_per_step(training) == 1:
        one_update = "with one update a step (training.num_epochs = 1, training.num_minibatches = 1)"
        once = (
            f"{one_update} the policy is the one that sampled, and every ratio is 1."
            " Remove it, or ask for more updates."
        )
        if not isinstance(algorithm, OnlineDpo):
            yield "algorithm.epsilon", once
        yield "algorithm.kl.max_weight", once
        if isinstance(algorithm, Grpo):
            yield "algorithm.epsilon_high", once
        if isinstance(algorithm, Ppo):
            yield (
                "algorithm.critic.epsilon",
                f"{one_update} every value is the one at sampling time. Remove it, or ask for more updates.",
            )
    kl = algorithm.kl
    if (kl.estimator, kl.placement) != ("k1", "reward"):
        yield (
            "algorithm.kl.credit",
            f"it belongs to k1 in the reward, and estimator = '{kl.estimator}' is charged in the {kl.placement}."
            " Remove it.",
        )
    elif isinstance(algorithm, Ppo):
        yield "algorithm.kl.credit", "the critic gives credit here. Remove it."


def _without_held_out(config: RunConfig) -> Iterator[tuple[str, str]]:
    for name in ("prompts", "comparisons", "demonstrations"):
        table = getattr(config, name)
        if table is None:
            continue
        if table.held_out_path is not None:
            yield (
                f"{name}.held_out",
                f"with {name}.held_out_path = {toml(table.held_out_path)} nothing is set aside. Remove one.",
            )
        elif table.held_out == 0:
            for key in ("training.eval_every", "training.eval_samples", "monitor.loosen"):
                yield key, f"{name}.held_out = 0 leaves nothing to evaluate on. Hold some out, or remove it."
            if not isinstance(config.algorithm, OnPolicy):
                for key in ("rollout", "reward"):
                    yield key, f"{name}.held_out = 0 leaves nothing to sample on. Hold some out, or remove the table."


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
