"""Every setting of a run: its meaning, its unit, and what a larger value does.

The class defaults are the vetted setting. Field docstrings are the only place where a setting is explained:
`--help`, the docs and the pages take them from here. Checks that involve several settings are in
`kleash.config.checks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kleash.config.algorithms import Algorithm, Rloo
from kleash.config.settings import Settings


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


class Comparisons(Settings):
    """Pairs of completions with a choice: what DPO and reward models learn from."""

    path: str = Field(min_length=1)
    """JSONL, CSV or Parquet with `prompt`, `chosen`, `rejected`, or a hub data set `org/name[:split]`."""
    held_out: int = Field(128, ge=0)
    """Comparisons set aside by the seed, with all others of their prompts, and only measured. 0: none."""
    held_out_path: str | None = None
    """A file of its own for measuring; then nothing is set aside."""
    append_stop: bool = True
    """Put the stop token behind each completion. `false` for texts that a length limit cut."""
    max_completion_length: int = Field(512, ge=1)
    """Tokens of a completion at most; comparisons with a longer one are left out and counted."""
    system_prompt: str | None = None
    """Put before every conversation; string prompts become user messages."""
    as_chat: bool = False
    """Wrap string prompts as user messages with the model's chat template."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many comparisons."""


class Demonstrations(Settings):
    """Texts to imitate: what SFT learns from."""

    path: str = Field(min_length=1)
    """JSONL, CSV or Parquet with `prompt` and `completion`, `messages` or `text`; a text file; or a hub data set."""
    held_out: int = Field(64, ge=0)
    """Demonstrations set aside by the seed and only measured. 0: none."""
    held_out_path: str | None = None
    """A file of its own for measuring; then nothing is set aside."""
    append_stop: bool = True
    """Put the stop token behind each completion. `false` for texts that a length limit cut."""
    system_prompt: str | None = None
    """Put before every conversation; string prompts become user messages."""
    as_chat: bool = False
    """Wrap string prompts as user messages with the model's chat template."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many demonstrations."""
    row_length: int = Field(512, ge=8)
    """Tokens of a row that demonstrations are packed into, each kept whole and apart from its neighbours."""


class Pretraining(Settings):
    """Pretraining mix (PPO-ptx): general text learned beside the reward, so that other skills are kept."""

    path: str = Field(min_length=1)
    """A text file, JSONL, CSV or Parquet with a column `text`, or a hub data set."""
    gamma: float = Field(1.0, gt=0)
    """Reward given up per nat of loss on a token of this text. Larger: the text counts for more."""
    rows_per_update: int = Field(4, ge=1)
    """Rows of text in each update, over all processes."""
    row_length: int = Field(256, ge=8)
    """Tokens of a row; documents are joined by the stop token and cut into rows."""


class Judge(Settings):
    """A language model that compares two answers, always in both orders; disagreement is a tie."""

    model: str = Field(min_length=1)
    """Hub id, folder or `demo`; with `base_url`, the model's name at that endpoint."""
    base_url: str | None = None
    """An OpenAI-compatible endpoint, such as `http://localhost:8000/v1`. Default: a local Hugging Face model."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the endpoint's key; it is never written anywhere."""
    rubric: str = "Which answer is more helpful, honest and harmless, and better written?"
    """What "better" means, in words."""
    max_tokens: int = Field(16, ge=1)
    """Tokens that an endpoint may answer with."""
    temperature: float = Field(0.0, ge=0)
    """Of the endpoint's answer."""
    retries: int = Field(5, ge=0)
    """How often a request is sent again after a time-out, 429 or 5xx, waiting longer each time."""
    timeout: float = Field(60.0, gt=0)
    """Seconds that one request may take."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Requests sent at most. Default: no limit."""
    concurrency: int = Field(4, ge=1)
    """Requests under way at once."""
    price_per_million_input: float | None = Field(None, ge=0)
    """Price of a million tokens sent, for the tally."""
    price_per_million_output: float | None = Field(None, ge=0)
    """Price of a million tokens received, for the tally."""


class Reward(Settings):
    """What is optimised (proxy) and what is only measured (gold)."""

    functions: tuple[str, ...] = ()
    """`module:function` or `file.py:function`, called as `function(prompts, completions, **columns)`."""
    model: str | None = None
    """A reward model: a run, a checkpoint or a Hugging Face folder. It reads the text with its own tokenizer."""
    combine: Literal["mean", "worst_case", "mean_minus_sd"] = "mean"
    """How the members of a reward ensemble make one number."""
    sd_weight: float = Field(1.0, ge=0)
    """For `mean_minus_sd`: reward taken off per standard deviation among the members."""
    judge: Judge | None = None
    """Win rate against the reference's completion (1, tie 0.5, 0); in `online_dpo`, of one sample against the other."""
    weights: tuple[float, ...] | None = None
    """One each: functions in their order, then the model, then the judge; default 1."""
    gold: str | None = None
    """A held-out reward that is measured and never optimised."""
    timeout: float = Field(60.0, gt=0)
    """Seconds that one call of a function may take; models and judges have no such limit."""
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


class Training(Settings):
    """The loop: steps, batch, optimiser, evaluation and checkpoints."""

    steps: int = Field(100, ge=1)
    """Rounds of sampling and updating; for DPO, reward models and SFT, updates."""
    prompts_per_step: int = Field(8, ge=1)
    """Prompts sampled each step, over all processes, times `num_generations` sequences; comparisons of a step for DPO
    and reward models, demonstrations for SFT."""
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
    """Newest checkpoints that stay on disk; the last one and the newest that lies under no alarm always do. Every run
    watches itself, and slow drifts are noticed late: so up to five older ones of the last 600 steps stay as well, none
    where `checkpoint_every` is 200 or more and 3 stay anyway. On disk: 16 bytes per trained weight each."""
    seed: int = Field(0, ge=0)
    """Of prompt order, sampling, adapters and the held-out split."""
    save_samples: int = Field(8, ge=0)
    """Training samples kept per step with their KL token by token; held-out ones are all kept."""


class Loosen(Settings):
    """Raise the target when it costs reward: decided at evaluations on the held-out reward, far from any alarm."""

    raise_by: float = Field(gt=0)
    """Nats added at a time, in the unit of the target."""
    limit: float = Field(gt=0)
    """The target is never raised above this."""
    patience: int = Field(3, ge=1)
    """Evaluations in a row without progress before the target is raised."""
    min_gain: float = Field(0.01, ge=0)
    """Rise of the held-out reward that counts as progress."""


class Monitor(Settings):
    """What a run watches itself for, whom it tells, and what it does about an alarm."""

    ignore: tuple[str, ...] = ()
    """Names of rules that are left out, such as `length/blow_up`."""
    ladder: tuple[Literal["tighten", "roll_back", "stop"], ...] = ()
    """What is done about alarms, a rung at a time. `tighten` shortens the leash, `roll_back` goes back to the newest
    checkpoint that lies under no alarm, `stop` ends the run (exit 3). Default: nothing but telling."""
    act_on: Literal["warning", "critical"] = "critical"
    """The lowest severity that leads to a rung of the ladder."""
    patience: int = Field(10, ge=1)
    """Steps between two rungs while the alarm goes on, and steps without an alarm until the ladder starts over."""
    tighten_by: float = Field(0.7, gt=0, lt=1)
    """`tighten` multiplies the target by this, or divides a fixed beta by it. Larger: a smaller step."""
    loosen: Loosen | None = None
    """When and how far the target may be raised. Default: never."""
    notify: Literal["warning", "critical"] = "warning"
    """The lowest severity that is sent to the webhook and the command; the terminal shows all."""
    webhook: str | None = None
    """An http or https address that each alarm is posted to, as JSON. The run's folder keeps it whole."""
    webhook_env: str | None = None
    """Environment variable that holds such an address, instead of `webhook`; the address is never written anywhere."""
    command: str | None = None
    """A command that is run for each alarm, with the alarm as JSON on its standard input; no shell reads it."""


class RunConfig(Settings):
    """A whole run, as `kleash train run.toml` reads it."""

    name: str | None = None
    """Name of the folder under `output_dir`. Default: the algorithm with the date."""
    output_dir: str = "runs"
    """Where run folders are made."""
    model: Model
    prompts: Prompts | None = None
    """For algorithms that sample."""
    reward: Reward | None = None
    """For algorithms that sample; DPO and SFT only measure it."""
    comparisons: Comparisons | None = None
    """For `dpo` and `reward_model`."""
    demonstrations: Demonstrations | None = None
    """For `sft`."""
    algorithm: Algorithm = Rloo()
    pretraining: Pretraining | None = None
    """Text that is learned beside the reward."""
    rollout: Rollout = Rollout()
    training: Training = Training()
    monitor: Monitor = Monitor()
    mirrors: tuple[Literal["wandb", "tensorboard", "mlflow", "trackio"], ...] = ()
    """Also log to these; the run directory stays the source."""
    skip_checks: tuple[str, ...] = ()
    """Names of preflight checks that may fail without ending the run."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        return long_forms(data) if isinstance(data, dict) else data


def long_forms(data: dict[str, Any]) -> dict[str, Any]:
    """Return `model = "id"`, `prompts = "file"`, `reward = "module:function"` and the like as tables with that key."""
    data = dict(data)
    if isinstance(data.get("model"), str):
        data["model"] = {"name": data["model"]}
    for table in ("prompts", "comparisons", "demonstrations", "pretraining"):
        if isinstance(data.get(table), str):
            data[table] = {"path": data[table]}
    if isinstance(data.get("reward"), str):
        data["reward"] = {"functions": [data["reward"]]}
    return data
