"""What other trainers call their settings, and where each one goes here.

Sources: TRL 1.x and its earlier PPO trainers (trl/trainer/*_config.py), verl (trainer/config/*.yaml),
OpenRLHF (cli/train_ppo_ray.py) and OpenAI's lm-human-preferences (train_policy.py). A foreign name is
translated in an error, never accepted: the same word often has another unit or default.
"""

from __future__ import annotations

from typing import NamedTuple


class Foreign(NamedTuple):
    """Where another trainer's setting goes: `here` is a dotted key, or None where nothing corresponds."""

    trainers: str
    here: str | None
    note: str


def translate(key: str) -> Foreign | None:
    """Return what a foreign dotted key means here, by its longest known ending; None if no trainer has it."""
    names = key.split(".")
    for start in range(len(names)):
        found = TABLE.get(".".join(names[start:]))
        if found is not None:
            return found
    return None


def sentence(foreign: Foreign) -> str:
    """Say it in words for an error message."""
    if foreign.here is None:
        return f"It is known from {foreign.trainers} and has no place here: {foreign.note}"
    return f"That is its name in {foreign.trainers}; here it is {foreign.here}. {foreign.note}".rstrip()


_TRUNCATED = "truncated sampling has no finite KL to the reference. Leave it out; temperature is rollout.temperature."
_CRITIC_LOSS = (
    "the critic has weights and an optimiser of its own, so that its loss needs no weight beside the policy's. Leave it"
    " out; its rate is algorithm.critic.learning_rate (with algorithm.type = 'ppo')."
)
_SAMPLER = "completions come from the built-in sampler, which needs no server. Leave it out."
_LAUNCH = "devices and processes are found by accelerate at the start. Leave it out."
_PROMPT_LENGTH = "prompts are never cut; one longer than the model's context is an error. Leave it out."
_WITH_PPO = "With algorithm.type = 'ppo'."
_CRITIC_START = f"A reward model to begin from. {_WITH_PPO}"
_WITH_REWARD_MODEL = "With algorithm.type = 'reward_model'."
_VALUE_CLIP = "With algorithm.type = 'ppo'; in units of the reward."
_PASSES = "Training is counted in steps: one pass is the number of prompts / training.prompts_per_step."
_SEQUENCES = "It counts prompts, over all processes: sequences a step / num_generations."
_SEQUENCES_OR_ROWS = f"{_SEQUENCES} For DPO, reward models and SFT it counts rows."
_ADAPTIVE = 'Give a target as well; "ziegler" reproduces the adaptive rule, "target" holds KL more closely.'
_ESTIMATOR = "One of exact, k1, k2, k3; k1 goes with algorithm.kl.placement = 'reward'."

_ROWS: tuple[tuple[str, str, str | None, str], ...] = (
    # The penalty
    ("TRL", "kl_coef", "algorithm.kl.beta", "Reward given up per nat."),
    ("TRL and OpenRLHF", "init_kl_coef", "algorithm.kl.beta", "The start of it, where a controller steers."),
    ("OpenRLHF", "kl.init_coef", "algorithm.kl.beta", "The start of it, where a controller steers."),
    ("verl", "kl_ctrl.kl_coef", "algorithm.kl.beta", "Reward given up per nat."),
    ("verl", "kl_loss_coef", "algorithm.kl.beta", "Reward given up per nat, in the loss or in the reward."),
    ("lm-human-preferences", "rewards.kl_coef", "algorithm.kl.beta", "Reward given up per nat."),
    ("TRL and OpenRLHF", "kl_estimator", "algorithm.kl.estimator", _ESTIMATOR),
    ("OpenRLHF", "kl.estimator", "algorithm.kl.estimator", _ESTIMATOR),
    ("verl", "kl_loss_type kl_penalty", "algorithm.kl.estimator", "Here low_var_kl is k3, mse is k2, kl is k1."),
    ("verl", "use_kl_loss", "algorithm.kl.placement", "Write 'loss', which is the default."),
    ("OpenRLHF", "kl.use_loss", "algorithm.kl.placement", "Write 'loss', which is the default."),
    ("verl", "use_kl_in_reward", "algorithm.kl.placement", "Write 'reward', with estimator = 'k1'."),
    (
        "TRL",
        "use_bias_correction_kl",
        None,
        "the default penalty, exact with scope = 'sequence', follows the true gradient as it is. Leave it out.",
    ),
    # The controller
    ("TRL", "adap_kl_ctrl", "algorithm.kl.controller.type", _ADAPTIVE),
    ("verl", "kl_ctrl.type", "algorithm.kl.controller.type", _ADAPTIVE),
    ("verl", "kl_ctrl.target_kl", "algorithm.kl.target_nats_per_token", "verl's target is per token."),
    ("verl", "kl_ctrl.horizon", "algorithm.kl.controller.horizon", "With controller.type = 'ziegler'."),
    ("OpenRLHF", "kl_target kl.target", "algorithm.kl.target_nats_per_token", "OpenRLHF's target is per token."),
    ("OpenRLHF", "kl_horizon kl.horizon", "algorithm.kl.controller.horizon", "With controller.type = 'ziegler'."),
    (
        "TRL and lm-human-preferences",
        "target adaptive_kl.target",
        "algorithm.kl.target_nats_per_sequence",
        "A target of the KL of a whole reply.",
    ),
    (
        "lm-human-preferences",
        "adaptive_kl.horizon",
        "algorithm.kl.controller.horizon",
        "With controller.type = 'ziegler'.",
    ),
    *(
        ("earlier versions of Kleash", f"controller.loosen.{key}", f"monitor.loosen.{key}", "")
        for key in ("raise_by", "limit", "patience", "min_gain")
    ),
    # The model and the reference
    ("TRL", "model_name_or_path", "model.name", ""),
    ("OpenRLHF", "pretrain", "model.name", ""),
    ("verl", "model.path", "model.name", ""),
    ("lm-human-preferences", "initial_model", "model.name", ""),
    ("TRL", "ref_model", "model.reference", "Left out, the reference is where training starts."),
    ("OpenRLHF", "ref_pretrain", "model.reference", "Left out, the reference is where training starts."),
    (
        "TRL",
        "sync_ref_model",
        "model.reference_ema",
        "Or model.reference_reset_every; KL to the original is reported as well.",
    ),
    ("TRL", "ref_model_mixup_alpha", "model.reference_ema", "Share of the policy mixed in, here at every step."),
    ("TRL", "ref_model_sync_steps", "model.reference_reset_every", "The reference is then set to the policy."),
    ("TRL", "bf16", "model.dtype", "Write 'bfloat16', or 'auto' to take it where the machine has it."),
    ("TRL", "fp16", "model.dtype", "Write 'bfloat16' or 'float32'; float16 overflows where log-ratios are large."),
    ("TRL", "torch_dtype", "model.dtype", ""),
    ("TRL", "peft_config use_peft", "model.lora", "A table with r, alpha and target_modules; on by default."),
    ("TRL", "lora_r", "model.lora.r", ""),
    ("verl and OpenRLHF", "lora_rank", "model.lora.r", ""),
    ("TRL, verl and OpenRLHF", "lora_alpha", "model.lora.alpha", ""),
    ("TRL", "lora_target_modules", "model.lora.target_modules", ""),
    (
        "TRL",
        "lora_dropout",
        None,
        "dropout would make policy and reference disagree before any training. Leave it out.",
    ),
    ("TRL", "disable_dropout", None, "dropout is always off while scoring and training. Leave it out."),
    # Prompts and reward
    (
        "TRL",
        "dataset_name",
        "prompts.path",
        "A file, or a hub data set org/name[:split]. For DPO and reward models comparisons.path, for SFT"
        " demonstrations.path.",
    ),
    ("OpenRLHF", "prompt_data prompt_dataset", "prompts.path", "A file, or a hub data set org/name[:split]."),
    ("verl", "train_files", "prompts.path", ""),
    ("verl", "val_files", "prompts.held_out_path", ""),
    ("lm-human-preferences", "query_dataset", "prompts.path", ""),
    ("OpenRLHF", "input_key", "prompts.column", ""),
    ("verl", "prompt_key", "prompts.column", ""),
    ("OpenRLHF", "apply_chat_template", "prompts.as_chat", ""),
    ("TRL", "reward_funcs reward_model_path", "reward.functions", "A list of 'module:function'."),
    ("OpenRLHF", "remote_rm_url reward_pretrain", "reward.functions", "A list of 'module:function'."),
    ("TRL", "reward_weights", "reward.weights", "One for each function."),
    ("TRL and OpenRLHF", "reward_clip_range", "reward.clip", "The lowest and the highest, such as [-10, 10]."),
    ("TRL", "missing_eos_penalty", "reward.missing_stop_penalty", "Given as a positive number."),
    (
        "TRL and lm-human-preferences",
        "whiten_rewards",
        "algorithm.scale_rewards",
        "With algorithm.type = 'ppo', write 'unit_variance'. reward.rescale does it once, which keeps beta's meaning.",
    ),
    ("OpenRLHF", "normalize_reward normalize_enable", "reward.rescale", "Measured once, on samples of the reference."),
    ("TRL", "mask_truncated_completions", "reward.missing_stop_penalty", "Cut replies stay in the batch, at a price."),
    # Sampling
    ("TRL and OpenRLHF", "max_new_tokens", "rollout.max_completion_length", "Tokens of the reply."),
    ("TRL and lm-human-preferences", "response_length", "rollout.max_completion_length", "Tokens of the reply."),
    ("verl", "max_response_length", "rollout.max_completion_length", "Tokens of the reply."),
    ("OpenRLHF", "generate_max_len", "rollout.max_completion_length", "Tokens of the reply."),
    ("TRL, verl and OpenRLHF", "top_p top_k min_p typical_p", None, _TRUNCATED),
    (
        "TRL",
        "repetition_penalty",
        None,
        "sampling and scoring must be the same distribution, or the KL is of neither. Leave it out.",
    ),
    ("TRL and verl", "max_prompt_length", None, _PROMPT_LENGTH),
    ("OpenRLHF", "prompt_max_len", None, _PROMPT_LENGTH),
    ("TRL", "use_vllm vllm_mode vllm_gpu_memory_utilization", None, _SAMPLER),
    ("verl", "rollout.name rollout.gpu_memory_utilization", None, _SAMPLER),
    ("OpenRLHF", "vllm_num_engines", None, _SAMPLER),
    ("TRL", "local_rollout_forward_batch_size", "rollout.batch_size", ""),
    # The algorithm
    ("verl", "adv_estimator", "algorithm.type", "'rloo', 'grpo', or 'ppo' for gae."),
    (
        "OpenRLHF",
        "advantage_estimator advantage.estimator",
        "algorithm.type",
        "'rloo', 'grpo' for group_norm, or 'ppo' for gae.",
    ),
    ("TRL", "importance_sampling_level", "algorithm.type", "'rloo' weighs the whole sequence, 'grpo' each token."),
    ("TRL", "rloo_k", "algorithm.num_generations", ""),
    ("verl", "rollout.n", "algorithm.num_generations", ""),
    ("OpenRLHF", "n_samples_per_prompt", "algorithm.num_generations", ""),
    ("TRL", "epsilon_low", "algorithm.epsilon", "The upper clip is algorithm.epsilon_high (grpo)."),
    ("TRL and lm-human-preferences", "cliprange", "algorithm.epsilon", ""),
    ("verl", "clip_ratio clip_ratio_low", "algorithm.epsilon", ""),
    ("verl", "clip_ratio_high", "algorithm.epsilon_high", "With algorithm.type = 'grpo'."),
    ("OpenRLHF", "eps_clip", "algorithm.epsilon", ""),
    (
        "TRL",
        "loss_type",
        "algorithm.loss_normalization",
        "With algorithm.type = 'grpo': grpo is 'sequence', dapo and bnpo are 'token', dr_grpo is 'constant'. For DPO it"
        " is algorithm.loss: 'sigmoid', 'ipo', 'hinge', 'robust'; sigmoid with label smoothing is 'conservative'.",
    ),
    (
        "verl",
        "loss_agg_mode",
        "algorithm.loss_normalization",
        "With algorithm.type = 'grpo': token-mean is 'token', seq-mean-token-mean is 'sequence'.",
    ),
    (
        "verl",
        "norm_adv_by_std_in_grpo",
        "algorithm.scale_rewards",
        "With algorithm.type = 'grpo': true is 'group', false is 'none'.",
    ),
    (
        "TRL",
        "normalize_advantages",
        "algorithm.scale_rewards",
        "With algorithm.type = 'grpo'; rloo leaves the reward's scale alone.",
    ),
    # PPO and its critic
    ("TRL and lm-human-preferences", "vf_coef", None, _CRITIC_LOSS),
    ("TRL and verl", "cliprange_value", "algorithm.critic.epsilon", _VALUE_CLIP),
    ("OpenRLHF", "value_clip", "algorithm.critic.epsilon", _VALUE_CLIP),
    ("TRL, verl and lm-human-preferences", "lam", "algorithm.gae_lambda", _WITH_PPO),
    ("OpenRLHF", "lambd", "algorithm.gae_lambda", _WITH_PPO),
    ("TRL, verl, OpenRLHF and lm-human-preferences", "gamma", "algorithm.discount", _WITH_PPO),
    ("TRL", "value_model", "algorithm.critic.start", _CRITIC_START),
    ("OpenRLHF", "critic_pretrain", "algorithm.critic.start", _CRITIC_START),
    ("verl", "critic.model.path", "algorithm.critic.start", _CRITIC_START),
    ("OpenRLHF", "critic_learning_rate", "algorithm.critic.learning_rate", _WITH_PPO),
    ("OpenRLHF", "ptx_coef", "pretraining.gamma", "The text is pretraining.path."),
    ("OpenRLHF", "pretrain_data", "pretraining.path", ""),
    # Comparisons and demonstrations
    (
        "TRL",
        "label_smoothing",
        "algorithm.label_smoothing",
        "With algorithm.type = 'dpo', and loss = 'conservative' or 'robust'.",
    ),
    (
        "TRL",
        "precompute_ref_log_probs precompute_ref_batch_size",
        None,
        "the reference reads the comparisons once, before the first step, and what it says is kept. Leave it out.",
    ),
    (
        "TRL",
        "reference_free",
        None,
        "without a reference there is no leash. Leave it out; another reference is model.reference.",
    ),
    ("TRL", "center_rewards_coefficient", "algorithm.center", _WITH_REWARD_MODEL),
    (
        "TRL",
        "packing packing_strategy",
        None,
        "demonstrations are always packed, whole and blind to each other. Leave it out; the row is"
        " demonstrations.row_length (with algorithm.type = 'sft').",
    ),
    (
        "TRL",
        "completion_only_loss assistant_only_loss",
        None,
        "the loss is on the tokens of the completion alone. Leave it out.",
    ),
    (
        "TRL",
        "max_length",
        "comparisons.max_completion_length",
        "Of a completion, without its prompt; a longer one is left out, never cut. For 'sft' it is"
        " demonstrations.row_length.",
    ),
    ("TRL", "max_seq_length", "demonstrations.row_length", "A longer demonstration is an error, never cut."),
    (
        "verl and OpenRLHF",
        "entropy_coeff entropy_coef",
        None,
        "the KL penalty is what keeps entropy up; lower the target or raise beta. Leave it out.",
    ),
    # The loop
    ("TRL", "max_steps", "training.steps", "Rounds of sampling and updating."),
    ("verl", "total_training_steps", "training.steps", "Rounds of sampling and updating."),
    ("TRL", "num_train_epochs", "training.steps", _PASSES),
    ("verl", "total_epochs", "training.steps", _PASSES),
    ("OpenRLHF", "num_episodes", "training.steps", _PASSES),
    (
        "TRL and lm-human-preferences",
        "total_episodes",
        "training.steps",
        "One step is prompts_per_step x num_generations episodes.",
    ),
    ("TRL", "per_device_train_batch_size generation_batch_size", "training.prompts_per_step", _SEQUENCES_OR_ROWS),
    ("TRL and lm-human-preferences", "batch_size", "training.prompts_per_step", _SEQUENCES),
    ("verl", "train_batch_size", "training.prompts_per_step", "It counts prompts, over all processes."),
    ("OpenRLHF", "rollout_batch_size", "training.prompts_per_step", "It counts prompts, over all processes."),
    ("TRL", "per_device_eval_batch_size", "rollout.batch_size", "Sequences decoded at once."),
    ("TRL", "num_iterations num_ppo_epochs", "training.num_epochs", "Passes over a step's samples."),
    ("verl", "ppo_epochs", "training.num_epochs", "Passes over a step's samples."),
    ("OpenRLHF", "max_epochs", "training.num_epochs", "Passes over a step's samples."),
    ("lm-human-preferences", "noptepochs", "training.num_epochs", "Passes over a step's samples."),
    ("TRL", "num_mini_batches", "training.num_minibatches", "Updates in one pass."),
    (
        "TRL",
        "steps_per_generation",
        "training.num_minibatches",
        "Here it counts updates: steps_per_generation / gradient_accumulation_steps.",
    ),
    ("lm-human-preferences", "nminibatches", "training.num_minibatches", "Updates in one pass."),
    (
        "verl",
        "ppo_mini_batch_size",
        "training.num_minibatches",
        "Here it is their number: train_batch_size / ppo_mini_batch_size.",
    ),
    (
        "verl",
        "ppo_micro_batch_size_per_gpu ppo_micro_batch_size",
        "training.gradient_accumulation_steps",
        "Here it is their number; 'auto' fits memory.",
    ),
    (
        "OpenRLHF",
        "micro_train_batch_size",
        "training.gradient_accumulation_steps",
        "Here it is their number; 'auto' fits memory.",
    ),
    ("verl, OpenRLHF and lm-human-preferences", "lr", "training.learning_rate", ""),
    ("OpenRLHF", "actor_learning_rate", "training.learning_rate", ""),
    ("TRL", "lr_scheduler_type", "training.lr_schedule", ""),
    ("OpenRLHF", "lr_scheduler", "training.lr_schedule", ""),
    ("TRL", "warmup_ratio", "training.warmup_steps", "Here it is a number of steps: ratio x training.steps."),
    ("OpenRLHF", "lr_warmup_ratio", "training.warmup_steps", "Here it is a number of steps: ratio x training.steps."),
    ("verl", "lr_warmup_steps", "training.warmup_steps", ""),
    ("OpenRLHF", "max_norm", "training.max_grad_norm", ""),
    ("verl", "grad_clip", "training.max_grad_norm", ""),
    ("TRL and OpenRLHF", "eval_steps", "training.eval_every", ""),
    ("verl", "test_freq", "training.eval_every", ""),
    ("TRL and OpenRLHF", "save_steps", "training.checkpoint_every", ""),
    ("verl", "save_freq", "training.checkpoint_every", ""),
    ("lm-human-preferences", "save_interval", "training.checkpoint_every", ""),
    ("TRL", "num_generations_eval", "training.eval_samples", ""),
    ("TRL", "save_total_limit", "training.keep_checkpoints", ""),
    ("OpenRLHF", "max_ckpt_num", "training.keep_checkpoints", ""),
    ("verl", "max_actor_ckpt_to_keep", "training.keep_checkpoints", ""),
    # The run
    ("TRL and OpenRLHF", "logging_steps", None, "every step is recorded. Leave it out."),
    ("TRL", "log_completions", "training.save_samples", "How many are kept each step."),
    ("TRL", "run_name", "name", ""),
    ("verl", "experiment_name", "name", ""),
    ("TRL", "report_to", "mirrors", 'A list, such as ["wandb"].'),
    ("verl", "logger", "mirrors", 'A list, such as ["wandb"].'),
    ("OpenRLHF", "save_path ckpt_path", "output_dir", "The folder that holds the run folders."),
    ("verl", "default_local_dir", "output_dir", "The folder that holds the run folders."),
    ("verl", "n_gpus_per_node nnodes", None, _LAUNCH),
)

TABLE = {name: Foreign(trainers, here, note) for trainers, names, here, note in _ROWS for name in names.split()}
"""By the ending of the foreign key."""
