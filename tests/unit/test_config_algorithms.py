"""What each algorithm needs, what is of no use to it, and what it refuses, in words."""

import pytest

from kleash.config.algorithms import Dpo, Grpo, OnlineDpo, Ppo, RewardModel, Rloo, Sft
from kleash.config.checks import EXAMPLES, MAY_HAVE, NEEDS
from kleash.config.loader import load
from kleash.errors import ConfigError

TABLES = {
    "prompts": "prompts=p.jsonl",
    "reward": "reward=rewards:score",
    "comparisons": "comparisons=c.jsonl",
    "demonstrations": "demonstrations=d.jsonl",
    "pretraining": "pretraining=t.txt",
}
NEEDED = {
    "rloo": ("prompts", "reward"),
    "grpo": ("prompts", "reward"),
    "ppo": ("prompts", "reward"),
    "online_dpo": ("prompts", "reward"),
    "dpo": ("comparisons",),
    "sft": ("demonstrations",),
    "reward_model": ("comparisons",),
}
BESIDES = {
    "rloo": ("pretraining",),
    "grpo": ("pretraining",),
    "ppo": ("pretraining",),
    "dpo": ("reward",),
    "sft": ("reward",),
}
CLASSES = {
    "rloo": Rloo,
    "grpo": Grpo,
    "ppo": Ppo,
    "online_dpo": OnlineDpo,
    "dpo": Dpo,
    "sft": Sft,
    "reward_model": RewardModel,
}
ONCE = "with one update a step (training.num_epochs = 1, training.num_minibatches = 1)"
K1_IN_REWARD = ["algorithm.kl.estimator=k1", "algorithm.kl.placement=reward"]


def given(kind, *overrides, without=()):
    """Overrides with which `kind` has all that it needs, but for the tables in `without`."""
    tables = [TABLES[table] for table in NEEDED[kind] if table not in without]
    return ["model=demo", *tables, f"algorithm.type={kind}", *overrides]


def loaded(kind, *overrides):
    return load(None, given(kind, *overrides)).config


def failure(kind, *overrides, without=()):
    with pytest.raises(ConfigError) as caught:
        load(None, given(kind, *overrides, without=without))
    return str(caught.value).removeprefix("the command line: ")


@pytest.mark.parametrize("kind", NEEDED)
def test_an_algorithm_with_what_it_needs_is_accepted_with_and_without_the_rest(kind):
    assert type(loaded(kind).algorithm) is CLASSES[kind]
    config = loaded(kind, *(TABLES[table] for table in BESIDES.get(kind, ())))
    for table in TABLES:
        assert (getattr(config, table) is not None) == (table in NEEDED[kind] + BESIDES.get(kind, ()))


def test_every_algorithm_says_what_it_takes():
    assert NEEDS == NEEDED
    assert MAY_HAVE == BESIDES


EXAMPLE = {
    "prompts": 'prompts = "prompts.jsonl"',
    "reward": 'reward = "module:function"',
    "comparisons": 'comparisons = "comparisons.jsonl"',
    "demonstrations": 'demonstrations = "demonstrations.jsonl"',
}


@pytest.mark.parametrize(("kind", "table"), [(kind, table) for kind, tables in NEEDED.items() for table in tables])
def test_a_needed_table_that_is_missing_is_named_with_a_line_that_would_do(kind, table):
    assert failure(kind, without=[table]) == (
        f"algorithm.type = '{kind}' needs the table {table}, and there is none. Add {EXAMPLE[table]}."
    )
    load(None, given(kind, EXAMPLES[table].replace('"', "").replace(" ", ""), without=[table]))


@pytest.mark.parametrize(
    ("kind", "table"),
    [(kind, table) for kind in NEEDED for table in TABLES if table not in NEEDED[kind] + BESIDES.get(kind, ())],
)
def test_a_table_of_no_use_is_an_error(kind, table):
    key, _, value = TABLES[table].partition("=")
    shown = f'{key}.functions = ["{value}"]' if table == "reward" else f'{key}.path = "{value}"'
    takes = ", ".join(NEEDED[kind] + BESIDES.get(kind, ()))
    assert failure(kind, TABLES[table]) == (
        f"{shown} has no effect: algorithm.type = '{kind}' takes {takes}. Remove the table, or choose another"
        " algorithm."
    )


def test_an_inherited_table_of_no_use_is_a_warning():
    base = {"prompts": {"path": "p.jsonl"}, "model": {"name": "demo"}}
    warnings = load(None, ["algorithm.type=dpo", TABLES["comparisons"]], base).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith('prompts = {path = "p.jsonl", column = "prompt"')
    assert warnings[0].endswith(
        "}, inherited, has no effect: algorithm.type = 'dpo' takes comparisons, reward. Remove the table, or choose"
        " another algorithm."
    )


def test_a_reward_without_anything_to_optimise_is_refused_only_where_it_is_optimised():
    message = (
        "reward has nothing to optimise: no functions, no model and no judge. Add reward.functions ="
        ' ["module:function"], reward.model = "runs/..." or [reward.judge].'
    )
    for kind in ("rloo", "grpo", "ppo", "online_dpo"):
        assert failure(kind, "reward.gold=gold:score", without=["reward"]) == message
        for source in ("reward.functions=['a:b']", "reward.model=runs/rm", "reward.judge.model=demo"):
            load(None, given(kind, source, without=["reward"]))
    for kind in ("dpo", "sft"):
        assert loaded(kind, "reward.gold=gold:score").reward.functions == ()


def test_weights_are_for_functions_then_model_then_judge():
    sources = ["reward.functions=['a:b', 'c:d']", "reward.model=runs/rm", "reward.judge.model=demo"]
    assert failure("rloo", *sources, "reward.weights=[1, 2]", without=["reward"]) == (
        "reward.weights = [1.0, 2.0] has 2, and the rewards to weigh are 4: a:b, c:d, reward.model, reward.judge. Give"
        " one weight for each, in this order."
    )
    weights = load(None, given("rloo", *sources, "reward.weights=[1, 2, 3, 4]", without=["reward"])).config.reward
    assert weights.weights == (1, 2, 3, 4)


def test_combining_needs_a_reward_model_and_a_weight_of_the_spread_the_rule_that_has_it():
    assert failure("rloo", "reward.combine=worst_case") == (
        "reward.combine = 'worst_case' combines the members of a reward model, and reward.model is not set. Set it, or"
        " remove combine."
    )
    assert failure("rloo", "reward.model=runs/rm", "reward.sd_weight=2") == (
        "reward.sd_weight = 2.0 has no effect: reward.combine = 'mean' takes no account of it. Remove it."
    )
    spread = ["reward.model=runs/rm", "reward.combine=mean_minus_sd", "reward.sd_weight=2"]
    assert loaded("rloo", *spread).reward.sd_weight == 2


@pytest.mark.parametrize(
    ("setting", "does"),
    [
        ("normalize_advantages=whiten", "normalize_advantages = 'whiten' divides the advantages by their spread"),
        ("scale_rewards=unit_variance", "scale_rewards = 'unit_variance' divides the rewards by their spread"),
    ],
)
def test_ppo_divides_by_a_spread_only_where_the_penalty_is_divided_as_well(setting, does):
    assert failure("ppo", f"algorithm.{setting}") == (
        f"algorithm.{does}, and with algorithm.kl.placement = 'loss' the penalty is not part of the rewards and would"
        " keep its size while they change theirs: beta would no longer be reward per nat. Leave it out, or use"
        " kl.estimator = 'k1' with kl.placement = 'reward'."
    )
    assert load(None, given("ppo", f"algorithm.{setting}", *K1_IN_REWARD)).warnings == ()


def test_ppo_settings_without_effect():
    assert failure("ppo", "algorithm.epsilon=0.1") == (
        f"algorithm.epsilon = 0.1 has no effect: {ONCE} the policy is the one that sampled, and every ratio is 1."
        " Remove it, or ask for more updates."
    )
    assert failure("ppo", "algorithm.critic.epsilon=0.1") == (
        f"algorithm.critic.epsilon = 0.1 has no effect: {ONCE} every value is the one at sampling time. Remove it, or"
        " ask for more updates."
    )
    assert failure("ppo", "algorithm.kl.credit=sequence", *K1_IN_REWARD) == (
        'algorithm.kl.credit = "sequence" has no effect: the critic gives credit here. Remove it.'
    )
    several = ["training.num_epochs=2", "algorithm.epsilon=0.1", "algorithm.critic.epsilon=0.1"]
    assert load(None, given("ppo", *several)).warnings == ()


def test_ppo_may_have_one_sample_a_prompt():
    assert loaded("ppo", "algorithm.num_generations=1").algorithm.num_generations == 1


@pytest.mark.parametrize("kind", ["dpo", "online_dpo"])
def test_smoothing_belongs_to_the_losses_that_say_what_they_do_with_it(kind):
    for loss in ("conservative", "robust"):
        assert failure(kind, f"algorithm.loss={loss}") == (
            f"algorithm.loss = '{loss}' with algorithm.label_smoothing = 0.0 is the sigmoid loss under another name."
            " Give the share of labels that you think wrong, such as 0.1, or use loss = 'sigmoid'."
        )
        smoothed = loaded(kind, f"algorithm.loss={loss}", "algorithm.label_smoothing=0.1").algorithm
        assert (smoothed.loss, smoothed.label_smoothing) == (loss, 0.1)
    for loss in ("sigmoid", "ipo", "hinge"):
        assert failure(kind, f"algorithm.loss={loss}", "algorithm.label_smoothing=0.1") == (
            f"algorithm.label_smoothing = 0.1 has no effect on algorithm.loss = '{loss}'. Use loss = 'conservative' or"
            " 'robust', or leave it out."
        )
        assert loaded(kind, f"algorithm.loss={loss}").algorithm.loss == loss


@pytest.mark.parametrize("kind", ["dpo", "online_dpo", "reward_model"])
def test_half_of_the_labels_cannot_be_wrong(kind):
    assert failure(kind, "algorithm.label_smoothing=0.5").startswith(
        "algorithm.label_smoothing = 0.5 on the command line must be a number"
    )


@pytest.mark.parametrize("kind", ["dpo", "online_dpo"])
def test_a_preference_without_price_is_refused(kind):
    assert failure(kind, "algorithm.beta=0") == ("algorithm.beta = 0 on the command line must be a number above 0.")


def test_online_dpo_has_no_clip_and_starts_without_a_further_penalty():
    assert loaded("online_dpo").algorithm.kl.beta == 0
    assert failure("online_dpo", "algorithm.epsilon=0.1") == (
        "algorithm.epsilon = 0.1 on the command line is not a setting. It exists only with algorithm.type = 'rloo',"
        " 'grpo' or 'ppo'."
    )


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("adapter=mine", 'adapter = "mine"'),
        ("reference=other", 'reference = "other"'),
        ("reference_ema=0.1", "reference_ema = 0.1"),
        ("reference_reset_every=5", "reference_reset_every = 5"),
    ],
)
def test_a_reward_model_has_no_reference(setting, shown):
    assert failure("reward_model", f"model.{setting}") == (
        f"model.{shown} has no effect: a reward model has no reference and begins with fresh adapters. Remove it; to"
        " start from an adapter, merge it first (kleash export --merge)."
    )


def test_members_of_an_ensemble_are_adapters():
    assert failure("reward_model", "algorithm.members=3", "model.lora=false") == (
        "algorithm.members = 3 with model.lora = false: members are adapters on one base, and lora = false trains the"
        " base itself. Leave lora on, or train one member a run."
    )
    assert loaded("reward_model", "model.lora=false").algorithm.members == 1
    assert loaded("reward_model", "algorithm.members=3").algorithm.members == 3


def test_a_reward_model_writes_nothing():
    assert failure("reward_model", "rollout.temperature=2", "training.eval_samples=2") == (
        "rollout.temperature = 2.0 has no effect: a reward model writes nothing. Remove the table.\n"
        "training.eval_samples = 2 has no effect: a reward model writes nothing. Remove it."
    )


@pytest.mark.parametrize("kind", ["dpo", "sft"])
@pytest.mark.parametrize(("key", "value"), [("reference_ema", "0.1"), ("reference_reset_every", "5")])
def test_the_reference_moves_only_while_the_policy_samples(kind, key, value):
    assert failure(kind, f"model.{key}={value}") == (
        f"model.{key} = {value} moves the reference while the policy samples, and algorithm.type = '{kind}' does not"
        " sample. Remove it."
    )


@pytest.mark.parametrize("kind", ["dpo", "sft", "reward_model"])
@pytest.mark.parametrize("key", ["num_minibatches", "num_epochs", "save_samples"])
def test_settings_of_fresh_samples_have_no_effect_without_them(kind, key):
    assert failure(kind, f"training.{key}=2") == (
        f"training.{key} = 2 has no effect: algorithm.type = '{kind}' does not sample, and makes one update a step."
        " Remove it."
    )


@pytest.mark.parametrize(("kind", "table"), [("dpo", "comparisons"), ("sft", "demonstrations")])
def test_without_held_out_rows_nothing_is_sampled(kind, table):
    why = f"has no effect: {table}.held_out = 0 leaves nothing to"
    assert failure(kind, f"{table}.held_out=0", "rollout.temperature=2", "training.eval_every=5", TABLES["reward"]) == (
        f"training.eval_every = 5 {why} evaluate on. Hold some out, or remove it.\n"
        f"rollout.temperature = 2.0 {why} sample on. Hold some out, or remove the table.\n"
        f'reward.functions = ["rewards:score"] {why} sample on. Hold some out, or remove the table.'
    )
