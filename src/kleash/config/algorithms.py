"""How a run learns: its algorithm, and for those that sample the leash, with the controller that steers beta.

The class defaults are the vetted setting; see `kleash.config.schema` for the tables around them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kleash.config.settings import Settings


class FixedBeta(Settings):
    """beta stays as it is."""

    type: Literal["fixed"] = "fixed"


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
    research_only: bool = False
    """Let a penalty run that is refused because its gradient is not the KL's: k1 with scope `token` in the loss, or k3
    with scope `sequence` in the reward. With `rloo` and `grpo`."""
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


class Critic(Settings):
    """The critic: predicts, at each token, the reward still to come."""

    start: str | None = None
    """A reward model (run, checkpoint or folder) to begin from. Default: an adapter on the policy's own weights with a
    head of zeros."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak, on the policy's schedule. Default: that of the policy."""
    epsilon: float = Field(0.2, gt=0)
    """How far, in reward, a value may move from the one at sampling time before its gradient is cut."""


class Ppo(Settings):
    """Proximal policy optimisation: a critic gives each token its own advantage."""

    type: Literal["ppo"] = "ppo"
    num_generations: int = Field(4, ge=1)
    """Samples per prompt; with 2 or more the penalty has a baseline."""
    epsilon: float = Field(0.2, gt=0)
    """Clip of the token ratio in later updates on the same samples; without effect in the first."""
    discount: float = Field(1.0, gt=0, le=1)
    """Of later rewards, per token. Below 1 the objective is no longer the reward of the reply."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Generalised advantage estimation. 1: no trust in the critic but as a baseline; 0: full trust."""
    normalize_advantages: Literal["none", "center", "whiten"] = "center"
    """`center` takes the batch's mean off, `whiten` also divides by its sd (only with k1 in the reward, which is then
    divided as well)."""
    scale_rewards: Literal["none", "unit_variance"] = "none"
    """`unit_variance` divides the tokens' rewards, k1 included, by their sd and keeps their mean; only with k1 in the
    reward."""
    critic: Critic = Critic()
    kl: Kl = Kl()


PreferenceLoss = Literal["sigmoid", "ipo", "hinge", "conservative", "robust"]


class Dpo(Settings):
    """Direct preference optimisation: learns from comparisons without a reward model."""

    type: Literal["dpo"] = "dpo"
    beta: float = Field(0.1, gt=0)
    """Reward per nat that the comparisons are taken to be worth. Larger: a shorter leash."""
    loss: PreferenceLoss = "sigmoid"
    """`sigmoid` (DPO), `ipo`, `hinge` (SLiC); `conservative` (cDPO) or `robust` (rDPO) for labels that may be wrong."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Share of wrong labels that `conservative` and `robust` reckon with."""


class OnlineDpo(Settings):
    """DPO on fresh pairs: the policy's own two samples of each prompt, compared by the reward or a judge."""

    type: Literal["online_dpo"] = "online_dpo"
    beta: float = Field(0.1, gt=0)
    """Reward per nat that a comparison is taken to be worth. Larger: a shorter leash."""
    loss: PreferenceLoss = "sigmoid"
    """As for `dpo`."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """As for `dpo`."""
    kl: Kl = Kl()
    """beta starts at 0 here: DPO's own beta is the leash, and this penalty comes on top of it."""


class Sft(Settings):
    """Supervised fine-tuning on demonstrations: makes the reference that later runs start from."""

    type: Literal["sft"] = "sft"


class RewardModel(Settings):
    """A reward model from comparisons (Bradley-Terry), or an ensemble of them on one base."""

    type: Literal["reward_model"] = "reward_model"
    members: int = Field(1, ge=1)
    """Adapters with heads of their own on one base, each with its own seed and order of the comparisons."""
    margin: float = Field(0.0, ge=0)
    """Reward by which a chosen answer must lead, per unit of `strength`."""
    ties: Literal["half", "leave_out"] = "half"
    """Comparisons of strength 0: half a win each way, or left out."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Share of labels reckoned to be wrong."""
    center: float = Field(0.0, ge=0)
    """Weight of (chosen + rejected)^2, which keeps scores near 0; TRL's `center_rewards_coefficient`."""


OnPolicy = Rloo | Grpo | Ppo | OnlineDpo
"""Algorithms that learn from the policy's own samples."""

Algorithm = Annotated[Rloo | Grpo | Ppo | Dpo | OnlineDpo | Sft | RewardModel, Field(discriminator="type")]
