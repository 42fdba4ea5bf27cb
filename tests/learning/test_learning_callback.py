"""The callback inside TRL's own trainers, on the tiny model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from alarm_rules import Alarm, only
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import SaveStrategy

from kleash.errors import ConfigError
from kleash.integrations import KleashCallback
from kleash.runs.reader import RunReader

trl = pytest.importorskip("trl", reason="TRL is in the extra `bench`")
datasets = pytest.importorskip("datasets", reason="datasets is in the extras `bench` and `data`")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

SEQUENCE = "kleash/kl_to_start_nats_per_sequence"
HELD_OUT = [f"held-out prompt {i} asks" for i in range(4)]
ROWS = [
    {"prompt": f"prompt number {i} says", "chosen": f" {i} vowels: aeiou", "rejected": f" {i} others: xyz"}
    for i in range(8)
]


def letters(completions, **columns):
    return [sum(letter.isalpha() for letter in text) / max(1, len(text)) for text in completions]


def grpo(settings, **given):
    config = trl.GRPOConfig(
        **settings, per_device_train_batch_size=4, num_generations=4, max_completion_length=8, beta=0.0
    )
    rows = datasets.Dataset.from_list([{"prompt": row["prompt"]} for row in ROWS])
    return trl.GRPOTrainer(args=config, reward_funcs=letters, train_dataset=rows, **given)


def dpo(settings, **given):
    config = trl.DPOConfig(**settings, per_device_train_batch_size=2)
    return trl.DPOTrainer(args=config, train_dataset=datasets.Dataset.from_list(ROWS), **given)


def sft(settings, **given):
    config = trl.SFTConfig(**settings, per_device_train_batch_size=2)
    rows = datasets.Dataset.from_list([{"prompt": row["prompt"], "completion": row["chosen"]} for row in ROWS])
    return trl.SFTTrainer(args=config, train_dataset=rows, **given)


def grpo_with_a_leash(settings, **given):
    config = trl.GRPOConfig(
        **settings, per_device_train_batch_size=4, num_generations=4, max_completion_length=8, beta=0.05
    )
    rows = datasets.Dataset.from_list([{"prompt": row["prompt"]} for row in ROWS])
    return trl.GRPOTrainer(args=config, reward_funcs=letters, train_dataset=rows, **given)


def rloo(settings, **given):
    config = trl.RLOOConfig(
        **settings, per_device_train_batch_size=4, num_generations=4, max_completion_length=8, beta=0.05
    )
    rows = datasets.Dataset.from_list([{"prompt": row["prompt"]} for row in ROWS])
    return trl.RLOOTrainer(args=config, reward_funcs=letters, train_dataset=rows, **given)


def made(make, folder, tiny_model_dir, lora, *callbacks):
    settings = {
        "output_dir": str(folder),
        "max_steps": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "dataloader_pin_memory": False,
    }
    return make(
        settings,
        model=AutoModelForCausalLM.from_pretrained(tiny_model_dir),
        processing_class=AutoTokenizer.from_pretrained(tiny_model_dir),
        peft_config=LoraConfig(r=4, task_type="CAUSAL_LM") if lora else None,
        callbacks=list(callbacks),
    )


def train(make, folder, tiny_model_dir, lora, *callbacks):
    trainer = made(make, folder, tiny_model_dir, lora, *callbacks)
    trainer.train()
    return trainer


def logged(trainer, key):
    return {record["step"]: record[key] for record in trainer.state.log_history if key in record}


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
@pytest.mark.parametrize("make", [grpo, dpo, sft])
def test_a_trl_trainer_logs_its_drift_and_learns_what_it_would_have_learnt(tmp_path, tiny_model_dir, make, lora):
    measured = KleashCallback(HELD_OUT, every=2, max_length=8)
    trainer = train(make, tmp_path / "with", tiny_model_dir, lora, measured)
    values = logged(trainer, SEQUENCE)
    assert list(values) == [0, 2, 4]
    assert values[0] == 0.0 < values[2]
    with RunReader(measured.run_dir) as run:
        assert run.status == "finished"
        assert {step: value for step, value, _ in run.series("eval/kl/exact_per_sequence")} == values
        assert ("adapter off" in run.meta["reference"]) == lora
    assert (measured.run_dir / "report.html").is_file()
    without = train(make, tmp_path / "without", tiny_model_dir, lora)
    assert logged(trainer, "loss") == logged(without, "loss")
    assert logged(trainer, "grad_norm") == logged(without, "grad_norm")


@pytest.mark.parametrize("make", [grpo, dpo, sft])
def test_a_trl_trainer_stops_above_the_limit(tmp_path, tiny_model_dir, make):
    measured = KleashCallback(HELD_OUT, every=1, max_length=8, stop_above=1e-9)
    trainer = train(make, tmp_path, tiny_model_dir, True, measured)
    assert trainer.state.global_step < 4
    with RunReader(measured.run_dir) as run:
        assert run.status == "stopped"


@pytest.mark.parametrize("make", [grpo, dpo, sft])
def test_a_trl_trainer_stops_at_an_alarm(tmp_path, tiny_model_dir, monkeypatch, make):
    only(monkeypatch, Alarm(lambda step: step >= 2))
    measured = KleashCallback(HELD_OUT, every=2, max_length=8, ladder=["stop"])
    trainer = train(make, tmp_path, tiny_model_dir, True, measured)
    assert trainer.state.global_step == 2
    with RunReader(measured.run_dir) as run:
        assert run.status == "stopped"
        assert "test/alarm is critical since step 2" in run.status_reason


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
@pytest.mark.parametrize("make", [grpo_with_a_leash, rloo])
def test_an_alarm_divides_the_trainers_beta_and_the_training_feels_it(
    tmp_path, tiny_model_dir, monkeypatch, make, lora
):
    """Alarms from step 1 on, two steps of patience: beta is divided after steps 1 and 3."""
    losses = []
    for ladder in ([], ["tighten", "tighten"]):
        only(monkeypatch, Alarm(lambda step: step >= 1))
        measured = KleashCallback(HELD_OUT, every=4, max_length=8, ladder=ladder, patience=2, tighten_by=0.01)
        trainer = made(make, tmp_path / str(len(ladder)), tiny_model_dir, lora)
        measured.attach(trainer)
        trainer.train()
        losses.append(logged(trainer, "grad_norm"))
        with RunReader(measured.run_dir) as run:
            prices = {step: beta for step, beta, _ in run.series("control/beta")}
            moved = [event for event in run.events() if event.name == "action/tighten"]
    assert prices == pytest.approx({1: 0.05, 2: 5.0, 3: 5.0, 4: 500.0})
    assert trainer.beta == pytest.approx(500.0)
    assert [(event.step, event.values["before"], event.values["after"]) for event in moved] == [
        (1, 0.05, pytest.approx(5.0)),
        (3, pytest.approx(5.0), pytest.approx(500.0)),
    ]
    assert "beta from 0.05 to 5: test/alarm is critical since step 1; rung 1 of 2." in moved[0].message
    assert losses[0][1] == losses[1][1]
    assert losses[0][2] != losses[1][2]


def test_a_resumed_training_goes_on_with_the_beta_that_the_alarms_left(tmp_path, tiny_model_dir, monkeypatch):
    ladder = {"ladder": ["tighten", "tighten"], "patience": 4, "tighten_by": 0.5, "every": 2, "max_length": 8}

    def trainer_with(**given):
        only(monkeypatch, Alarm(lambda step: step >= 1))
        measured, trainer = KleashCallback(HELD_OUT, **ladder, **given), made(rloo, tmp_path, tiny_model_dir, True)
        trainer.args.save_strategy, trainer.args.save_steps = SaveStrategy.STEPS, 2
        measured.attach(trainer)
        return trainer

    trainer_with().train()
    resumed = trainer_with(run_dir=tmp_path / "kleash")
    assert resumed.beta == 0.05
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    with RunReader(tmp_path / "kleash") as run:
        assert {step: beta for step, beta, _ in run.series("control/beta")} == {1: 0.05, 2: 0.1, 3: 0.1, 4: 0.1}
        assert [event.step for event in run.events() if event.name == "action/tighten"] == [1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (grpo, "GRPOTrainer has beta = 0: TRL then loads no reference model"),
        (dpo, "DPOTrainer has no beta that is the price of drift alone"),
    ],
)
def test_tightening_what_has_no_leash_is_refused(tmp_path, tiny_model_dir, make, words):
    trainer = made(make, tmp_path, tiny_model_dir, True)
    with pytest.raises(ConfigError, match=words):
        KleashCallback(HELD_OUT, ladder=["tighten"]).attach(trainer)


def test_the_trainers_own_numbers_are_in_the_run_under_the_catalogues_names(tmp_path, tiny_model_dir):
    measured = KleashCallback(HELD_OUT, every=2, max_length=8)
    trainer = train(grpo_with_a_leash, tmp_path, tiny_model_dir, True, measured)
    with RunReader(measured.run_dir) as run:
        for key, column in (
            ("kl/k3_per_token", "kl"),
            ("reward/proxy", "reward"),
            ("length/mean", "completions/mean_length"),
        ):
            assert {step: value for step, value, _ in run.series(key)} == logged(trainer, column), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ladder", "ended"),
    [(["tighten", "tighten"], {"beta": 0.2, "step": 4}), (["tighten", "stop"], {"beta": 0.1, "step": 3})],
)
def test_two_processes_act_alike(tmp_path, tiny_model_dir, ladder, ended):
    worker = Path(__file__).parents[1] / "support" / "trl_process.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(worker)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    command = [*launch, str(tiny_model_dir), str(tmp_path), *ladder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in (0, 1)] == [ended, ended]
    with RunReader(tmp_path / "kleash") as run:
        assert [event.name for event in run.events()][2:] == [f"action/{rung}" for rung in ladder]
