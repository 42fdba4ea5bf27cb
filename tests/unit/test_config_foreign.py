import pytest

from kleash.config.describe import run_settings
from kleash.config.foreign import TABLE, sentence, translate

KEYS = {entry.key for entry in run_settings()} | {"model.lora"}


@pytest.mark.parametrize("name", TABLE)
def test_every_translation_is_a_setting_here_or_gives_a_reason(name):
    foreign = TABLE[name]
    assert foreign.here in KEYS or (foreign.here is None and foreign.note)
    assert name not in KEYS


@pytest.mark.parametrize(
    ("key", "here"),
    [
        ("init_kl_coef", "algorithm.kl.beta"),
        ("per_device_train_batch_size", "training.prompts_per_step"),
        ("rollout.max_new_tokens", "rollout.max_completion_length"),
        ("response_length", "rollout.max_completion_length"),
        ("epsilon_low", "algorithm.epsilon"),
        ("loss_type", "algorithm.loss_normalization"),
        ("num_iterations", "training.num_epochs"),
        ("sync_ref_model", "model.reference_ema"),
        ("ref_model_mixup_alpha", "model.reference_ema"),
        ("ref_model_sync_steps", "model.reference_reset_every"),
        ("missing_eos_penalty", "reward.missing_stop_penalty"),
        ("model_name_or_path", "model.name"),
        ("save_steps", "training.checkpoint_every"),
        ("save_total_limit", "training.keep_checkpoints"),
        ("bf16", "model.dtype"),
        ("fp16", "model.dtype"),
        ("peft_config", "model.lora"),
        ("lora_r", "model.lora.r"),
        ("lora_alpha", "model.lora.alpha"),
        ("max_steps", "training.steps"),
        ("warmup_ratio", "training.warmup_steps"),
        ("report_to", "mirrors"),
        ("cliprange", "algorithm.epsilon"),
        ("whiten_rewards", "algorithm.scale_rewards"),
        ("dataset_name", "prompts.path"),
        ("num_ppo_epochs", "training.num_epochs"),
        ("cliprange_value", "algorithm.critic.epsilon"),
        ("critic.cliprange_value", "algorithm.critic.epsilon"),
        ("lam", "algorithm.gae_lambda"),
        ("gamma", "algorithm.discount"),
        ("value_model", "algorithm.critic.start"),
        ("label_smoothing", "algorithm.label_smoothing"),
        ("center_rewards_coefficient", "algorithm.center"),
        ("max_length", "comparisons.max_completion_length"),
        ("max_seq_length", "demonstrations.row_length"),
        ("ptx_coef", "pretraining.gamma"),
        ("actor_rollout_ref.actor.kl_loss_coef", "algorithm.kl.beta"),
        ("actor_rollout_ref.rollout.n", "algorithm.num_generations"),
        ("algo.kl.init_coef", "algorithm.kl.beta"),
        ("kl_target", "algorithm.kl.target_nats_per_token"),
        ("rewards.adaptive_kl.target", "algorithm.kl.target_nats_per_sequence"),
    ],
)
def test_where_known_names_go(key, here):
    assert translate(key).here == here


@pytest.mark.parametrize(
    "key",
    [
        "top_p",
        "top_k",
        "min_p",
        "max_prompt_length",
        "logging_steps",
        "use_vllm",
        "vf_coef",
        "precompute_ref_log_probs",
        "packing",
        "completion_only_loss",
        "reference_free",
    ],
)
def test_names_without_a_place_here(key):
    assert translate(f"training.{key}").here is None


def test_an_unknown_name_is_nobodys():
    assert translate("training.stepz") is None
    assert translate("n") is None


def test_sentences():
    assert sentence(translate("lora_r")) == "That is its name in TRL; here it is model.lora.r."
    assert sentence(translate("lam")) == (
        "That is its name in TRL, verl and lm-human-preferences; here it is algorithm.gae_lambda. With algorithm.type ="
        " 'ppo'."
    )
    assert sentence(translate("vf_coef")).startswith(
        "It is known from TRL and lm-human-preferences and has no place here: the critic has weights and an optimiser"
    )


def test_a_word_of_two_trainers_for_two_things_names_both():
    assert "With algorithm.type = 'grpo': grpo is 'sequence'" in translate("loss_type").note
    assert "For DPO it is algorithm.loss: 'sigmoid', 'ipo', 'hinge', 'robust'" in translate("loss_type").note
    assert translate("per_device_train_batch_size").note.endswith("For DPO, reward models and SFT it counts rows.")
    assert "comparisons.path, for SFT demonstrations.path" in translate("dataset_name").note
