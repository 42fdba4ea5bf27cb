import pytest

from kleash.config.loader import load
from kleash.errors import ConfigError

REQUIRED = ["model=demo", "prompts=demo", "reward=rewards:score"]


def failure(*overrides):
    with pytest.raises(ConfigError) as caught:
        load(None, [*REQUIRED, *overrides])
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learningrate=1", "training.learningrate = 1{} Did you mean 'training.learning_rate'?"),
        ("traning.steps=1", "traning.steps = 1{} It belongs elsewhere: training.steps."),
        (
            "learning_rate=0.1",
            "learning_rate = 0.1{} It belongs elsewhere: training.learning_rate or"
            " algorithm.critic.learning_rate (with algorithm.type = 'ppo').",
        ),
        (
            "beta=0.1",
            "beta = 0.1{} It belongs elsewhere: algorithm.kl.beta (with algorithm.type = 'rloo', 'grpo', 'ppo' or"
            " 'online_dpo') or algorithm.beta (with algorithm.type = 'dpo' or 'online_dpo').",
        ),
        ("rollout.lenght_penalty=1", "rollout.lenght_penalty = 1{} Did you mean 'reward.length_penalty'?"),
        (
            "algorithm.scale_rewards=group",
            "algorithm.scale_rewards = \"group\"{} It exists only with algorithm.type = 'grpo' or 'ppo'.",
        ),
        (
            "algorithm.normalize_advantages=none",
            "algorithm.normalize_advantages = \"none\"{} It exists only with algorithm.type = 'ppo'.",
        ),
        (
            "scale_rewards=group",
            "scale_rewards = \"group\"{} It belongs elsewhere: algorithm.scale_rewards (with algorithm.type = 'grpo' or"
            " 'ppo').",
        ),
        ("rollout.zzz=1", "rollout.zzz = 1{} Known here: max_completion_length, temperature, batch_size."),
        (
            "rollout.zzz.y=1",
            "rollout.zzz.y = 1{} Known here: max_completion_length, temperature, batch_size.",
        ),
    ],
)
def test_unknown_keys(override, message):
    assert failure(override) == message.format(" on the command line is not a setting.")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.kl_coef=0.1", "That is its name in TRL; here it is algorithm.kl.beta."),
        ("algorithm.kl_ctrl.kl_coef=0.1", "That is its name in verl; here it is algorithm.kl.beta."),
        ("num_train_epochs=3", "That is its name in TRL; here it is training.steps."),
        (
            "rollout.top_p=0.9",
            "It is known from TRL, verl and OpenRLHF and has no place here: truncated sampling has no finite KL",
        ),
    ],
)
def test_foreign_keys_are_translated(override, message):
    assert f"{override.replace('=', ' = ')} on the command line is not a setting. {message}" in failure(override)


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "-0.05"])
def test_a_beta_that_cannot_work(value):
    assert failure(f"algorithm.kl.beta={value}") == (
        f"algorithm.kl.beta = {value} on the command line cannot work: a negative penalty pays for drift,"
        " and one that is not finite is no number. It must be a number, 0 or above."
    )


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_a_group_of_one(algorithm):
    assert failure(f"algorithm.type={algorithm}", "algorithm.num_generations=1") == (
        "algorithm.num_generations = 1 on the command line cannot work: a leave-one-out or group baseline"
        " needs at least 2 samples of each prompt, to compare one with another. It must be a whole number,"
        " 2 or above."
    )


def test_unknown_algorithms():
    known = "'rloo', 'grpo', 'ppo', 'dpo', 'online_dpo', 'sft' or 'reward_model'"
    assert failure("algorithm.type=best_of_n") == (
        f'algorithm.type = "best_of_n" on the command line is unknown. Choose {known}.'
    )
    assert failure("algorithm.type=rlo").endswith(f"Choose {known}. Did you mean 'rloo'?")
    assert failure("algorithm=grpo") == (
        'algorithm = "grpo" on the command line must be a table: write algorithm.type = "grpo".'
    )


@pytest.mark.parametrize(
    ("override", "shown", "must"),
    [
        ("training.steps=1.5", "1.5", "a whole number, 1 or above"),
        ("training.seed=x", '"x"', "a whole number, 0 or above"),
        ("training.lr_schedule=step", '"step"', "'constant', 'linear' or 'cosine'"),
        ("training.gradient_accumulation_steps=0", "0", "a whole number, 1 or above, or 'auto'"),
        ("model.lora=true", "true", "a table or false"),
        ("model.lora.r=0", "0", "a whole number, 1 or above"),
        ("model.lora.target_modules=3", "3", "a string or a list of strings"),
        ("model.reference_ema=1", "1", "a number between 0 and 1, ends excluded"),
        ("reward.clip=[1]", "[1]", "a list of 2 numbers"),
        ("reward.functions=[1]", "[1]", "a list of strings"),
        ('mirrors=["wb"]', '["wb"]', "a list of 'wandb', 'tensorboard', 'mlflow' or 'trackio'"),
        ("training=3", "3", "a table"),
    ],
)
def test_values_of_another_kind(override, shown, must):
    key = override.partition("=")[0]
    assert failure(override) == f"{key} = {shown} on the command line must be {must}."


def test_empty_values():
    assert failure("model=") == 'model.name = "" on the command line cannot work: it is empty. It must be a string.'
    assert failure("reward.functions=[]") == (
        "the command line: reward has nothing to optimise: no functions, no model and no judge. Add"
        ' reward.functions = ["module:function"], reward.model = "runs/..." or [reward.judge].'
    )


def test_what_is_missing_is_explained():
    with pytest.raises(ConfigError) as caught:
        load(None, ["prompts.held_out=2"])
    first, second = str(caught.value).splitlines()
    assert first.startswith("model.name is missing, and has no default. It is a string: Hugging Face hub id")
    assert second.startswith("prompts.path is missing, and has no default. It is a string: Text lines, JSONL")


def test_one_line_for_each_mistake_with_its_source(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[training]\nsteps = 0\nstep = 3\n[rollout]\ntemperature = 1\n")
    with pytest.raises(ConfigError) as caught:
        load(path, [*REQUIRED, "rollout.temperature=0"], {"training": {"seed": -1}})
    text = str(caught.value)
    assert sorted(text.splitlines()) == [
        "rollout.temperature = 0 on the command line cannot work: at 0 every token is certain, nothing is"
        " explored and no KL is finite. It must be a number above 0.",
        "training.seed = -1 in the inherited settings must be a whole number, 0 or above.",
        f"training.step = 3 in {path} is not a setting. Did you mean 'training.steps'?",
        f"training.steps = 0 in {path} must be a whole number, 1 or above.",
    ]
    assert "pydantic" not in text
