"""Every setting of a run: its meaning, its unit, and what a larger value does.

The class defaults are the vetted setting. Field docstrings are the only place where a setting is explained:
`--help`, the docs and the pages take them from here. Checks that involve several settings are in
`kleash.config.checks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """Frozen, unknown keys forbidden, no infinities or NaN, docstrings as descriptions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )


class Lora(Settings):
    """Low-rank adapter: the default way to train. Only the adapter's weights change."""

    r: int = Field(16, ge=1)
    """Rank. Larger: more weights to train, more room to move."""
    alpha: float = Field(32.0, gt=0)
    """Scale of the adapter, alpha / r. Larger: the same step of the optimiser moves the model further."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Which linear layers get an adapter; PEFT's names."""


class Model(Settings):
    """The model to train and the reference that its drift is measured from."""

    name: str = Field(min_length=1)
    """Hugging Face hub id or local folder. `demo` is SmolLM2-135M-Instruct from the hub or the package
    index."""
    revision: str | None = None
    """Commit or branch on the hub."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of compute and of frozen weights; trained weights are float32 always. auto: bfloat16 where the
    machine has it."""
    adapter: str | None = None
    """A PEFT adapter to continue. It is frozen as the reference, and training starts from it."""
    lora: Lora | Literal[False] = Lora()
    """`false` trains every weight; the reference is then a frozen copy, and memory grows by about 14 bytes
    a weight."""
    reference: str | None = None
    """Another model (hub id or folder, same tokenizer) as the reference. Default: where training starts."""
    reference_ema: float | None = Field(None, gt=0, lt=1)
    """Moving reference: share of the policy mixed into it each step. KL to the original is reported too."""
    reference_reset_every: int | None = Field(None, ge=1)
    """Moving reference: set it to the policy every so many steps. KL to the original is reported too."""
    gradient_checkpointing: bool = False
    """Recompute activations in backward: about a third slower, far less memory."""


class Prompts(Settings):
    """Prompts to train on and prompts held out for measuring."""

    path: str = Field(min_length=1)
    """Text lines, JSONL, CSV or Parquet, or a hub data set `org/name[:split]`. `demo` is the built-in list
    of openers."""
    column: str = "prompt"
    """The column that holds the prompt: a string, or a list of messages."""
    held_out: int = Field(32, ge=0)
    """Prompts set aside by the seed for evaluation, never trained on. 0: no evaluation."""
    held_out_path: str | None = None
    """A file of its own for evaluation; then nothing is set aside."""
    system_prompt: str | None = None
    """Put before every conversation; string prompts become user messages."""
    as_chat: bool = False
    """Wrap string prompts as user messages with the model's chat template."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many prompts."""


class Reward(Settings):
    """What is optimised (proxy) and what is only measured (gold)."""

    functions: tuple[str, ...] = Field(min_length=1)
    """`module:function` or `file.py:function`, called as `function(prompts, completions, **columns)`."""
    weights: tuple[float, ...] | None = None
    """One a function; default 1 each."""
    gold: str | None = None
    """A held-out reward that is measured and never optimised."""
    timeout: float = Field(60.0, gt=0)
    """Seconds that one call may take."""
    rescale: bool = False
    """Shift and scale to mean 0 and sd 1 on samples of the starting policy, so that beta means the same for
    every reward."""
    clip: tuple[float, float] | None = None
    """Lowest and highest reward a sequence can get; clipped ones are counted."""
    missing_stop_penalty: float = Field(0.0, ge=0)
    """Taken off a sequence that was cut by the length limit."""
    length_penalty: float = Field(0.0, ge=0)
    """Taken off per token beyond `length_penalty_from`."""
    length_penalty_from: int = Field(0, ge=0)
    """Tokens that cost nothing."""


class Rollout(Settings):
    """How completions are sampled. Sampling and scoring are the same distribution: no top-k or top-p."""

    max_completion_length: int = Field(32, ge=1)
    """Tokens at most; longer replies are cut and counted."""
    temperature: float = Field(1.0, gt=0)
    """Of sampling and of scoring, policy and reference. Larger: more varied."""
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Sequences decoded at once. Larger: faster, more memory."""


class FixedBeta(Settings):
    """beta stays as it is."""

    type: Literal["fixed"] = "fixed"


class Loosen(Settings):
    """Raise the target when it costs reward: decided at evaluations, on the held-out reward."""

    raise_by: float = Field(gt=0)
    """Nats added at a time, in the unit of the target."""
    limit: float = Field(gt=0)
    """The target is never raised above this."""
    patience: int = Field(3, ge=1)
    """Evaluations in a row without progress before the target is raised."""
    min_gain: float = Field(0.01, ge=0)
    """Rise of the held-out reward that counts as progress."""


class TargetBeta(Settings):
    """PID control of log beta towards a KL target (`kleash.control.target`)."""

    type: Literal["target"] = "target"
    proportional: float | None = Field(None, gt=0)
    """Change of log beta per unit of log(KL / target). Larger: damps harder, until lag makes it swing."""
    integral: float | None = Field(None, ge=0)
    """Change of log beta per unit of error and step. Larger: corrects a wrong start sooner, overshoots more."""
    derivative: float | None = Field(None, ge=0)
    """Change of log beta per change of the error. Larger: makes up for more lag, and follows more noise."""
    ramp_steps: int | None = Field(None, ge=0)
    """Steps over which the target grows from near 0, linear in sqrt(KL). Default: the controller's."""
    loosen: Loosen | None = None
    """When and how far the target may be raised. Default: never."""


class ZieglerBeta(Settings):
    """The rule of Ziegler et al. 2019, for those who reproduce it."""

    type: Literal["ziegler"] = "ziegler"
    horizon: float = Field(10_000.0, gt=0)
    """Sequences. Larger: beta moves more slowly."""


class DualBeta(Settings):
    """beta as the multiplier of the constraint KL <= target."""

    type: Literal["dual"] = "dual"


Controller = Annotated[FixedBeta | TargetBeta | ZieglerBeta | DualBeta, Field(discriminator="type")]


class Kl(Settings):
    """The leash: how drift is measured, charged and held."""

    estimator: str = "exact"
    """`exact` (full vocabulary), `k1`, `k2` or `k3`; which scope and placement each allows:
    `kleash.choices`."""
    scope: str = "sequence"
    """`sequence`: a token pays for the drift it causes later too. `token`: a partial gradient."""
    placement: str = "loss"
    """`loss`, or `reward` for k1."""
    credit: Literal["reward_to_go", "sequence"] = "reward_to_go"
    """For k1 in the reward: charge each token for what follows, or for the whole sequence (more variance)."""
    beta: float | None = Field(None, ge=0)
    """Reward given up per nat. Default: taken from the reward's spread under the reference (with a
    target), else 0.05."""
    target_nats_per_sequence: float | None = Field(None, gt=0)
    """Hold the KL of a reply at this many nats by steering beta."""
    target_nats_per_token: float | None = Field(None, gt=0)
    """Hold the KL per token instead: a longer reply may then move further."""
    controller: Controller | None = None
    """Default: `target` when a target is given, else `fixed`."""
    max_weight: float | None = Field(None, ge=1)
    """Cut the importance weights of later updates here. Biased, and named so in the log. Default: never
    cut."""
    stop_above: float | None = Field(None, gt=0)
    """End the run (exit 3) when the KL of a step, nats per sequence, is above this."""


class Rloo(Settings):
    """REINFORCE with a leave-one-out baseline over the samples of each prompt."""

    type: Literal["rloo"] = "rloo"
    num_generations: int = Field(4, ge=2)
    """Samples per prompt. Larger: a better baseline, fewer prompts for the same time."""
    epsilon: float = Field(0.2, gt=0)
    """Clip of the sequence ratio in later updates on the same samples; without effect in the first."""
    kl: Kl = Kl()


class Grpo(Settings):
    """Group-relative policy optimisation, with the variants people call Dr. GRPO and DAPO."""

    type: Literal["grpo"] = "grpo"
    num_generations: int = Field(8, ge=2)
    """Samples per prompt."""
    scale_rewards: Literal["group", "none"] = "none"
    """`group` divides by the group's standard deviation, as the first GRPO did: the reward is then no
    longer yours."""
    loss_normalization: Literal["sequence", "token", "constant"] = "constant"
    """`sequence`: mean over each reply's tokens (GRPO). `token`: over all tokens (DAPO). `constant`: Dr.
    GRPO."""
    epsilon: float = Field(0.2, gt=0)
    """Lower clip of the token ratio."""
    epsilon_high: float | None = Field(None, gt=0)
    """Upper clip (clip-higher, DAPO uses 0.28); default: epsilon."""
    kl: Kl = Kl()


Algorithm = Annotated[Rloo | Grpo, Field(discriminator="type")]


class Training(Settings):
    """The loop: steps, batch, optimiser, evaluation and checkpoints."""

    steps: int = Field(100, ge=1)
    """Rounds of sampling and updating."""
    prompts_per_step: int = Field(8, ge=1)
    """Prompts sampled each step, over all processes; times `num_generations` sequences."""
    num_minibatches: int = Field(1, ge=1)
    """Updates that one epoch over a step's samples is cut into."""
    num_epochs: int = Field(1, ge=1)
    """Passes over a step's samples."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Micro-batches an update is cut into; never changes the numbers. auto: as memory allows."""
    learning_rate: float = Field(5e-4, gt=0)
    """Peak, AdamW. The default suits LoRA; full fine-tuning wants about 1e-5."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What happens after the warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's; it pulls a LoRA towards the reference whatever beta is."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients longer than this are scaled down."""
    eval_every: int = Field(10, ge=1)
    """Steps between evaluations on the held-out prompts."""
    eval_samples: int = Field(1, ge=1)
    """Completions per held-out prompt in those evaluations."""
    checkpoint_every: int = Field(10, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(3, ge=1)
    """Newest checkpoints that stay on disk; the last one always does."""
    seed: int = Field(0, ge=0)
    """Of prompt order, sampling, adapters and the held-out split."""
    save_samples: int = Field(8, ge=0)
    """Training samples kept per step with their KL token by token; held-out ones are all kept."""


class RunConfig(Settings):
    """A whole run, as `kleash train run.toml` reads it."""

    name: str | None = None
    """Name of the folder under `output_dir`. Default: the algorithm with the date."""
    output_dir: str = "runs"
    """Where run folders are made."""
    model: Model
    prompts: Prompts
    reward: Reward
    algorithm: Algorithm = Rloo()
    rollout: Rollout = Rollout()
    training: Training = Training()
    mirrors: tuple[Literal["wandb", "tensorboard", "mlflow", "trackio"], ...] = ()
    """Also log to these; the run directory stays the source."""
    skip_checks: tuple[str, ...] = ()
    """Names of preflight checks that may fail without ending the run."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        return long_forms(data) if isinstance(data, dict) else data


def long_forms(data: dict[str, Any]) -> dict[str, Any]:
    """Return `model = "id"`, `prompts = "file"`, `reward = "module:function"` as tables with that one key."""
    data = dict(data)
    if isinstance(data.get("model"), str):
        data["model"] = {"name": data["model"]}
    if isinstance(data.get("prompts"), str):
        data["prompts"] = {"path": data["prompts"]}
    if isinstance(data.get("reward"), str):
        data["reward"] = {"functions": [data["reward"]]}
    return data
