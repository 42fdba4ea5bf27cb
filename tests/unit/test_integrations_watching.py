import json
from pathlib import Path

import pytest
from alarm_rules import Alarm, only
from transformers import TrainingArguments

from kleash.integrations.watching import Watch, trainer_name, translated
from kleash.metrics import lookup
from kleash.monitor.ladder import Ladder
from kleash.runs.records import Step

GOLDEN = Path(__file__).parents[1] / "golden" / "trl"


def last_logs(name):
    state = json.loads((GOLDEN / name / "checkpoint-6" / "trainer_state.json").read_text())
    return state["log_history"][-1]


@pytest.mark.parametrize(
    ("run", "trainer", "key", "column"),
    [
        ("grpo_beta", "TRL GRPO", "kl/k3_per_token", "kl"),
        ("rloo", "TRL RLOO", "kl/k1_per_token", "kl"),
        ("online_dpo", "TRL online DPO", "kl/k1_per_sequence", "objective/kl"),
        ("grpo_beta0", "TRL GRPO", "reward/proxy", "reward"),
    ],
)
def test_a_real_log_is_read_with_its_estimator_and_unit(run, trainer, key, column):
    logs = last_logs(run)
    found = translated(logs, trainer, 0.1)
    assert found[key] == logs[column]
    assert all(lookup(name) for name in found)


@pytest.mark.parametrize(("run", "trainer"), [("grpo_beta0", "TRL GRPO"), ("dpo", "TRL DPO"), ("kto", "TRL KTO")])
def test_what_is_no_kl_to_the_reference_is_not_taken_for_one(run, trainer):
    found = translated(last_logs(run), trainer, 0.1)
    assert found
    assert not any(key.startswith("kl/") for key in found)


def test_log_ratios_come_out_of_dpos_rewards_when_beta_is_known():
    logs = last_logs("dpo")
    assert translated(logs, "TRL DPO", 0.1)["preference/chosen_drift"] == pytest.approx(logs["rewards/chosen"] / 0.1)
    assert "preference/chosen_drift" not in translated(logs, "TRL DPO", None)


@pytest.mark.parametrize("trainer", ["TRL SFT", "TRL DPO", "TRL KTO"])
def test_the_entropy_on_given_text_is_not_the_policys(trainer):
    assert (
        translated({"entropy": 1.5, "loss": 2.0, "grad_norm": 0.5}, trainer, 0.1)
        .keys()
        .isdisjoint({"entropy/per_token", "eval/entropy/per_token"})
    )
    assert translated({"entropy": 1.5}, "TRL GRPO", 0.1) == {"entropy/per_token": 1.5}


def test_a_trainers_own_evaluation_is_left_out():
    assert translated({"eval_loss": 1.0, "eval_reward": 2.0, "epoch": 1.0}, "TRL GRPO", 0.1) == {}


def test_a_trainer_is_known_by_its_arguments(tmp_path):
    class GRPOConfig(TrainingArguments):
        pass

    class Mine(GRPOConfig):
        pass

    assert trainer_name(Mine(output_dir=str(tmp_path), use_cpu=True)) == "TRL GRPO"
    assert trainer_name(TrainingArguments(output_dir=str(tmp_path), use_cpu=True)) == "transformers Trainer"


def test_a_measured_key_is_never_mixed_with_the_trainers(monkeypatch):
    """The trainer's entropy is that of other prompts: seen beside the measured one it would look like a jump."""
    rule = Alarm(lambda step: False)
    only(monkeypatch, rule)
    watch = Watch(Ladder((), act_on="critical", patience=1))
    watch(Step(0, {"eval/entropy/per_token": 2.0}, {"eval/entropy/per_token": 0.1}))
    watch(Step(1, {"entropy/per_token": 5.0, "reward/proxy": 0.5}))
    watch(Step(2, {"entropy/per_token": 5.0, "reward/proxy": 0.6, "eval/entropy/per_token": 1.9}))
    assert rule.seen == {
        0: {"entropy/per_token": 2.0},
        1: {"reward/proxy": 0.5},
        2: {"entropy/per_token": 1.9, "reward/proxy": 0.6},
    }


def test_the_ladder_stands_where_it_stood_after_a_replay(monkeypatch):
    steps = [Step(step, {"reward/proxy": 0.0}) for step in range(4)]
    only(monkeypatch, Alarm(lambda step: step >= 2))
    fresh = Watch(Ladder(("tighten", "stop"), act_on="critical", patience=2))
    fresh.replay(steps)
    events, action = fresh(Step(4, {"reward/proxy": 0.0}))
    assert events == []
    assert (action.kind, action.rung) == ("stop", 2)
