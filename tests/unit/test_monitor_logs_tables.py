"""CSV, JSON Lines, W&B histories and TensorBoard event files; what is wrong with one is said with its place."""

import json
import math
import os
import sys

import pytest
from foreign_logs import event_file, json_lines

from kleash.errors import DataError
from kleash.monitor.logs.reading import read_log

VERL = {"critic/score/mean": 0.5, "actor/grad_norm": 1.0}


def test_verls_nested_lines(tmp_path):
    path = json_lines(tmp_path / "exp.jsonl", [{"step": 1, "data": VERL}, {"step": 2, "data": VERL}])
    log = read_log(path)
    assert log.source == "verl"
    assert [step.metrics["reward/proxy"] for step in log.steps] == [0.5, 0.5]


def test_lines_of_one_step_come_together(tmp_path):
    rows = [
        {"step": 2, "reward/all/mean": 1.0},
        {"step": 1, "mismatch_kl/all/mean": 0.5},
        {"step": 2, "loss/mean": 3.0},
    ]
    log = read_log(json_lines(tmp_path / "metrics.jsonl", rows))
    assert [(step.step, dict(step.metrics)) for step in log.steps] == [
        (1, {"sampler/kl_per_token": 0.5}),
        (2, {"reward/proxy": 1.0, "loss/total": 3.0}),
    ]
    assert not any("more than once" in note for note in log.notes)


def test_a_wandb_history_counts_updates_and_not_calls(tmp_path):
    rows = [
        {"_step": 10, "_runtime": 3.5, "train/global_step": 1, "train/reward": 0.5, "train/completions/mean_length": 9},
        {"_step": 11, "train/global_step": 1, "eval/reward": 0.75},
        {"_step": 12, "train/reward": 0.5},
    ]
    log = read_log(json_lines(tmp_path / "history.jsonl", rows))
    assert log.notes[0].startswith("A W&B history as JSON Lines with the step in train/global_step")
    assert [(step.step, dict(step.metrics)) for step in log.steps] == [
        (1, {"reward/proxy": 0.5, "length/mean": 9.0, "eval/reward/proxy": 0.75})
    ]
    assert f"1 lines without train/global_step were skipped, the first is {tmp_path / 'history.jsonl'}:3." in log.notes


def test_a_wandb_chart_is_read_without_its_bounds(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text(
        '"Step","brave-sky-1 - objective/kl","brave-sky-1 - objective/kl__MIN","brave-sky-1 - objective/kl__MAX"\n'
        '"5","2.5","1.0","4.0"\n'
    )
    log = read_log(path, columns={"objective/kl": "kl/k1_per_sequence"})
    assert log.notes[0].startswith("A chart exported from W&B as CSV")
    assert [(step.step, dict(step.metrics)) for step in log.steps] == [(5, {"kl/k1_per_sequence": 2.5})]


def test_a_wandb_chart_of_several_runs_is_refused(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text("Step,a - kl,b - kl\n1,2,3\n")
    with pytest.raises(DataError, match=r"a W&B chart of 2 runs: a, b\. A log is of one run"):
        read_log(path)


def test_a_csv_with_a_column_map(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("iter;x,r,drift\n1,0.5,inf\n2,,nan\n")
    log = read_log(path, columns={"iter;x": "step", "r": "reward/proxy", "drift": "kl/exact_per_token"})
    assert log.source == "unknown trainer"
    first, second = (step.metrics for step in log.steps)
    assert first == {"reward/proxy": 0.5, "kl/exact_per_token": math.inf}
    assert second.keys() == {"kl/exact_per_token"}
    assert math.isnan(second["kl/exact_per_token"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"r": "reward/proxi"}, r"'reward/proxi' is no key of the catalogue\. Did you mean 'reward/proxy'\?"),
        ({"rr": "reward/proxy"}, r"has no column 'rr' with numbers\. Did you mean 'r'\?"),
        ({"stp": "step"}, r"has no column 'stp'\. Did you mean 'step'\?"),
        ({"r": "reward/proxy", "s": "reward/proxy"}, "r and s are both given as reward/proxy"),
        ({}, r"has no column that is known: r, s\. Say who wrote it, .* or which column is what"),
    ],
)
def test_a_column_map_that_cannot_be(tmp_path, columns, message):
    path = tmp_path / "mine.csv"
    path.write_text("step,r,s\n1,0.5,0.5\n")
    with pytest.raises(DataError, match=message):
        read_log(path, columns=columns)


def test_a_table_without_a_step(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("epoch,reward/proxy\n1,0.5\n")
    with pytest.raises(
        DataError, match=r"has no column with the step: looked for .*found epoch, reward/proxy\. Name it"
    ):
        read_log(path)
    json_lines(tmp_path / "mine.jsonl", [{"step": 1.5, "reward/proxy": 0.5}])
    with pytest.raises(DataError, match=r"mine\.jsonl:1: step is 1\.5, which is no step"):
        read_log(tmp_path / "mine.jsonl")


def test_a_last_line_that_is_cut_off_costs_only_itself(tmp_path):
    path = json_lines(tmp_path / "metrics.jsonl", [{"step": 1, **VERL}], end='\n{"step": 2, "critic/sc')
    log = read_log(path)
    assert [step.step for step in log.steps] == [1]
    assert (
        f"The last line, {path}:2, is cut off: the run was killed or is still writing. The rest is read." in log.notes
    )
    table = tmp_path / "metrics.csv"
    table.write_text("step,reward/proxy,kl/k1_per_token\n1,0.5,2\n2,0.")
    log = read_log(table)
    assert [step.step for step in log.steps] == [1]
    assert any(f"The last row, {table}:3, is cut off" in note for note in log.notes)


def test_a_last_character_that_is_cut_in_its_middle_costs_only_its_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes('{"step": 1, "reward/proxy": 1.0}\n{"step": 2, "note.beta": "±"}'.encode()[:-3])
    log = read_log(path)
    assert [step.step for step in log.steps] == [1]
    assert any(f"The last line, {path}:2, is cut off" in note for note in log.notes)


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "kl\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is not valid JSON: .*Mend or delete the line"):
        read_log(path)
    path.write_text('{"step": 1}\n[3]\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 holds a list, not an object of named numbers"):
        read_log(path)
    table = tmp_path / "metrics.csv"
    table.write_text("step,reward/proxy\n1,0.5,7\n")
    with pytest.raises(DataError, match=r"metrics\.csv:2 has more fields than the 2 of the header"):
        read_log(table)


def test_the_name_of_a_wandb_run_may_hold_the_divider(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text(
        '"Step","my - run - train/reward","my - run - train/reward__MIN","my - run - train/loss"\n1,2,1,3\n'
    )
    log = read_log(path, trainer="TRL GRPO")
    assert [dict(step.metrics) for step in log.steps] == [{"reward/proxy": 2.0, "loss/total": 3.0}]


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_that_no_float_holds_is_said_with_its_place(tmp_path, digits):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "reward/proxy": 2}\n{"step": 2, "reward/proxy": 1' + "0" * digits + "}\n")
    with pytest.raises(
        DataError, match=rf"log\.jsonl:2 has an integer of {digits + 1} digits, 100000000000\.\.\., which"
    ):
        read_log(path)
    state = tmp_path / "trainer_state.json"
    state.write_text('{"log_history": [{"step": 1, "reward": -1' + "0" * digits + "}]}")
    with pytest.raises(DataError, match=rf"trainer_state\.json has an integer of {digits + 2} digits"):
        read_log(state)


@pytest.mark.parametrize("value", ["1e300", "9007199254740994", '"nan"'])
def test_a_step_that_is_no_count_is_refused(tmp_path, value):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": ' + value + ', "reward/proxy": 1}\n')
    with pytest.raises(DataError, match=r"log\.jsonl:1: step is .*: steps are whole numbers up to 9007199254740992"):
        read_log(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_json_without_a_bottom_is_said_so(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=r"log\.jsonl.* is nested too deeply to be read: it begins with"):
        read_log(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", "step,kl,kl\n1,1,2\n", r"log\.csv:1 names 'kl' twice in its header"),
        ("log.jsonl", '{"step": 1, "kl": 1, "kl": 2}\n', r"log\.jsonl:1 has 'kl' twice in one object"),
    ],
)
def test_a_name_that_is_there_twice_is_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_log(path)


def test_columns_without_a_name_may_be_many(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,reward/proxy,,\n1,0.5,,\n")
    assert read_log(path).steps[0].metrics == {"reward/proxy": 0.5}


def test_numbers_in_any_spelling(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(
        json.dumps([{"step": "1", "reward/proxy": "nan", "kl/k1_per_token": math.inf, "x": True, "y": "a"}])
    )
    metrics = read_log(path).steps[0].metrics
    assert math.isnan(metrics["reward/proxy"])
    assert metrics["kl/k1_per_token"] == math.inf
    assert len(metrics) == 2


def test_trl_through_tensorboard_tells_its_kind_and_beta(tmp_path):
    scalars = {
        "train/reward": {1: 0.5, 2: 0.25},
        "train/kl": {2: 0.125},
        "train/completions/mean_length": {1: 9.0},
        "eval/reward": {2: 4.0},
    }
    arguments = {"beta": 0.25, "num_generations": 4, "normalize_advantages": False, "max_steps": 30}
    event_file(tmp_path / "runs" / "host", scalars, arguments)
    log = read_log(tmp_path)
    assert log.source == "TRL RLOO"
    assert log.settings == {"beta": 0.25, "max_steps": 30}
    assert [(step.step, dict(step.metrics)) for step in log.steps] == [
        (1, {"reward/proxy": 0.5, "length/mean": 9.0}),
        (2, {"reward/proxy": 0.25, "kl/k1_per_token": 0.125, "eval/reward/proxy": 4.0}),
    ]


@pytest.mark.parametrize(
    ("estimator", "key"),
    [("k1", "kl/k1_per_sequence"), ("k3", "kl/k3_per_sequence"), (None, "kl/unstated_per_sequence")],
)
def test_ppos_estimator_is_the_one_of_its_settings(tmp_path, estimator, key):
    scalars = {"objective/kl": {1: 0.5}, "objective/rlhf_reward": {1: 0.25}}
    arguments = {"beta": None, "kl_estimator": estimator, "loss_type": "any", "max_steps": 30}
    event_file(tmp_path, scalars, arguments)
    log = read_log(tmp_path)
    assert log.source == "TRL PPO"
    assert log.steps[0].metrics[key] == 0.5
    (column,) = [column for column in log.columns if column.name == "objective/kl"]
    assert ("the setting kl_estimator of the log" in column.says) == (estimator is not None)
    assert "loss_type" not in log.settings


def test_event_files_without_a_scalar_and_torn_ones(tmp_path):
    path = event_file(tmp_path, {"train/policy_loss": {1: 1.0}, "train/ppo_kl": {1: 0.5, 2: 0.25}})
    path.write_bytes(path.read_bytes()[:-5])
    assert [dict(step.metrics) for step in read_log(path).steps] == [{"loss/policy": 1.0, "update/kl_per_token": 0.5}]
    path.write_bytes(b"")
    with pytest.raises(DataError, match="holds no scalar: its event file is empty, torn at its start"):
        read_log(path)
    path.write_bytes(b"\x89garbage" * 90)
    with pytest.raises(DataError, match="holds no scalar"):
        read_log(path)


def test_the_newest_of_several_event_folders_is_read(tmp_path):
    old = event_file(tmp_path / "a", {"critic/score/mean": {1: 1.0}})
    event_file(tmp_path / "b", {"critic/score/mean": {1: 2.0}})
    os.utime(old, (0, 0))
    log = read_log(tmp_path)
    assert log.steps[0].metrics["reward/proxy"] == 2.0
    assert f"Newest of 2 folders with event files; left aside: {tmp_path / 'a'}." in log.notes


def test_event_files_need_their_package(tmp_path, monkeypatch):
    path = event_file(tmp_path, {"train/kl": {1: 0.5}})
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="tensorboard"):
        read_log(path)
