"""What other trainers' columns are: who against whom, by which estimator, in which unit, with which sign.

Three different things are called KL in logs: to the reference, of the policy against the one that sampled, and of the
sampler's numbers against the trainer's. Only the first is drift. Each row says which one a column is; what cannot be
known from the log is said, and never guessed. Nothing is converted between tokens and sequences.

Sources: TRL 1.16.0 (trl/trainer, trl/experimental), its PPO trainers up to 0.11 and from 0.12 on, verl
(core_algos.py, ray_trainer.py, metric_utils.py), NeMo-RL (loss_functions.py, grpo.py), tinker-cookbook (rl/metrics.py),
prime-rl (trainer/rl), OpenRLHF (experience_maker.py, ppo_actor.py), open-instruct (grpo_fast.py), SkyRL (trainer.py),
trlx (accelerate_ppo_trainer.py), torchtune (ppo_full_finetune_single_device.py), OpenAI's lm-human-preferences
(train_policy.py). Which of them were tried on a real run is in `trainers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

REFERENCE = "KL(policy ‖ reference)"
NEW_OLD = "the policy against the one that sampled: not the reference"
SAMPLER = "the sampler's numbers against the trainer's for the same weights: not the reference"
NO_DRIFT = "no KL of the policy to the reference"

TOKEN, SEQUENCE = "nats per token", "nats per sequence"


class Scale(NamedTuple):
    """What is done to a value: in words, and as a function of it and of beta, None where that cannot be done."""

    says: str
    apply: Callable[[float, float | None], float | None]


AS_IS = Scale("", lambda value, beta: value)
NEGATED = Scale("sign turned", lambda value, beta: -value)
SQUARED = Scale("squared: a root is logged", lambda value, beta: value * value)
COMPLEMENT = Scale("1 - the logged share", lambda value, beta: 1 - value)
OVER_BETA = Scale("divided by beta", lambda value, beta: value / beta if beta else None)


@dataclass(frozen=True)
class Row:
    """One column of one or more trainers.

    Args:
        trainers: names of `trainers.TRAINERS`.
        column: its name without the trainer's prefix; `{name}` stands for any text.
        key: of the catalogue, or None where the column has no counterpart or cannot be used.
        between: who against whom; empty where it is no KL.
        estimator: k1, k2, k3 or "not in the log"; empty where it is no KL.
        unit: where it differs from the key's, or there is no key.
        scale: what is done to its values.
        note: what else a reader must know.
    """

    trainers: tuple[str, ...]
    column: str
    key: str | None
    between: str = ""
    estimator: str = ""
    unit: str = ""
    scale: Scale = AS_IS
    note: str = ""

    def matches(self, column: str) -> str | None:
        """Return the key that a column of this name goes to, "" for no key; None if it is another column."""
        if "{name}" not in self.column:
            return (self.key or "") if column == self.column else None
        pattern = re.escape(self.column).replace(re.escape("{name}"), "(.+)")
        found = re.fullmatch(pattern, column)
        return None if found is None else (self.key or "").replace("{name}", found[1])


GRPO, RLOO, EITHER = "TRL GRPO", "TRL RLOO", "TRL GRPO or RLOO"
PPO, OLD_PPO = "TRL PPO", "TRL PPO up to 0.11"
DPO, KTO, ONLINE, XPO, NASH = "TRL DPO", "TRL KTO", "TRL online DPO", "TRL XPO", "TRL Nash-MD"
NO_REFERENCE, REWARD, SFT = "TRL CPO or ORPO", "TRL reward model", "TRL SFT"
HF = "transformers Trainer"
OPEN_INSTRUCT, OLD_OPEN_INSTRUCT = "open-instruct", "open-instruct (kl_avg to kl4_avg)"

SAMPLING = (GRPO, RLOO, EITHER)
PREFERENCES = (DPO, KTO, ONLINE)
ALL_HF = (*SAMPLING, PPO, *PREFERENCES, XPO, NASH, NO_REFERENCE, REWARD, SFT, HF)

_UNSURE_KIND = "k3 from GRPO, k1 from RLOO, and the log does not say which: name it with --trainer"
_AGGREGATED = (
    "the unit follows loss_agg_mode: with token-mean and low_var_kl say --column actor/kl_loss=kl/k3_per_token"
)
_TRLX = (
    "its terms are exp(d) - 1 - d with d = log policy - log reference, prompt included: close to the KL while that is "
    "small, above it later"
)
_PADDED = "positions after the end are in the mean, so it is too small"
_LOG_RATIO = "beta times log policy - log reference of a given completion: a log-ratio, not a KL"
_GIVEN_TEXT = "entropy on given text, which falls as the text is learnt: not that of the policy's own replies"
_SUMMED = "summed over a sequence, which is no entropy per token"

ROWS: tuple[Row, ...] = (
    # TRL: trainers that sample
    Row((GRPO,), "kl", "kl/k3_per_token", REFERENCE, "k3", note="times the ratio if use_bias_correction_kl"),
    Row((RLOO,), "kl", "kl/k1_per_token", REFERENCE, "k1", note="may be negative"),
    Row((EITHER,), "kl", "kl/unstated_per_token", REFERENCE, "not in the log", note=_UNSURE_KIND),
    Row(SAMPLING, "reward", "reward/proxy"),
    Row(SAMPLING, "reward_std", "reward/sd"),
    Row(SAMPLING, "frac_reward_zero_std", "reward/flat_groups"),
    Row(SAMPLING, "rewards/{name}/mean", "reward/function/{name}"),
    Row(SAMPLING, "rewards/{name}/std", None, note="spread of one reward function"),
    Row(SAMPLING, "completions/mean_length", "length/mean"),
    Row(SAMPLING, "completion_length", "length/mean"),
    Row(SAMPLING, "completions/clipped_ratio", "length/stop_rate", scale=COMPLEMENT),
    Row(SAMPLING, "clip_ratio/region_mean", "ratio/clip_fraction"),
    Row(SAMPLING, "clip_ratio", "ratio/clip_fraction"),
    Row(SAMPLING, "entropy", "entropy/per_token"),
    Row((DPO, KTO, SFT), "entropy", None, note=_GIVEN_TEXT),
    Row(SAMPLING, "sampling/sampling_logp_difference/mean", "sampler/mismatch_mean"),
    Row(SAMPLING, "sampling/sampling_logp_difference/max", None, note="largest mismatch of sampler and trainer"),
    Row(SAMPLING, "step_time", "time/total"),
    Row((RLOO,), "loss", "loss/policy"),
    # TRL: PPO, and what kept its names
    Row((PPO,), "objective/kl", "kl/unstated_per_sequence", REFERENCE, "k1, or k3 where kl_estimator says so"),
    Row((ONLINE, XPO), "objective/kl", "kl/k1_per_sequence", REFERENCE, "k1", note="positions after the end count too"),
    Row((NASH,), "loss/kl", "kl/k1_per_sequence", REFERENCE, "k1"),
    Row((PPO,), "policy/approxkl_avg", "update/kl_per_token", NEW_OLD, "k2", note=_PADDED),
    Row((PPO, ONLINE, XPO), "objective/scores", "reward/proxy"),
    Row((PPO, ONLINE, XPO, NASH), "objective/rlhf_reward", None, note="score minus beta times KL"),
    Row((PPO, ONLINE, XPO, NASH), "objective/non_score_reward", None, note="minus beta times KL"),
    Row((PPO, ONLINE, XPO, NASH), "objective/entropy", None, note=_SUMMED),
    Row((PPO,), "policy/entropy_avg", "entropy/per_token", note="positions after the end are in the mean"),
    Row((PPO,), "policy/clipfrac_avg", "ratio/clip_fraction"),
    Row((PPO,), "loss/policy_avg", "loss/policy"),
    Row((PPO,), "loss/value_avg", "critic/loss"),
    Row((PPO,), "val/clipfrac_avg", "critic/clip_fraction"),
    Row((PPO,), "lr", "optim/learning_rate"),
    Row((ONLINE, XPO, NASH), "beta", "control/beta"),
    Row((ONLINE, XPO, NASH), "val/contain_eos_token", "length/stop_rate"),
    Row((OLD_PPO,), "objective/kl", "kl/k1_per_sequence", REFERENCE, "k1"),
    Row((OLD_PPO,), "objective/kl_coef", "control/beta"),
    Row((OLD_PPO,), "ppo/policy/policykl", "update/kl_per_token", NEW_OLD, "k1"),
    Row((OLD_PPO,), "ppo/policy/approxkl", "update/kl_per_token", NEW_OLD, "k2"),
    Row((OLD_PPO,), "ppo/mean_scores", "reward/proxy"),
    Row((OLD_PPO,), "env/reward_mean", "reward/proxy"),
    Row((OLD_PPO,), "ppo/std_scores", "reward/sd"),
    Row((OLD_PPO,), "env/reward_std", "reward/sd"),
    Row((OLD_PPO,), "objective/entropy", None, note=_SUMMED),
    Row((OLD_PPO,), "ppo/policy/entropy", "entropy/per_token"),
    Row((OLD_PPO,), "ppo/policy/clipfrac", "ratio/clip_fraction"),
    Row((OLD_PPO,), "tokens/responses_len_mean", "length/mean"),
    Row((OLD_PPO,), "ppo/loss/policy", "loss/policy"),
    Row((OLD_PPO,), "ppo/loss/value", "critic/loss"),
    Row((OLD_PPO,), "ppo/val/var_explained", "critic/explained_variance"),
    Row((OLD_PPO,), "ppo/learning_rate", "optim/learning_rate"),
    # TRL: trainers on given text
    Row((KTO,), "kl", None, NO_DRIFT, "KTO's baseline z0", SEQUENCE, note="of mismatched completions, cut at 0"),
    Row((DPO, KTO, ONLINE), "rewards/chosen", "preference/chosen_drift", scale=OVER_BETA, note=_LOG_RATIO),
    Row((DPO, KTO, ONLINE), "rewards/rejected", "preference/rejected_drift", scale=OVER_BETA, note=_LOG_RATIO),
    Row(PREFERENCES, "rewards/margins", "preference/margin"),
    Row((DPO, ONLINE), "rewards/accuracies", "preference/accuracy"),
    Row(PREFERENCES, "logps/chosen", "preference/chosen_logprob"),
    Row(PREFERENCES, "logps/rejected", "preference/rejected_logprob"),
    Row((DPO, ONLINE), "loss", "loss/preference"),
    Row((NO_REFERENCE,), "rewards/chosen", None, note="beta times a log-probability: this loss has no reference"),
    Row((NO_REFERENCE,), "rewards/rejected", None, note="beta times a log-probability: this loss has no reference"),
    Row((NO_REFERENCE,), "rewards/margins", "preference/margin", note="of log-probabilities, without a reference"),
    Row((NO_REFERENCE,), "rewards/accuracies", "preference/accuracy", note="by log-probability, without a reference"),
    Row((REWARD,), "accuracy", "preference/accuracy"),
    Row((REWARD,), "margin", "preference/margin"),
    Row((REWARD,), "loss", "loss/preference"),
    Row((SFT,), "loss", "loss/sft"),
    Row(ALL_HF, "loss", "loss/total"),
    Row(ALL_HF, "learning_rate", "optim/learning_rate"),
    Row(ALL_HF, "grad_norm", "optim/grad_norm"),
    Row(ALL_HF, "kleash/kl_to_start_nats_per_sequence", "eval/kl/exact_per_sequence", REFERENCE, "exact"),
    Row(ALL_HF, "kleash/kl_to_start_nats_per_token", "eval/kl/exact_per_token", REFERENCE, "exact"),
    Row(ALL_HF, "kleash/reply_length_tokens", "eval/length/mean"),
    # verl
    Row(("verl",), "actor/reward_kl_penalty", "kl/unstated_per_token", REFERENCE, "not in the log"),
    Row(("verl",), "critic/kl", "kl/unstated_per_token", REFERENCE, "not in the log", note="name of older releases"),
    Row(("verl",), "actor/kl_loss", None, REFERENCE, "not in the log", "unit not in the log", note=_AGGREGATED),
    Row(("verl",), "actor/reward_kl_penalty_coeff", "control/beta"),
    Row(("verl",), "critic/kl_coeff", "control/beta"),
    Row(("verl",), "critic/kl_coef", "control/beta", note="EasyR1's name"),
    Row(("verl",), "actor/kl_coef", "control/beta", note="of the KL in the loss"),
    Row(("verl",), "actor/ppo_kl", "update/kl_per_token", NEW_OLD, "k1"),
    Row(("verl",), "rollout_corr/k3_kl", "sampler/kl_per_token", SAMPLER, "k3"),
    Row(("verl",), "rollout_corr/kl", "sampler/kl_per_token", SAMPLER, "k1"),
    Row(("verl",), "training/rollout_probs_diff_mean", None, note="difference of probabilities, not of logarithms"),
    Row(("verl",), "critic/score/mean", "reward/proxy"),
    Row(("verl",), "critic/rewards/mean", "reward/shaped", note="after the KL penalty, where that is in the reward"),
    Row(("verl",), "actor/entropy", "entropy/per_token"),
    Row(("verl",), "actor/entropy_loss", "entropy/per_token", note="name of older releases"),
    Row(("verl",), "response_length/mean", "length/mean"),
    Row(("verl",), "response_length/clip_ratio", "length/stop_rate", scale=COMPLEMENT),
    Row(("verl",), "actor/pg_clipfrac", "ratio/clip_fraction"),
    Row(("verl",), "actor/pg_loss", "loss/policy"),
    Row(("verl",), "actor/grad_norm", "optim/grad_norm"),
    Row(("verl",), "actor/lr", "optim/learning_rate"),
    Row(("verl",), "critic/vf_explained_var", "critic/explained_variance"),
    Row(("verl",), "critic/vf_loss", "critic/loss"),
    Row(("verl",), "timing_s/step", "time/total"),
    # OpenRLHF
    Row(("OpenRLHF",), "logprobs_diff", "kl/k1_per_token", REFERENCE, "k1"),
    Row(("OpenRLHF",), "kl", "kl/unstated_per_token", REFERENCE, "not in the log"),
    Row(("OpenRLHF",), "ppo_kl", "update/kl_per_token", NEW_OLD, "k1"),
    Row(("OpenRLHF",), "vllm_kl", "sampler/kl_per_token", SAMPLER, "k1"),
    Row(("OpenRLHF",), "kl_coef", "control/beta"),
    Row(("OpenRLHF",), "reward", "reward/proxy"),
    Row(("OpenRLHF",), "response_length", "length/mean"),
    Row(("OpenRLHF",), "truncated", "length/stop_rate", scale=COMPLEMENT),
    Row(("OpenRLHF",), "ppo_clip_ratio", "ratio/clip_fraction"),
    Row(("OpenRLHF",), "entropy", "entropy/per_token"),
    Row(("OpenRLHF",), "policy_loss", "loss/policy"),
    Row(("OpenRLHF",), "actor_lr", "optim/learning_rate"),
    Row(("OpenRLHF",), "actor_grad_norm", "optim/grad_norm"),
    # NeMo-RL
    Row(("NeMo-RL",), "kl_penalty", "kl/unstated_per_token", REFERENCE, "k3 unless set", note="not times beta"),
    Row(("NeMo-RL",), "gen_kl_error", "sampler/kl_per_token", SAMPLER, "k3"),
    Row(("NeMo-RL",), "policy_kl_error", None, SAMPLER, "k3 of the other direction", TOKEN),
    Row(("NeMo-RL",), "js_divergence_error", None, SAMPLER, "Jensen-Shannon", TOKEN),
    Row(("NeMo-RL",), "reward", "reward/proxy"),
    Row(("NeMo-RL",), "mean_gen_tokens_per_sample", "length/mean"),
    Row(("NeMo-RL",), "approx_entropy", "entropy/per_token"),
    Row(("NeMo-RL",), "loss", "loss/total"),
    Row(("NeMo-RL",), "grad_norm", "optim/grad_norm"),
    Row(("NeMo-RL",), "lr", "optim/learning_rate"),
    # tinker
    Row(("tinker",), "kl_policy_base", "kl/k1_per_token", REFERENCE, "k1", note="logged only with a penalty"),
    Row(("tinker",), "optim/kl_sample_train_v1", "sampler/kl_per_token", SAMPLER, "k1"),
    Row(("tinker",), "optim/kl_sample_train_v2", "sampler/kl_per_token", SAMPLER, "k2"),
    Row(("tinker",), "kl_pre_post_v1", "update/kl_per_token", NEW_OLD, "k1"),
    Row(("tinker",), "kl_pre_post_v2", "update/kl_per_token", NEW_OLD, "k2"),
    Row(("tinker",), "teacher_kl", None, "KL(policy ‖ teacher): not the reference", "k1", TOKEN),
    Row(("tinker",), "env/all/reward/total", "reward/proxy"),
    Row(("tinker",), "env/all/ac_tokens_per_turn", "length/mean", note="tokens of a turn"),
    Row(("tinker",), "optim/entropy", "entropy/per_token"),
    Row(("tinker",), "optim/lr", "optim/learning_rate"),
    Row(("tinker",), "time/total", "time/total"),
    # prime-rl
    Row(
        ("prime-rl",), "ref_kl/mean", "kl/k1_per_token", REFERENCE, "k1", scale=NEGATED,
        note="log reference - log policy is logged; in distillation the reference is the teacher",
    ),
    Row(("prime-rl",), "mismatch_kl/all/mean", "sampler/kl_per_token", SAMPLER, "k3"),
    Row(("prime-rl",), "mismatch_kl/mean", "sampler/kl_per_token", SAMPLER, "k3"),
    Row(("prime-rl",), "kl_ent_ratio/mean", None, SAMPLER, "divided by the entropy", "ratio"),
    Row(("prime-rl",), "reward/all/mean", "reward/proxy"),
    Row(("prime-rl",), "train/agg/all/agent/reward/mean", "reward/proxy"),
    Row(("prime-rl",), "train/agg/all/agent/num_output_tokens/mean", "length/mean"),
    Row(("prime-rl",), "train/agg/all/agent/is_truncated/mean", "length/stop_rate", scale=COMPLEMENT),
    Row(("prime-rl",), "seq_len/all/mean", None, note="prompt and reply together"),
    Row(("prime-rl",), "is_truncated/all/mean", "length/stop_rate", scale=COMPLEMENT),
    Row(("prime-rl",), "entropy/all/mean", "entropy/per_token"),
    Row(("prime-rl",), "loss/mean", "loss/total"),
    Row(("prime-rl",), "optim/grad_norm", "optim/grad_norm"),
    Row(("prime-rl",), "optim/lr", "optim/learning_rate"),
    Row(("prime-rl",), "time/step", "time/total"),
    # open-instruct: the same numbers under two numberings
    Row((OPEN_INSTRUCT,), "objective/kl0_avg", "kl/k1_per_token", REFERENCE, "k1", note="numbered from 0"),
    Row((OPEN_INSTRUCT,), "objective/kl1_avg", "kl/k2_per_token", REFERENCE, "k2", note="numbered from 0"),
    Row((OPEN_INSTRUCT,), "objective/kl2_avg", "kl/k3_per_token", REFERENCE, "k3", note="numbered from 0"),
    Row((OPEN_INSTRUCT,), "objective/kl3_avg", None, REFERENCE, "ratio times k1", TOKEN),
    Row((OLD_OPEN_INSTRUCT,), "objective/kl_avg", "kl/k1_per_token", REFERENCE, "k1"),
    Row((OLD_OPEN_INSTRUCT,), "objective/kl2_avg", "kl/k2_per_token", REFERENCE, "k2"),
    Row((OLD_OPEN_INSTRUCT,), "objective/kl3_avg", "kl/k3_per_token", REFERENCE, "k3"),
    Row((OLD_OPEN_INSTRUCT,), "objective/kl4_avg", None, REFERENCE, "ratio times k1", TOKEN),
    *(
        Row((OPEN_INSTRUCT, OLD_OPEN_INSTRUCT), column, key, note=note)
        for column, key, note in (
            ("loss/kl_avg", "loss/kl", "already times beta"),
            ("scores", "reward/proxy", ""),
            ("val/sequence_lengths", "length/mean", ""),
            ("val/stop_rate", "length/stop_rate", ""),
            ("policy/entropy_avg", "entropy/per_token", ""),
            ("policy/clipfrac_avg", "ratio/clip_fraction", ""),
            ("loss/policy_avg", "loss/policy", ""),
            ("loss/total_avg", "loss/total", ""),
            ("optim/grad_norm", "optim/grad_norm", ""),
            ("lr", "optim/learning_rate", ""),
        )
    ),
    # SkyRL
    Row(("SkyRL",), "loss/avg_kl", "kl/unstated_per_token", REFERENCE, "not in the log", note="mean over sequences"),
    Row(("SkyRL",), "policy/policy_kl", "kl/unstated_per_token", REFERENCE, "not in the log", note="of the KL loss"),
    Row(("SkyRL",), "loss/avg_kl_max", None, REFERENCE, "largest token of a sequence, mean over them", TOKEN),
    Row(("SkyRL",), "loss/kl_loss_coef", "control/beta"),
    Row(("SkyRL",), "reward/avg_raw_reward", "reward/proxy"),
    Row(("SkyRL",), "generate/avg_num_tokens", "length/mean"),
    Row(("SkyRL",), "policy/response_length", "length/mean"),
    Row(("SkyRL",), "policy/policy_entropy", "entropy/per_token"),
    Row(("SkyRL",), "policy/ppo_clip_ratio", "ratio/clip_fraction"),
    Row(("SkyRL",), "policy/policy_loss", "loss/policy"),
    Row(("SkyRL",), "policy/final_loss", "loss/total"),
    Row(("SkyRL",), "policy/raw_grad_norm", "optim/grad_norm"),
    Row(("SkyRL",), "policy/policy_lr", "optim/learning_rate"),
    # trlx
    Row(("trlx",), "policy/sqrt_kl", "kl/unstated_per_sequence", REFERENCE, "of trlx", scale=SQUARED, note=_TRLX),
    Row(("trlx",), "policy/kl_per_token", "kl/unstated_per_token", REFERENCE, "of trlx", scale=SQUARED, note=_TRLX),
    Row(("trlx",), "policy/approx_kl", "update/kl_per_token", NEW_OLD, "k3"),
    Row(("trlx",), "kl_ctl_value", "control/beta"),
    Row(("trlx",), "rollout_scores/mean", "reward/proxy"),
    Row(("trlx",), "rollout_scores/std", "reward/sd"),
    Row(("trlx",), "policy/clipfrac", "ratio/clip_fraction"),
    Row(("trlx",), "losses/policy_loss", "loss/policy"),
    Row(("trlx",), "losses/value_loss", "critic/loss"),
    Row(("trlx",), "losses/total_loss", "loss/total"),
    # torchtune
    Row(("torchtune",), "kl", "kl/k1_per_sequence", REFERENCE, "k1"),
    Row(("torchtune",), "kl_reward", None, NO_DRIFT, "minus beta times the KL", "reward"),
    Row(("torchtune",), "approx_policy_kl", "update/kl_per_token", NEW_OLD, "k2"),
    Row(("torchtune",), "scores", "reward/proxy"),
    Row(("torchtune",), "rlhf_reward", None, note="score minus beta times KL"),
    Row(("torchtune",), "response_lengths", "length/mean"),
    Row(("torchtune",), "clipfrac", "ratio/clip_fraction"),
    Row(("torchtune",), "policy_loss", "loss/policy"),
    Row(("torchtune",), "value_loss", "critic/loss"),
    Row(("torchtune",), "loss", "loss/total"),
    Row(("torchtune",), "lr", "optim/learning_rate"),
    Row(("torchtune",), "grad_norm", "optim/grad_norm"),
    # OpenAI's lm-human-preferences
    Row(("lm-human-preferences",), "objective/kl", "kl/k1_per_sequence", REFERENCE, "k1"),
    Row(("lm-human-preferences",), "objective/kl_coef", "control/beta"),
    Row(("lm-human-preferences",), "ppo/policy/approxkl", "update/kl_per_token", NEW_OLD, "k2"),
    Row(("lm-human-preferences",), "objective/score", "reward/proxy"),
    Row(("lm-human-preferences",), "objective/score_total", None, note="score minus beta times KL"),
    Row(("lm-human-preferences",), "objective/entropy", None, note=_SUMMED),
    Row(("lm-human-preferences",), "ppo/policy/entropy", "entropy/per_token"),
    Row(("lm-human-preferences",), "ppo/policy/clipfrac", "ratio/clip_fraction"),
    Row(("lm-human-preferences",), "ppo/loss/policy", "loss/policy"),
    Row(("lm-human-preferences",), "ppo/loss/value", "critic/loss"),
)  # fmt: skip


_BY_ESTIMATOR = (
    Row((PPO,), "objective/kl", "kl/k1_per_sequence", REFERENCE, "k1", note="the setting kl_estimator of the log"),
    Row((PPO,), "objective/kl", "kl/k3_per_sequence", REFERENCE, "k3", note="the setting kl_estimator of the log"),
)
"""What is known of a column where the log has the setting `kl_estimator` of its trainer."""


def rows_of(trainer: str, kl_estimator: object = None) -> Mapping[str, Row]:
    """Return a trainer's rows by column; where two rows have one column, the more particular one, which is first.

    Args:
        trainer: its name.
        kl_estimator: the trainer's setting of that name, where the log has it.
    """
    settled = [row for row in _BY_ESTIMATOR if row.estimator == kl_estimator]
    found: dict[str, Row] = {}
    for row in (*settled, *ROWS):
        if trainer in row.trainers:
            found.setdefault(row.column, row)
    return found
