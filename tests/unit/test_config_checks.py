import pytest

from kleash.config.algorithms import DualBeta, Kl
from kleash.config.checks import controller_of
from kleash.config.loader import load
from kleash.errors import ConfigError

REQUIRED = ["model=demo", "prompts=demo", "reward=rewards:score"]
SEQUENCE = "algorithm.kl.target_nats_per_sequence=6"
TOKEN = "algorithm.kl.target_nats_per_token=0.2"
ONCE = (
    "with one update a step (training.num_epochs = 1, training.num_minibatches = 1) the policy is the one"
    " that sampled, and every ratio is 1. Remove it, or ask for more updates."
)


def failure(*overrides, base=None):
    with pytest.raises(ConfigError) as caught:
        load(None, [*REQUIRED, *overrides], base)
    text = str(caught.value)
    assert text.startswith("the command line: ")
    return text.removeprefix("the command line: ")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [SEQUENCE, TOKEN],
            "algorithm.kl has two targets, target_nats_per_sequence = 6.0 and target_nats_per_token = 0.2,"
            " and one beta cannot hold both. Give one of them.",
        ),
        (
            ["algorithm.kl.controller.type=dual"],
            "algorithm.kl.controller.type = 'dual' steers beta towards a KL target, and none is given. Add"
            " algorithm.kl.target_nats_per_sequence or target_nats_per_token.",
        ),
        (
            [TOKEN, "algorithm.kl.controller.type=fixed"],
            "algorithm.kl.target_nats_per_token = 0.2 has nothing to hold it: controller.type = 'fixed'"
            " never moves beta. Remove the target, or use controller.type = 'target'.",
        ),
        (
            [SEQUENCE, "algorithm.kl.beta=0"],
            "algorithm.kl.beta = 0 with controller.type = 'target': the controller multiplies beta, so it"
            " would stay 0 for ever. Start above 0, leave beta out to have it chosen, or remove the target"
            " for a run without a penalty.",
        ),
        (
            [SEQUENCE, "algorithm.kl.stop_above=5"],
            "algorithm.kl.stop_above = 5.0 ends the run before the KL reaches target_nats_per_sequence ="
            " 6.0. Set it well above the target.",
        ),
        (
            ["model.adapter=mine", "model.lora=false"],
            'model.adapter = "mine" with model.lora = false: continuing an adapter trains the'
            " adapter, and lora ="
            " false trains every weight. Remove one; to train every weight from there, merge the adapter"
            " into the model first.",
        ),
        (
            ["model.reference_ema=0.1", "model.reference_reset_every=5"],
            "model.reference_ema = 0.1 and model.reference_reset_every = 5 both move the reference. Give one of them.",
        ),
        (
            ["model.reference=other", "model.reference_ema=0.1"],
            'model.reference = "other" with a moving reference: a moving one starts at the policy and would'
            " never be that model. Leave out one of the two",
        ),
        (
            ["model.reference=other", "model.reference_reset_every=5"],
            'model.reference = "other" with a moving reference: a moving one starts at the policy and would'
            " never be that model. Leave out one of the two",
        ),
        (
            ["prompts.limit=32"],
            "prompts.limit = 32 leaves nothing to train on: prompts.held_out = 32 are set aside from"
            " these. Raise the limit or hold out fewer.",
        ),
        (
            ["reward.weights=[1, 2]"],
            "reward.weights = [1.0, 2.0] has 2, and the rewards to weigh are 1: rewards:score. Give one weight"
            " for each, in this order.",
        ),
        (
            ["reward.clip=[2, 2]"],
            "reward.clip = [2.0, 2.0] makes every reward the same: it is [lowest, highest], and the first"
            " must be below the second.",
        ),
        (
            ["training.num_minibatches=9"],
            "training.num_minibatches = 9 is more than training.prompts_per_step = 8: some updates would"
            " have no prompt. Lower the first or raise the second.",
        ),
        (
            ["training.num_minibatches=2", "training.gradient_accumulation_steps=5"],
            "training.gradient_accumulation_steps = 5 is more than the 4 prompts of an update"
            " (prompts_per_step = 8, num_minibatches = 2): some micro-batches would be empty. Lower it, or"
            " leave it at 'auto'.",
        ),
        (
            ["training.warmup_steps=100"],
            "training.warmup_steps = 100 never ends in training.steps = 100, so the learning rate would"
            " never reach learning_rate. Make the warm-up shorter.",
        ),
    ],
)
def test_contradictions(overrides, message):
    assert failure(*overrides) == message


def test_penalties_that_are_refused_keep_their_reason():
    assert "algorithm.kl: estimator = 'k1', scope = 'sequence', placement = 'loss' is refused: the expected" in (
        failure("algorithm.kl.estimator=k1")
    )
    assert failure("algorithm.kl.estimator=low_var_kl") == (
        "algorithm.kl: estimator = 'low_var_kl' is called 'k3' here"
    )


@pytest.mark.parametrize("estimator", ["exact", "k2", "k3"])
@pytest.mark.parametrize("updates", ["num_epochs", "num_minibatches"])
def test_on_policy_penalties_allow_one_update(estimator, updates):
    token = [f"algorithm.kl.estimator={estimator}", "algorithm.kl.scope=token"]
    assert load(None, [*REQUIRED, *token]).config.algorithm.kl.scope == "token"
    counts = {"num_epochs": 1, "num_minibatches": 1, updates: 2}
    assert failure(*token, f"training.{updates}=2") == (
        f"algorithm.kl.estimator = '{estimator}' with scope = 'token' follows its gradient only while the"
        f" samples are the policy's own, and training.num_epochs = {counts['num_epochs']} with"
        f" num_minibatches = {counts['num_minibatches']} reuse them. Set both to 1, or use estimator ="
        " 'exact' with scope = 'sequence', which stays true off-policy."
    )


NO_EFFECT = [
    (["algorithm.epsilon=0.2"], [], f"algorithm.epsilon = 0.2 has no effect: {ONCE}"),
    (["algorithm.kl.max_weight=2"], [], f"algorithm.kl.max_weight = 2.0 has no effect: {ONCE}"),
    (
        ["algorithm.epsilon_high=0.28"],
        ["algorithm.type=grpo"],
        f"algorithm.epsilon_high = 0.28 has no effect: {ONCE}",
    ),
    (
        ["algorithm.kl.credit=sequence"],
        [],
        'algorithm.kl.credit = "sequence" has no effect: it belongs to k1 in the reward, and'
        " estimator = 'exact'"
        " is charged in the loss. Remove it.",
    ),
    (
        ["reward.length_penalty_from=20"],
        [],
        "reward.length_penalty_from = 20 has no effect: reward.length_penalty = 0 charges nothing. Set"
        " length_penalty, or remove it.",
    ),
    (
        ["model.lora.r=8"],
        ["model.adapter=mine"],
        "model.lora.r = 8 has no effect: the adapter in model.adapter brings its own rank, scale and layers."
        " Remove it.",
    ),
    (
        ["prompts.held_out=8"],
        ["prompts.held_out_path=held.txt"],
        'prompts.held_out = 8 has no effect: with prompts.held_out_path = "held.txt" nothing is set aside. Remove one.',
    ),
    (
        ["training.eval_every=5"],
        ["prompts.held_out=0"],
        "training.eval_every = 5 has no effect: prompts.held_out = 0 leaves nothing to evaluate on."
        " Hold some out, or remove it.",
    ),
]


@pytest.mark.parametrize(("useless", "context", "message"), NO_EFFECT)
def test_a_given_setting_without_effect_is_an_error(useless, context, message):
    assert failure(*useless, *context) == message
    assert load(None, [*REQUIRED, *context]).warnings == ()


def test_an_inherited_setting_without_effect_is_a_warning():
    base = {"reward": {"functions": ["a:b"], "length_penalty_from": 20}, "algorithm": {"epsilon": 0.2}}
    assert load(None, REQUIRED, base).warnings == (
        "reward.length_penalty_from = 20, inherited, has no effect: reward.length_penalty = 0 charges"
        " nothing. Set length_penalty, or remove it.",
    )


def test_the_same_settings_where_they_have_an_effect():
    several = ["training.num_epochs=2", "algorithm.epsilon=0.1", "algorithm.kl.max_weight=3"]
    k1 = ["algorithm.kl.estimator=k1", "algorithm.kl.placement=reward", "algorithm.kl.credit=sequence"]
    length = ["reward.length_penalty=0.1", "reward.length_penalty_from=20"]
    assert load(None, [*REQUIRED, *several, *k1, *length]).warnings == ()


def test_beta_zero_without_a_target_is_allowed():
    assert load(None, [*REQUIRED, "algorithm.kl.beta=0"]).config.algorithm.kl.beta == 0


def test_the_controller_that_is_meant():
    assert controller_of(Kl()).type == "fixed"
    assert controller_of(Kl(target_nats_per_sequence=6)).type == "target"
    assert controller_of(Kl(target_nats_per_token=1, controller=DualBeta())).type == "dual"
