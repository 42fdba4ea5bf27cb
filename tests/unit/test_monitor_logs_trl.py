"""TRL's output directories: those of real runs in tests/golden/trl, and broken ones."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from foreign_logs import trainer_state

from kleash.errors import DataError
from kleash.monitor.logs.reading import read_log

GOLDEN = Path(__file__).parents[1] / "golden" / "trl"
ON_POLICY = {"step": 1, "reward": 1.0, "completions/mean_length": 9.0, "kl": 0.5}


@pytest.mark.parametrize(
    ("name", "source", "key", "column", "first", "last"),
    [
        ("grpo_beta", "TRL GRPO", "kl/k3_per_token", "kl", 0.0, 0.1185423731803894),
        ("rloo", "TRL RLOO", "kl/k1_per_token", "kl", 0.0, 0.11224070191383362),
        ("online_dpo", "TRL online DPO", "kl/k1_per_sequence", "objective/kl", 0.0, 0.924),
        ("ppo", "TRL PPO", "kl/unstated_per_sequence", "objective/kl", 0.0, 0.1294),
        ("ppo", "TRL PPO", "update/kl_per_token", "policy/approxkl_avg", 0.143, 0.0371),
    ],
)
def test_a_real_runs_kl_has_its_quantity_and_unit(name, source, key, column, first, last):
    log = read_log(GOLDEN / name)
    assert log.source == source
    assert [step.step for step in log.steps] == [1, 2, 3, 4, 5, 6]
    values = [step.metrics[key] for step in log.steps]
    assert values[0] == pytest.approx(first, abs=5e-4)
    assert values[-1] == pytest.approx(last, abs=5e-4)
    assert next(c for c in log.columns if c.name == column).key == key
    assert not any("no log of a real run" in note for note in log.notes)


def test_a_real_run_without_a_kl_says_why():
    log = read_log(GOLDEN / "grpo_beta0")
    assert log.source == "TRL GRPO"
    assert not any(key.startswith("kl/") for step in log.steps for key in step.metrics)
    assert any("No KL to the reference was logged: TRL computes it only for beta > 0" in note for note in log.notes)
    assert log.settings["max_steps"] == 6
    assert log.steps[0].metrics["length/stop_rate"] == 0.0  # all completions were cut: clipped_ratio is 1


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_real_runs_on_given_text_have_log_ratios_and_no_kl(name):
    log = read_log(GOLDEN / name, beta=0.1)
    state = json.loads((GOLDEN / name / "checkpoint-6" / "trainer_state.json").read_text())
    assert not any(key.startswith("kl/") for step in log.steps for key in step.metrics)
    logged = state["log_history"][-1]
    assert log.steps[-1].metrics["preference/chosen_drift"] == pytest.approx(10 * logged["rewards/chosen"])
    assert log.steps[-1].metrics["preference/chosen_logprob"] == logged["logps/chosen"]


def test_real_completions_are_read_and_their_words_counted():
    log = read_log(GOLDEN / "grpo_completions")
    first = log.samples[0]
    assert first.prompt.startswith("We all thought that the")
    assert first.completion.split()
    assert first.rewards.keys() == {"reward"}
    with_text = [step.step for step in log.steps if "text/distinct_2" in step.metrics]
    assert with_text == sorted({sample.step for sample in log.samples})
    assert any("of words, counted here" in column.says for column in log.columns)


def test_the_checkpoint_that_got_furthest_is_read(tmp_path):
    trainer_state(tmp_path, [ON_POLICY], step=2, tag="grpo")
    trainer_state(tmp_path, [ON_POLICY, {**ON_POLICY, "step": 30}], step=10)
    log = read_log(tmp_path)
    assert [step.step for step in log.steps] == [1, 30]
    assert [checkpoint.step for checkpoint in log.checkpoints] == [2, 10]
    assert read_log(tmp_path / "checkpoint-2").source == "TRL GRPO"
    assert len(read_log(tmp_path / "checkpoint-2" / "trainer_state.json").steps) == 1


def test_a_torn_state_gives_way_to_the_one_before(tmp_path):
    whole = trainer_state(tmp_path, [ON_POLICY], step=2)
    torn = trainer_state(tmp_path, [ON_POLICY], step=10)
    torn.write_text(torn.read_text()[:-9])
    log = read_log(tmp_path)
    assert len(log.steps) == 1
    assert any(f"{torn} is not whole JSON" in note and "An older one is read" in note for note in log.notes)
    shutil.rmtree(whole.parent)
    with pytest.raises(DataError, match="it is still being written, or was cut off"):
        read_log(tmp_path)


def test_a_state_without_a_history_is_refused(tmp_path):
    path = trainer_state(tmp_path, [])
    path.write_text(json.dumps({"global_step": 3}))
    with pytest.raises(DataError, match="has no list log_history, so it is no trainer's state"):
        read_log(path)
    path.write_text(json.dumps({"log_history": [3]}))
    with pytest.raises(DataError, match=r"log_history\[0\] is a int, not an object of named numbers"):
        read_log(path)


def test_a_step_logged_twice_keeps_the_last_value(tmp_path):
    history = [ON_POLICY, {**ON_POLICY, "kl": 0.75}, {"step": 1, "eval_reward": 2.0}]
    trainer_state(tmp_path, history, tag="grpo")
    log = read_log(tmp_path)
    assert log.steps[0].metrics["kl/k3_per_token"] == 0.75
    assert log.steps[0].metrics["eval/reward/proxy"] == 2.0
    (note,) = [note for note in log.notes if "more than once" in note]
    assert note.startswith("1 step is in the log more than once with different values, the first is step 1 (kl)")


def test_what_trl_could_not_average_is_left_out_and_nan_is_kept(tmp_path):
    trainer_state(tmp_path, [{**ON_POLICY, "reward": None, "grad_norm": float("nan")}], tag="grpo")
    metrics = read_log(tmp_path).steps[0].metrics
    assert "reward/proxy" not in metrics
    assert metrics["optim/grad_norm"] != metrics["optim/grad_norm"]


def test_torn_completions_cost_no_number(tmp_path):
    trainer_state(tmp_path, [ON_POLICY])
    (tmp_path / "completions").mkdir()
    whole = sorted((GOLDEN / "grpo_completions" / "completions").glob("*.parquet"))[0]
    (tmp_path / "completions" / "completions_00001.parquet").write_bytes(whole.read_bytes()[:-40])
    log = read_log(tmp_path)
    assert log.steps[0].metrics["kl/unstated_per_token"] == 0.5
    assert log.samples == []
    assert any("completions_00001.parquet cannot be read" in note and "torn or not TRL's" in note for note in log.notes)


def test_completions_without_pyarrow_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    log = read_log(GOLDEN / "grpo_completions")
    assert log.samples == []
    assert any("pip install 'kleash[data]'" in note for note in log.notes)
    assert len(log.steps) == 6


def test_conversations_become_text(tmp_path):
    import pyarrow
    import pyarrow.parquet

    trainer_state(tmp_path, [ON_POLICY])
    (tmp_path / "completions").mkdir()
    messages = [[{"role": "user", "content": "Hi"}]]
    table = pyarrow.table(
        {"step": [1], "prompt": messages, "completion": ["a b a b"], "reward": [0.5], "advantage": [9.0]}
    )
    pyarrow.parquet.write_table(table, tmp_path / "completions" / "completions_00001.parquet")
    log = read_log(tmp_path)
    (sample,) = log.samples
    assert (sample.step, sample.prompt, sample.completion) == (1, "user: Hi", "a b a b")
    assert sample.rewards == {"reward": 0.5}
    assert log.steps[0].metrics["text/distinct_2"] == pytest.approx(2 / 3)  # ab, ba, ab
    assert log.steps[0].metrics["text/repeated_4gram"] == 0.0


def test_a_run_of_the_callback_inside_is_pointed_at(tmp_path):
    trainer_state(tmp_path, [ON_POLICY])
    (tmp_path / "kleash").mkdir()
    (tmp_path / "kleash" / "run.db").write_bytes(b"")
    assert any(f"`kleash audit {tmp_path / 'kleash'}`" in note for note in read_log(tmp_path).notes)
