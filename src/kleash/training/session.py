"""Everything a run holds in memory, and how it is put together from settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from typing import Any

from accelerate import Accelerator

from kleash.config.algorithms import DualBeta, FixedBeta, Kl, OnlineDpo, OnPolicy, Ppo, ZieglerBeta
from kleash.config.checks import controller_of
from kleash.config.schema import Prompts, Rollout, RunConfig
from kleash.control.controller import Controller
from kleash.control.dual import Dual
from kleash.control.fixed import Fixed
from kleash.control.target import Target
from kleash.control.ziegler import Ziegler
from kleash.data.prompts import Prompt, load_prompts, split_held_out
from kleash.data.render import RenderedPrompt, render
from kleash.errors import DataError
from kleash.models.loading import load_policy, load_reference
from kleash.models.names import load_tokenizer
from kleash.models.policy import Policy
from kleash.models.reference import Reference
from kleash.models.saved_reward import open_saved
from kleash.models.tokenizer import Tokenizer, wrap
from kleash.rollout.decoding import DecodingSampler
from kleash.rollout.sampler import Sampler
from kleash.training.critic import Critic, load_critic
from kleash.training.evaluate import Bench
from kleash.training.experience import Rewarder
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.memory import groups_per_batch
from kleash.training.objective import Objective, make_objective
from kleash.training.offline import check_share
from kleash.training.opponent import reference_texts
from kleash.training.optimizer import Optimizer
from kleash.training.plan import Plan
from kleash.training.pretraining import Mix, text_rows
from kleash.training.rewards import rewarder_of
from kleash.training.seeds import seed_for
from kleash.training.update import Updater

DEFAULT_BETA = 0.05
"""Where beta starts when neither the settings nor a target and the reward's spread say otherwise."""


@dataclass(frozen=True)
class Data:
    """Prompts as token ids, to train on and held out, and rows of text of the pretraining mix."""

    train: Sequence[RenderedPrompt]
    held_out: Sequence[RenderedPrompt]
    text: Sequence[Sequence[int]] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(len(prompt.token_ids) for prompt in [*self.train, *self.held_out])


@dataclass
class Session:
    """What the job works with. `controller` comes last: its starting beta may follow from the reward's spread."""

    config: RunConfig
    algorithm: OnPolicy
    data: Data
    policy: Policy
    reference: Reference
    rewarder: Rewarder
    objective: Objective
    optimizer: Optimizer
    updater: Updater
    critic: Critic | None
    accelerator: Accelerator
    make_sampler: Callable[[], Sampler]
    controller: Controller
    starting_beta: float
    """What the controller began with; its bounds follow from it."""

    def seed(self, *purpose: str | int) -> int:
        """A seed for one purpose of this process."""
        return seed_for(self.config.training.seed, *purpose, self.accelerator.process_index)

    def opponents(self, prompts: Sequence[RenderedPrompt], *purpose: str | int) -> list[str] | None:
        """What the reference writes to prompts, one each; None where no reward asks for it."""
        if not self.rewarder.wants_reference:
            return None
        seed, rollout = self.seed("opponent", *purpose), self.config.rollout
        return reference_texts(self.reference, self.policy.tokenizer, prompts, rollout, seed)

    @property
    def bench(self) -> Bench:
        """What an evaluation works with."""
        return Bench(
            config=self.config,
            policy=self.policy,
            reference=self.reference,
            rewarder=self.rewarder.measuring(),
            held_out=self.data.held_out,
            make_sampler=self.make_sampler,
            accelerator=self.accelerator,
            sequences_per_batch=self.updater.plan.groups_per_batch * self.objective.num_generations,
        )


def load_data(
    settings: Prompts, tokenizer: Tokenizer, *, max_completion_length: int, seed: int, given: Given = NOTHING_GIVEN
) -> Data:
    """Read, split and render the prompts, before any weight is read.

    Raises:
        DataError: prompts that cannot be read, or do not fit the model.
    """
    prompts = _read(settings.path if given.prompts is None else given.prompts, settings)
    if given.held_out is not None:
        train, held_out = prompts, _read(given.held_out, settings)
    elif settings.held_out_path is not None:
        train, held_out = prompts, _read(settings.held_out_path, settings)
    else:
        train, held_out = split_held_out(prompts, settings.held_out, seed)

    def rendered(chosen: list[Prompt]) -> list[RenderedPrompt]:
        return render(
            chosen,
            tokenizer,
            max_completion_length=max_completion_length,
            system_prompt=settings.system_prompt,
            as_chat=settings.as_chat,
        )

    return Data(rendered(train), rendered(held_out))


def tokenizer_of(config: RunConfig, given: Given) -> Tokenizer:
    """The tokenizer of the model that is named, or of the one that was passed.

    Raises:
        ModelError: there is no such model, or it cannot be read.
    """
    if given.model is None:
        return load_tokenizer(config.model.name, config.model.revision)
    return wrap(given.tokenizer, given.model.config, given.model.generation_config, config.model.name)


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> tuple[Tokenizer, Data, Rewarder]:
    """All that can fail before weights are read: tokenizer, prompts, reward functions, a critic's folder."""
    assert config.prompts is not None, "the checks of the settings see to it"
    rewarder = rewarder_of(config, given)
    if isinstance(config.algorithm, Ppo) and config.algorithm.critic.start is not None:
        open_saved(config.algorithm.critic.start)
    tokenizer = tokenizer_of(config, given)
    data = load_data(
        config.prompts,
        tokenizer,
        max_completion_length=config.rollout.max_completion_length,
        seed=config.training.seed,
        given=given,
    )
    if config.pretraining is not None:
        data = replace(data, text=text_rows(config.pretraining.path, config.pretraining.row_length, tokenizer))
    return tokenizer, data, rewarder


def build(
    config: RunConfig, data: Data, rewarder: Rewarder, accelerator: Accelerator, given: Given = NOTHING_GIVEN
) -> Session:
    """Load the weights and put the session together."""
    algorithm = config.algorithm
    assert isinstance(algorithm, OnPolicy), f"{algorithm.type} does not sample"
    check_share(config, accelerator, len(data.held_out))
    if config.training.prompts_per_step // accelerator.num_processes < config.training.num_minibatches:
        raise DataError(
            f"num_minibatches = {config.training.num_minibatches} is more than the "
            f"{config.training.prompts_per_step // accelerator.num_processes} prompts that each process has a step. "
            "Use fewer minibatches, or more prompts_per_step"
        )
    context = data.longest + config.rollout.max_completion_length
    loaded = None if given.model is None else (given.model, given.tokenizer)
    policy = load_policy(
        config.model, context=context, seed=config.training.seed, device=accelerator.device, loaded=loaded
    )
    reference = load_reference(config.model, policy, context=context)
    objective = make_objective(algorithm)
    optimizer = Optimizer(policy.trained(), config.training, accelerator)
    plan = _plan(config, policy, objective, context, accelerator.num_processes)
    mix = None if config.pretraining is None else Mix(data.text, config.pretraining, config.training.seed, accelerator)
    return Session(
        config=config,
        algorithm=algorithm,
        data=data,
        policy=policy,
        reference=reference,
        rewarder=rewarder,
        objective=objective,
        optimizer=optimizer,
        updater=Updater(policy, reference, objective, optimizer, accelerator, plan, mix),
        critic=load_critic(algorithm, policy, config, plan, context, accelerator)
        if isinstance(algorithm, Ppo)
        else None,
        accelerator=accelerator,
        make_sampler=sampler_of(policy, config.rollout),
        controller=make_controller(algorithm.kl, starting_beta(algorithm, None)),
        starting_beta=starting_beta(algorithm, None),
    )


def sampler_of(policy: Policy, rollout: Rollout) -> Callable[[], Sampler]:
    """A function that makes a sampler of the policy as it is when called."""
    batch_size = None if rollout.batch_size == "auto" else rollout.batch_size

    def make_sampler() -> Sampler:
        return DecodingSampler(policy.model_to_sample(), policy.tokenizer, batch_size=batch_size)

    return make_sampler


def starting_beta(algorithm: OnPolicy, reward_sd: float | None, mean_length: float = 1.0) -> float:
    """Beta as given; else, with a target, from the law of small KL: sd(reward) / sqrt(2 target), nats per sequence.

    The posterior at beta has KL of about Var(r) / (2 beta^2), so this is the price at which the optimum itself lies
    near the target; one per token is taken times the mean length of a reply. Source: Korbak et al. 2022, expanded for
    small KL.
    """
    kl = algorithm.kl
    if kl.beta is not None:
        return kl.beta
    target = kl.target_nats_per_sequence
    if kl.target_nats_per_token is not None:
        target = kl.target_nats_per_token * mean_length
    if reward_sd and target is not None:
        return float(reward_sd / (2 * target) ** 0.5)
    return 0.0 if isinstance(algorithm, OnlineDpo) and target is None else DEFAULT_BETA


def make_controller(kl: Kl, beta: float) -> Controller:
    """The controller that the `algorithm.kl` table asks for, starting at `beta`."""
    settings = controller_of(kl)
    if isinstance(settings, FixedBeta):
        return Fixed(beta=beta)
    target: dict[str, Any] = {
        "target_nats_per_sequence": kl.target_nats_per_sequence,
        "target_nats_per_token": kl.target_nats_per_token,
    }
    if isinstance(settings, ZieglerBeta):
        return Ziegler(beta=beta, horizon=settings.horizon, **target)
    if isinstance(settings, DualBeta):
        return Dual(beta=beta, **target)
    gains = settings.model_dump(include={"proportional", "integral", "derivative", "ramp_steps"}, exclude_none=True)
    return Target(beta=beta, **target, **gains)


def _plan(config: RunConfig, policy: Policy, objective: Objective, context: int, num_processes: int) -> Plan:
    training = config.training
    per_update = training.prompts_per_step // num_processes // training.num_minibatches
    if training.gradient_accumulation_steps == "auto":
        groups = groups_per_batch(policy, objective.num_generations, context)
    else:
        groups = -(-per_update // training.gradient_accumulation_steps)
    return Plan(
        temperature=config.rollout.temperature,
        groups_per_batch=max(1, min(groups, per_update)),
        num_minibatches=training.num_minibatches,
        num_epochs=training.num_epochs,
        seed=training.seed,
    )


def _read(source: Any, settings: Prompts) -> list[Prompt]:
    if not isinstance(source, str) or source != "demo":
        return load_prompts(source, column=settings.column, limit=settings.limit)
    with as_file(files("kleash.demo") / "openers.txt") as openers:
        return load_prompts(openers, limit=settings.limit)
