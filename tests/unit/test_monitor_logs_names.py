"""What each trainer's columns are taken for; values and signs by hand."""

from pathlib import Path

import pytest
from foreign_logs import json_lines, trainer_state

from kleash.errors import DataError
from kleash.metrics import lookup
from kleash.monitor.logs import mappings
from kleash.monitor.logs.reading import read_log
from kleash.monitor.logs.trainers import TRAINERS, recognise, trainer_names

NAMES = {trainer.name for trainer in TRAINERS}


def read(tmp_path, row, **options):
    return read_log(json_lines(tmp_path / "log.jsonl", [{"step": 3, **row}]), **options)


def key_of(log, name):
    return next(column.key for column in log.columns if column.name == name)


def says(log, name):
    return next(column.says for column in log.columns if column.name == name)


@pytest.mark.parametrize(
    ("source", "row", "expected"),
    [
        ("verl",
         {"critic/score/mean": 0.5, "actor/reward_kl_penalty": 0.25, "actor/reward_kl_penalty_coeff": 0.001,
          "actor/ppo_kl": 0.125, "rollout_corr/k3_kl": 0.0625, "response_length/mean": 90.0,
          "response_length/clip_ratio": 0.25, "actor/entropy": 0.75},
         {"reward/proxy": 0.5, "kl/unstated_per_token": 0.25, "control/beta": 0.001, "update/kl_per_token": 0.125,
          "sampler/kl_per_token": 0.0625, "length/mean": 90.0, "length/stop_rate": 0.75, "entropy/per_token": 0.75}),
        ("OpenRLHF",
         {"train/policy_loss": 0.5, "train/actor_lr": 1e-6, "train/kl": 0.25, "train/logprobs_diff": 0.125,
          "train/ppo_kl": 0.0625, "train/vllm_kl": 0.5, "train/reward": 2.0},
         {"loss/policy": 0.5, "optim/learning_rate": 1e-6, "kl/unstated_per_token": 0.25, "kl/k1_per_token": 0.125,
          "update/kl_per_token": 0.0625, "sampler/kl_per_token": 0.5, "reward/proxy": 2.0}),
        ("NeMo-RL",
         {"train/kl_penalty": 0.25, "train/gen_kl_error": 0.5, "train/policy_kl_error": 9.0, "train/reward": 2.0},
         {"kl/unstated_per_token": 0.25, "sampler/kl_per_token": 0.5, "reward/proxy": 2.0}),
        ("tinker",
         {"kl_policy_base": -0.25, "optim/kl_sample_train_v1": 0.5, "optim/kl_sample_train_v2": 0.75,
          "kl_pre_post_v1": 0.125, "teacher_kl": 9.0, "env/all/reward/total": 2.0},
         {"kl/k1_per_token": -0.25, "sampler/kl_per_token": 0.5, "update/kl_per_token": 0.125, "reward/proxy": 2.0}),
        ("prime-rl",
         {"ref_kl/mean": -0.25, "mismatch_kl/all/mean": 0.5, "kl_ent_ratio/mean": 9.0, "reward/all/mean": 2.0},
         {"kl/k1_per_token": 0.25, "sampler/kl_per_token": 0.5, "reward/proxy": 2.0}),
        ("open-instruct",
         {"objective/kl0_avg": 1.0, "objective/kl1_avg": 2.0, "objective/kl2_avg": 3.0, "objective/kl3_avg": 4.0,
          "loss/kl_avg": 0.05},
         {"kl/k1_per_token": 1.0, "kl/k2_per_token": 2.0, "kl/k3_per_token": 3.0, "loss/kl": 0.05}),
        ("open-instruct (kl_avg to kl4_avg)",
         {"objective/kl_avg": 1.0, "objective/kl2_avg": 2.0, "objective/kl3_avg": 3.0, "objective/kl4_avg": 4.0},
         {"kl/k1_per_token": 1.0, "kl/k2_per_token": 2.0, "kl/k3_per_token": 3.0}),
        ("SkyRL",
         {"policy/policy_kl": 0.25, "loss/avg_kl_max": 9.0, "loss/kl_loss_coef": 0.001, "reward/avg_raw_reward": 2.0},
         {"kl/unstated_per_token": 0.25, "control/beta": 0.001, "reward/proxy": 2.0}),
        ("trlx",
         {"policy/sqrt_kl": 3.0, "policy/kl_per_token": 0.5, "kl_ctl_value": 0.05, "rollout_scores/mean": 2.0},
         {"kl/unstated_per_sequence": 9.0, "kl/unstated_per_token": 0.25, "control/beta": 0.05, "reward/proxy": 2.0}),
        ("torchtune",
         {"kl": 5.0, "kl_reward": -0.5, "rlhf_reward": 1.5, "approx_policy_kl": 0.25, "scores": 2.0},
         {"kl/k1_per_sequence": 5.0, "update/kl_per_token": 0.25, "reward/proxy": 2.0}),
        ("lm-human-preferences",
         {"objective/kl": 5.0, "objective/kl_coef": 0.15, "objective/score": 2.0, "objective/score_total": 1.25,
          "ppo/policy/approxkl": 0.25, "objective/entropy": 60.0},
         {"kl/k1_per_sequence": 5.0, "control/beta": 0.15, "reward/proxy": 2.0, "update/kl_per_token": 0.25}),
        ("TRL PPO up to 0.11",
         {"objective/kl": 5.0, "objective/kl_coef": 0.2, "ppo/policy/approxkl": 0.25, "ppo/policy/policykl": 0.125,
          "ppo/mean_scores": 2.0},
         {"kl/k1_per_sequence": 5.0, "control/beta": 0.2, "update/kl_per_token": 0.125, "reward/proxy": 2.0}),
        ("TRL Nash-MD",
         {"loss/kl": 5.0, "loss/score": 1.0, "objective/entropy": 60.0},
         {"kl/k1_per_sequence": 5.0}),
        ("TRL XPO",
         {"loss/xpo": 1.0, "loss/dpo": 1.0, "objective/kl": 5.0},
         {"kl/k1_per_sequence": 5.0}),
    ],
)  # fmt: skip
def test_a_trainer_is_recognised_and_its_columns_named(tmp_path, source, row, expected):
    log = read(tmp_path, row)
    assert log.source == source
    assert log.steps[0].metrics == expected
    assert any(f"{source}'s names were taken from its source" in note for note in log.notes)


def test_the_user_says_which_trainer_it_is_and_its_prefix_is_found(tmp_path):
    row = {"train/kl": 0.5, "train/reward": 1.0, "train/completions/mean_length": 9.0}
    log = read(tmp_path, row)
    assert log.source == "TRL GRPO or RLOO"
    assert "name it with --trainer" in says(log, "train/kl")
    assert log.steps[0].metrics["kl/unstated_per_token"] == 0.5
    named = read(tmp_path, row, trainer="trl rloo")
    assert named.source == "TRL RLOO"
    assert named.steps[0].metrics == {"kl/k1_per_token": 0.5, "reward/proxy": 1.0, "length/mean": 9.0}
    with pytest.raises(DataError, match=r"--trainer 'TRL RLO' is not known\. Did you mean 'TRL RLOO'\?"):
        read(tmp_path, row, trainer="TRL RLO")


def test_an_evaluation_is_kept_beside_training(tmp_path):
    row = {"reward": 1.0, "completions/mean_length": 9.0, "eval_reward": 2.0, "eval_kl": 0.5}
    trainer_state(tmp_path, [{"step": 1, **row}], tag="grpo")
    assert read_log(tmp_path).steps[0].metrics == {
        "reward/proxy": 1.0, "length/mean": 9.0, "eval/reward/proxy": 2.0, "eval/kl/k3_per_token": 0.5,
    }  # fmt: skip


def test_drift_on_given_text_needs_beta(tmp_path):
    row = {"rewards/chosen": 0.5, "rewards/rejected": -1.0, "rewards/margins": 1.5, "logps/chosen": -30.0}
    without, told = read(tmp_path, row), read(tmp_path, row, beta=0.25)
    assert without.source == "TRL DPO"
    assert without.steps[0].metrics == {"preference/margin": 1.5, "preference/chosen_logprob": -30.0}
    assert "tell it with --beta" in says(without, "rewards/chosen")
    assert told.steps[0].metrics["preference/chosen_drift"] == 2.0
    assert told.steps[0].metrics["preference/rejected_drift"] == -4.0
    assert told.settings["beta"] == 0.25
    assert any("No KL to the reference was logged: this trainer learns from given" in note for note in told.notes)


def test_a_beta_that_moves_divides_nothing(tmp_path):
    rows = [
        {"step": step, "objective/kl": 1.0, "rewards/chosen": 0.5, "logps/chosen": -9.0, "beta": beta}
        for step, beta in ((1, 0.1), (2, 0.2))
    ]
    moving = read_log(json_lines(tmp_path / "moving.jsonl", rows))
    fixed = read_log(json_lines(tmp_path / "fixed.jsonl", rows[:1]))
    assert "preference/chosen_drift" not in moving.steps[0].metrics
    assert fixed.steps[0].metrics["preference/chosen_drift"] == 5.0


@pytest.mark.parametrize(
    ("source", "row"),
    [
        ("TRL SFT", {"mean_token_accuracy": 0.5, "loss": 2.0}),
        ("TRL DPO", {"rewards/chosen": 0.5, "logps/chosen": -30.0}),
        ("TRL KTO", {"kl": 4.0, "rewards/chosen": 0.5, "logps/chosen": -30.0}),
    ],
)
def test_the_entropy_on_given_text_is_not_the_policys(tmp_path, source, row):
    """It falls because the text is learnt, and would look like a collapse."""
    log = read(tmp_path, {**row, "entropy": 1.5, "eval_entropy": 1.25})
    assert log.source == source
    assert [key_of(log, name) for name in ("entropy", "eval_entropy")] == [None, None]
    assert says(log, "entropy").startswith("entropy on given text, which falls as the text is learnt")
    assert not any("entropy" in key for key in log.steps[0].metrics)


def test_a_chart_of_one_metric_is_told_to_name_its_trainer(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text("Step,a - b - train/kl\n1,0.5\n")
    with pytest.raises(DataError, match=r'train/kl\. Say who wrote it, such as --trainer "TRL GRPO" \(one column'):
        read_log(path)
    assert read_log(path, trainer="TRL GRPO").steps[0].metrics == {"kl/k3_per_token": 0.5}


def test_ktos_kl_is_no_drift(tmp_path):
    log = read(tmp_path, {"kl": 4.0, "rewards/chosen": 0.5, "logps/chosen": -30.0, "loss": 0.5})
    assert log.source == "TRL KTO"
    assert key_of(log, "kl") is None
    assert says(log, "kl").startswith("no KL of the policy to the reference, estimator KTO's baseline z0")
    assert any("No KL to the reference was logged: the column kl is KTO's baseline" in note for note in log.notes)


def test_a_unit_that_the_log_does_not_say_is_not_guessed(tmp_path):
    row = {"actor/pg_loss": 0.5, "actor/kl_loss": 0.25}
    log = read(tmp_path, row)
    assert key_of(log, "actor/kl_loss") is None
    assert "--column actor/kl_loss=kl/k3_per_token" in says(log, "actor/kl_loss")
    told = read(tmp_path, row, columns={"actor/kl_loss": "kl/k3_per_token"})
    assert told.steps[0].metrics == {"kl/k3_per_token": 0.25, "loss/policy": 0.5}
    assert says(told, "actor/kl_loss") == "k3 per token, nats per token; --column says so"


def test_two_columns_for_one_key_leave_the_second_out(tmp_path):
    log = read(tmp_path, {"critic/score/mean": 1.0, "rollout_corr/kl": -0.5, "rollout_corr/k3_kl": 0.25})
    assert log.steps[0].metrics["sampler/kl_per_token"] == 0.25
    assert says(log, "rollout_corr/kl").endswith("left out, for rollout_corr/k3_kl is kept as sampler/kl_per_token")


def test_a_kl_that_is_not_logged_is_said_to_be_absent(tmp_path):
    trainer_state(tmp_path, [{"step": 1, "reward": 1.0, "completions/mean_length": 9.0}], tag="grpo")
    (note,) = [note for note in read_log(tmp_path).notes if note.startswith("No KL")]
    assert "TRL computes it only for beta > 0" in note
    assert "KleashCallback" in note
    assert "`kleash gauge REFERENCE CHECKPOINT`" in note


def test_the_callbacks_exact_kl_is_taken(tmp_path):
    history = [
        {"step": 1, "loss": 0.5, "epoch": 1.0, "learning_rate": 1.0, "kleash/kl_to_start_nats_per_sequence": 2.5}
    ]
    trainer_state(tmp_path, history)
    log = read_log(tmp_path)
    assert log.steps[0].metrics["eval/kl/exact_per_sequence"] == 2.5
    assert not any(note.startswith("No KL") for note in log.notes)


def test_kleashs_own_mirror_keeps_its_names_and_errors(tmp_path):
    row = {"reward/proxy": 1.5, "reward/proxy.stderr": 0.25, "eval/kl/exact_per_token": 0.5, "note.beta": "fell"}
    log = read(tmp_path, row)
    assert log.source == "Kleash"
    assert log.steps[0].metrics == {"reward/proxy": 1.5, "eval/kl/exact_per_token": 0.5}
    assert log.steps[0].stderr == {"reward/proxy": 0.25}
    assert [column.name for column in log.columns] == ["reward/proxy", "eval/kl/exact_per_token"]


@pytest.mark.parametrize("row", mappings.ROWS, ids=lambda row: f"{row.trainers[0]}:{row.column}")
def test_a_row_says_of_its_key_what_the_catalogue_says(row):
    assert set(row.trainers) <= NAMES
    prefixes = {mappings.REFERENCE: ("kl/", "eval/kl/"), mappings.NEW_OLD: "update/", mappings.SAMPLER: "sampler/"}
    if row.key is None:
        return
    unit = lookup(row.key).unit
    if row.between:
        assert row.key.startswith(prefixes[row.between])
        assert row.estimator
        assert unit in (mappings.TOKEN, mappings.SEQUENCE)
    else:
        assert not row.key.startswith(("kl/", "update/", "sampler/kl"))
    if row.key.startswith("kl/") and row.estimator in ("k1", "k2", "k3", "exact"):
        assert row.key.startswith(f"kl/{row.estimator}_")


def test_every_trainer_has_rows_and_is_found_by_its_own_marks():
    for trainer in TRAINERS:
        assert any(trainer.name in row.trainers for row in mappings.ROWS), trainer.name
        marks = [trainer.prefix + mark.split("|")[0] for mark in trainer.marks]
        found = recognise(marks, trainer.tag, "the card")
        assert found.trainer.name == trainer.name
    assert trainer_names()[-1] == "Kleash"


@pytest.mark.parametrize(
    "row", [row for row in mappings.ROWS if row.between], ids=lambda row: f"{row.trainers[0]}:{row.column}"
)
def test_the_page_has_a_line_for_every_kl(row):
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    who = "any transformers trainer with KleashCallback" if len(row.trainers) > 5 else ", ".join(row.trainers)
    unit = row.unit or ("nats per token" if str(row.key).endswith("_per_token") else "nats per sequence")
    kept = ", ".join(filter(None, (f"`{row.key}`" if row.key else "left out", row.scale.says)))
    assert f"| {who} | `{row.column}` | {row.between} | {row.estimator} | {unit} | {kept} |\n" in page


def test_the_page_says_what_was_tried():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    _, _, tried = page.partition("## Tried on real runs\n")
    listed, _, others = tried.partition("For all others")
    for trainer in TRAINERS:
        assert (f"- {trainer.name}: release {trainer.tried}\n" in listed) == bool(trainer.tried)
        assert (f"- {trainer.name}\n" in others) == (not trainer.tried)
