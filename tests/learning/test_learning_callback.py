"""The callback inside TRL's own trainers, on the tiny model."""

import pytest
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

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


def train(make, folder, tiny_model_dir, lora, *callbacks):
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
    trainer = make(
        settings,
        model=AutoModelForCausalLM.from_pretrained(tiny_model_dir),
        processing_class=AutoTokenizer.from_pretrained(tiny_model_dir),
        peft_config=LoraConfig(r=4, task_type="CAUSAL_LM") if lora else None,
        callbacks=list(callbacks),
    )
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
