"""Which tables and settings each algorithm takes, needs and refuses, in words."""

import pytest

from kleash.config.checks import MAY_HAVE, NEEDS
from kleash.config.loader import load
from kleash.errors import ConfigError

SAMPLED = ["model=demo", "prompts=demo", "reward=rewards:score"]
COMPARED = ["model=demo", "comparisons=pairs.jsonl"]


def failure(*settings):
    with pytest.raises(ConfigError) as caught:
        load(None, settings)
    return str(caught.value).removeprefix("the command line: ")


def test_every_algorithm_says_what_it_needs():
    kinds = {"rloo", "grpo", "ppo", "online_dpo", "dpo", "sft", "reward_model"}
    assert NEEDS.keys() == kinds
    assert MAY_HAVE.keys() <= kinds


@pytest.mark.parametrize(
    "settings",
    [
        [*SAMPLED, "algorithm.type=ppo", "pretraining=text.txt"],
        [*SAMPLED, "algorithm.type=online_dpo"],
        [*COMPARED, "algorithm.type=dpo", "reward.gold=rewards:score"],
        [*COMPARED, "algorithm.type=reward_model", "algorithm.members=3"],
        ["model=demo", "demonstrations=texts.jsonl", "algorithm.type=sft"],
        ["model=demo", "prompts=demo", "reward.model=runs/reward", "algorithm.type=rloo"],
        ["model=demo", "prompts=demo", "reward.judge.model=demo"],
    ],
)
def test_a_sound_run_loads_without_a_warning(settings):
    assert load(None, settings).warnings == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            [*COMPARED, "algorithm.type=rloo"],
            "algorithm.type = 'rloo' needs the table reward, and there is none. Add reward = \"module:function\".",
        ),
        (
            [*SAMPLED, "comparisons=pairs.jsonl"],
            "comparisons.path = \"pairs.jsonl\" has no effect: algorithm.type = 'rloo' takes prompts, reward,"
            " pretraining. Remove the table, or choose another algorithm.",
        ),
        (
            [*SAMPLED, "algorithm.type=online_dpo", "pretraining=text.txt"],
            "pretraining.path = \"text.txt\" has no effect: algorithm.type = 'online_dpo' takes prompts, reward."
            " Remove the table, or choose another algorithm.",
        ),
        (
            ["model=demo", "prompts=demo", "reward.gold=rewards:score"],
            "reward has nothing to optimise: no functions, no model and no judge. Add reward.functions ="
            ' ["module:function"], reward.model = "runs/..." or [reward.judge].',
        ),
        (
            [*SAMPLED, "reward.model=runs/reward", "reward.weights=[1]"],
            "reward.weights = [1.0] has 1, and the rewards to weigh are 2: rewards:score, reward.model. Give one weight"
            " for each, in this order.",
        ),
        (
            [*SAMPLED, "reward.combine=worst_case"],
            "reward.combine = 'worst_case' combines the members of a reward model, and reward.model is not set. Set"
            " it, or remove combine.",
        ),
        (
            [*SAMPLED, "algorithm.type=ppo", "algorithm.normalize_advantages=whiten"],
            "algorithm.normalize_advantages = 'whiten' divides the advantages by their spread, and with"
            " algorithm.kl.placement = 'loss' the penalty is not part of the rewards and would keep its size while they"
            " change theirs: beta would no longer be reward per nat. Leave it out, or use kl.estimator = 'k1' with"
            " kl.placement = 'reward'.",
        ),
        (
            [*COMPARED, "algorithm.type=dpo", "algorithm.loss=robust"],
            "algorithm.loss = 'robust' with algorithm.label_smoothing = 0.0 is the sigmoid loss under another name."
            " Give the share of labels that you think wrong, such as 0.1, or use loss = 'sigmoid'.",
        ),
        (
            [*COMPARED, "algorithm.type=dpo", "algorithm.label_smoothing=0.1"],
            "algorithm.label_smoothing = 0.1 has no effect on algorithm.loss = 'sigmoid'. Use loss = 'conservative' or"
            " 'robust', or leave it out.",
        ),
        (
            [*COMPARED, "algorithm.type=reward_model", "algorithm.members=2", "model.lora=false"],
            "algorithm.members = 2 with model.lora = false: members are adapters on one base, and lora = false trains"
            " the base itself. Leave lora on, or train one member a run.",
        ),
        (
            [*COMPARED, "algorithm.type=dpo", "training.num_epochs=2"],
            "training.num_epochs = 2 has no effect: algorithm.type = 'dpo' does not sample, and makes one update a"
            " step. Remove it.",
        ),
        (
            [*COMPARED, "algorithm.type=reward_model", "rollout.temperature=0.7"],
            "rollout.temperature = 0.7 has no effect: a reward model writes nothing. Remove the table.",
        ),
        (
            [*COMPARED, "algorithm.type=dpo", "model.reference_ema=0.1"],
            "model.reference_ema = 0.1 moves the reference while the policy samples, and algorithm.type = 'dpo' does"
            " not sample. Remove it.",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(settings, message):
    assert message in failure(*settings).split("\n")


def test_pretraining_goes_with_every_policy_gradient():
    for kind in ("rloo", "grpo", "ppo"):
        assert load(None, [*SAMPLED, f"algorithm.type={kind}", "pretraining=text.txt"]).config.pretraining.gamma == 1.0
