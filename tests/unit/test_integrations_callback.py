import copy
import json
import logging
import math
import sqlite3
import sys

import numpy as np
import pytest
import torch
from alarm_rules import Alarm, only
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from kleash.errors import ConfigError, DataError, ModelError, RunDirError, RunStopped
from kleash.integrations import KleashCallback
from kleash.integrations.measurement import DecodingSampler, ratio_stderr, undisturbed
from kleash.integrations.starting import policy_of, starting_model
from kleash.metrics import lookup
from kleash.runs.reader import RunReader


@pytest.fixture(autouse=True)
def no_rules(monkeypatch):
    """What the rules find is their tests' business: here a test brings its own."""
    only(monkeypatch)


PROMPTS = ["the first prompt", "a second", "and one that is longer than the others"]
SEQUENCE = "kleash/kl_to_start_nats_per_sequence"
TOKEN = "kleash/kl_to_start_nats_per_token"


def load(folder, **config):
    return AutoModelForCausalLM.from_pretrained(folder, **config), AutoTokenizer.from_pretrained(folder)


def with_lora(model, **settings):
    defaults = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1}
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **defaults | settings))


def move(model, scale=0.3):
    """Add noise to what is trained, so that an adapter is no longer fresh."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def trainer_of(model, tokenizer, folder, *callbacks, **overrides):
    settings = {
        "max_steps": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    ids = [tokenizer(f"text number {i} ").input_ids for i in range(8)]
    data = [{"input_ids": row, "labels": row} for row in ids]
    return Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **settings | overrides),
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )


def callback(**settings):
    return KleashCallback(PROMPTS, **{"every": 2, "max_length": 8} | settings)


def trained(folder, tiny_model_dir, measured, lora=None, **overrides):
    model, tokenizer = load(tiny_model_dir)
    model = model if lora is None else with_lora(model, **lora)
    trainer = trainer_of(model, tokenizer, folder, measured, **overrides)
    trainer.train()
    return trainer


def logged(trainer, key):
    return {record["step"]: record[key] for record in trainer.state.log_history if key in record}


@pytest.mark.parametrize("lora", [None, {}], ids=["full", "lora"])
def test_the_kl_is_in_the_trainers_own_logs_and_starts_at_exactly_zero(tmp_path, tiny_model_dir, lora):
    trainer = trained(tmp_path, tiny_model_dir, callback(), lora)
    for key in (SEQUENCE, TOKEN):
        values = logged(trainer, key)
        assert list(values) == [0, 2, 4]
        assert values[0] == 0.0
        assert values[2] > 0.0 < values[4]
    errors = logged(trainer, SEQUENCE + "_stderr")
    assert errors[0] == 0.0 < errors[4]
    assert len(logged(trainer, "loss")) == 4


def test_the_last_step_is_measured_though_it_is_no_multiple(tmp_path, tiny_model_dir):
    trainer = trained(tmp_path, tiny_model_dir, callback(every=3), max_steps=5, logging_steps=100)
    assert list(logged(trainer, SEQUENCE)) == [0, 3, 5]
    assert list(logged(trainer, "loss")) == [3, 5]


@pytest.mark.parametrize("start", ["full", "fresh", "continued"])
def test_the_kl_is_that_of_two_separate_models_in_float64(tmp_path, tiny_model_dir, monkeypatch, start):
    model, tokenizer = load(tiny_model_dir)
    if start != "full":
        model = with_lora(model)
    if start == "continued":
        move(model)
    before = copy.deepcopy(model).double().eval()
    drawn, sample = [], DecodingSampler.sample

    def remember(self, prompts, **settings):
        completions = sample(self, prompts, **settings)
        drawn[:] = [(list(p), list(c.token_ids)) for p, c in zip(prompts, completions, strict=True)]
        return completions

    monkeypatch.setattr(DecodingSampler, "sample", remember)
    trainer = trainer_of(model, tokenizer, tmp_path, callback(temperature=0.7))
    trainer.train()
    after = copy.deepcopy(model).double().eval()
    sums, tokens = [], 0
    for prompt, reply in drawn:
        with torch.no_grad():
            ids = torch.tensor([prompt + reply])
            p, q = ((m(input_ids=ids).logits[0, len(prompt) - 1 : -1] / 0.7).log_softmax(-1) for m in (after, before))
        sums.append(float((p.exp() * (p - q)).sum()))
        tokens += len(reply)
    assert logged(trainer, SEQUENCE)[4] == pytest.approx(np.mean(sums), rel=1e-4)
    assert logged(trainer, TOKEN)[4] == pytest.approx(sum(sums) / tokens, rel=1e-4)
    assert logged(trainer, SEQUENCE + "_stderr")[4] == pytest.approx(np.std(sums, ddof=1) / math.sqrt(3), rel=1e-4)


@pytest.mark.parametrize("lora", [None, {}, {"bias": "all"}], ids=["full", "lora", "lora and biases"])
def test_training_is_the_same_with_and_without_the_callback(tmp_path, tiny_model_dir, lora):
    """Dropout draws from the global generator, so that one number more or less would change the losses."""
    losses, weights = [], []
    for measured in ([], [callback(every=1)]):
        model, tokenizer = load(tiny_model_dir, attention_dropout=0.1)
        torch.manual_seed(3)
        model = model if lora is None else with_lora(model, **lora)
        trainer = trainer_of(model, tokenizer, tmp_path, *measured)
        trainer.train()
        losses.append(logged(trainer, "loss"))
        weights.append(model.state_dict())
    assert losses[0] == losses[1]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_the_model_and_the_random_numbers_are_left_as_they_were(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    model = with_lora(model)
    model.train()
    model.get_base_model().model.layers[0].eval()
    frozen = next(p for name, p in model.named_parameters() if "lora_A" in name)
    frozen.requires_grad_(False)
    modes = {name: module.training for name, module in model.named_modules()}
    trainable = {name: p.requires_grad for name, p in model.named_parameters()}
    policy, state = policy_of(model, tokenizer), torch.get_rng_state()

    def interrupted():
        with undisturbed(policy), model.disable_adapter():
            torch.rand(3)
            assert not any(module.training for module in policy.causal_lm.modules())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert {name: p.requires_grad for name, p in model.named_parameters()} == trainable
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("lora", "moved", "words"),
    [
        (None, False, "a frozen copy of the trained weights"),
        ({}, False, "with the adapter off (no second copy of the weights)"),
        ({}, True, "a frozen copy of the trained weights"),
        ({"bias": "all"}, False, "a frozen copy of the trained weights"),
        ({"modules_to_save": ["lm_head"]}, False, "a frozen copy of the trained weights"),
    ],
    ids=["full", "fresh", "continued", "biases trained", "output layer trained"],
)
def test_the_start_is_the_adapter_off_only_where_that_is_the_start(tmp_path, tiny_model_dir, lora, moved, words, dtype):
    model, tokenizer = load(tiny_model_dir, dtype=dtype, tie_word_embeddings=False)
    model = model if lora is None else with_lora(model, **lora)
    if moved:
        move(model)
    measured = callback(every=4)
    trainer = trainer_of(model, tokenizer, tmp_path, measured)
    trainer.train()
    with RunReader(measured.run_dir) as run:
        assert words in run.meta["reference"]
        assert words in run.events()[0].message
    values = logged(trainer, SEQUENCE)
    assert values[0] == 0.0 < values[4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_that_rounds_differently_when_it_is_off_still_starts_at_zero(tmp_path, tiny_model_dir, dtype):
    model, tokenizer = load(tiny_model_dir, dtype=dtype)
    trainer = trainer_of(with_lora(model, use_dora=True), tokenizer, tmp_path, callback(every=4))
    trainer.train()
    values = logged(trainer, SEQUENCE)
    assert values[0] == 0.0 < values[4]


def test_the_frozen_copy_takes_as_much_as_what_is_trained(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    reference = starting_model(policy_of(model, tokenizer), [[1, 2, 3]])
    assert reference.extra_bytes == 4 * sum(p.numel() for p in model.parameters())
    before = reference.fingerprint()
    move(model)
    assert reference.fingerprint() == before


def test_a_base_weight_that_is_trained_beside_a_fresh_adapter_is_part_of_the_start(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    model = with_lora(model)
    model.get_base_model().model.norm.weight.requires_grad_(True)
    reference = starting_model(policy_of(model, tokenizer), [[1, 2, 3]])
    assert "a frozen copy" in reference.description
    assert reference.extra_bytes == 4 * sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_the_run_directory_holds_every_measurement_and_a_report(tmp_path, tiny_model_dir):
    measured = callback(samples=2)
    trainer = trained(tmp_path / "out", tiny_model_dir, measured)
    assert measured.run_dir == tmp_path / "out" / "kleash"
    with RunReader(measured.run_dir) as run:
        assert run.status == "finished"
        assert [step.step for step in run.steps()] == [0, 1, 2, 3, 4]
        assert {step: value for step, value, _ in run.series("optim/grad_norm")} == logged(trainer, "grad_norm")
        assert {point[0]: point[1] for point in run.series("eval/kl/exact_per_sequence")} == logged(trainer, SEQUENCE)
        assert all(lookup(key) for step in run.steps() for key in step.metrics)
        assert not [key for step in run.steps() for key in step.metrics if "reward" in key]
        places = {split: [s.step for s in run.samples(split)] for split in ("before", "eval", "after")}
        assert places == {"before": [0] * 6, "eval": [2] * 6 + [4] * 6, "after": [4] * 6}
        replies = run.samples("after")
        assert [(s.prompt_index, s.sample_index) for s in replies] == [(p, s) for p in range(3) for s in range(2)]
        assert {s.prompt for s in replies} == set(PROMPTS)
        assert all(s.kl == pytest.approx(sum(s.token_kl)) and len(s.token_kl) <= 8 for s in replies)
        assert np.mean([s.kl for s in replies]) == pytest.approx(logged(trainer, SEQUENCE)[4])
        assert run.config["callback"]["samples"] == 2
        assert run.config["trainer"]["learning_rate"] == 1e-2
        assert len(run.meta["reference_fingerprint"]) == 64
    assert "finished" in (measured.run_dir / "report.html").read_text(encoding="utf-8")


def test_a_second_training_in_the_same_folder_gets_a_run_of_its_own(tmp_path, tiny_model_dir):
    names = []
    for _ in range(3):
        measured = callback()
        trained(tmp_path, tiny_model_dir, measured, max_steps=1)
        names.append(measured.run_dir.name)
    assert names == ["kleash", "kleash-2", "kleash-3"]


def test_the_same_callback_serves_a_second_training(tmp_path, tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    measured = callback()
    trainer = trainer_of(model, tokenizer, tmp_path, measured, max_steps=1)
    names = []
    for _ in range(2):
        trainer.train()
        names.append(measured.run_dir)
    assert names == [tmp_path / "kleash", tmp_path / "kleash-2"]
    assert [RunReader(path).status for path in names] == ["finished", "finished"]


def test_a_second_training_of_one_callback_does_not_take_the_run_that_was_named(tmp_path, tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    trainer = trainer_of(model, tokenizer, tmp_path, callback(run_dir=tmp_path / "run"), max_steps=1)
    trainer.train()
    with pytest.raises(RunDirError, match=r"run exists: run_dir names it"):
        trainer.train()


def test_the_same_callback_goes_on_with_its_run(tmp_path, tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    measured = callback()
    trainer = trainer_of(with_lora(model), tokenizer, tmp_path, measured, save_strategy="steps", save_steps=2)
    trainer.train()
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert measured.run_dir == tmp_path / "kleash"
    with RunReader(measured.run_dir) as run:
        assert [step.step for step in run.steps()] == [0, 1, 2, 3, 4]


def test_a_resumed_training_keeps_the_checkpoint_that_it_resumes_from(tmp_path, tiny_model_dir):
    """It was saved between two logged steps: the record ends at 2, the checkpoint is of 5."""
    saving = {"save_strategy": "steps", "save_steps": 5, "logging_steps": 100, "max_steps": 7}
    trained(tmp_path, tiny_model_dir, callback(every=2), {}, **saving | {"max_steps": 5, "logging_steps": 100})
    with sqlite3.connect(tmp_path / "kleash" / "run.db") as database:
        for table in ("steps", "metrics", "samples"):
            database.execute(f"DELETE FROM {table} WHERE step > 2")
    database.close()
    resumed = callback(every=2, run_dir=tmp_path / "kleash")
    model, tokenizer = load(tiny_model_dir)
    trainer = trainer_of(with_lora(model), tokenizer, tmp_path, resumed, **saving)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    with RunReader(resumed.run_dir) as run:
        assert [saved.step for saved in run.checkpoints()] == [5, 7]
        assert [step.step for step in run.steps()] == [0, 2, 6, 7]


def test_a_run_directory_that_is_taken_is_refused(tmp_path, tiny_model_dir):
    trained(tmp_path / "a", tiny_model_dir, callback(run_dir=tmp_path / "run"), max_steps=1)
    with pytest.raises(
        RunDirError,
        match=r"The run .*run exists: run_dir names it.*leave run_dir out .*resume_from_checkpoint=\.\.\.\)",
    ):
        trained(tmp_path / "b", tiny_model_dir, callback(run_dir=tmp_path / "run"), max_steps=1)


def test_training_stops_above_the_limit_with_a_sentence(tmp_path, tiny_model_dir, caplog):
    measured = callback(every=1, stop_above=1e-6)
    with caplog.at_level(logging.WARNING, "kleash"):
        trainer = trained(tmp_path, tiny_model_dir, measured)
    assert trainer.state.global_step == 1
    assert logged(trainer, SEQUENCE)[1] > 1e-6
    sentence = "nats per sequence on 3 held-out prompts, above stop_above = 1e-06, so training stops here"
    assert sentence in caplog.text
    with RunReader(measured.run_dir) as run:
        assert run.status == "stopped"
        assert sentence in run.status_reason
        assert [event.name for event in run.events()] == ["starting_model", "stop_above"]


def test_training_goes_on_below_the_limit(tmp_path, tiny_model_dir):
    assert trained(tmp_path, tiny_model_dir, callback(stop_above=1e6)).state.global_step == 4


def test_a_number_that_is_none_ends_the_run_with_a_reason(tmp_path, tiny_model_dir):
    class Break(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs):
            if state.global_step == 1:
                with torch.no_grad():
                    model.model.norm.weight.fill_(math.nan)

    model, tokenizer = load(tiny_model_dir)
    measured = callback()
    trainer = trainer_of(model, tokenizer, tmp_path, Break(), measured)
    with pytest.raises(
        RunStopped, match=r"step 2: policy_logprobs is nan at sequence 0, token 0 .* not finite\. The trainer made"
    ):
        trainer.train()
    with RunReader(measured.run_dir) as run:
        assert run.status == "stopped"
        assert "step 2" in run.status_reason


class Reporter(TrainerCallback):
    """Stands for W&B and the like, which come before the callbacks that a user passes."""

    def __init__(self):
        self.seen = {}

    def on_log(self, args, state, control, logs=None, **kwargs):
        if SEQUENCE in logs:
            self.seen[state.global_step] = dict(logs)


def test_an_attached_callback_reaches_the_reporters_too(tmp_path, tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    reporter = Reporter()
    trainer = trainer_of(model, tokenizer, tmp_path, reporter)
    callback().attach(trainer)
    trainer.train()
    assert {step: logs[SEQUENCE] for step, logs in reporter.seen.items()} == {
        step: value for step, value in logged(trainer, SEQUENCE).items() if step > 0
    }
    assert all("loss" in logs for logs in reporter.seen.values())


def test_messages_go_through_the_chat_template(tmp_path, tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    measured = KleashCallback([{"question": [{"role": "user", "content": "hi"}]}], column="question", max_length=4)
    trainer = trainer_of(model, tokenizer, tmp_path, measured, max_steps=1)
    trainer.train()
    with RunReader(measured.run_dir) as run:
        assert run.samples("before")[0].prompt.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert not logged(trainer, SEQUENCE + "_stderr"), "one prompt has no error"


def test_the_error_per_token_is_that_of_a_ratio_over_prompts():
    """Two samples a prompt. Totals 6, 2, 4 over lengths 4, 4, 4: ratio 1, residuals 2, -2, 0, sd 2."""
    totals, lengths = np.array([5.0, 1.0, 2.0, 0.0, 3.0, 1.0]), np.array([3, 1, 2, 2, 1, 3])
    assert ratio_stderr(totals, lengths, 2) == pytest.approx(2 / 4 / math.sqrt(3))
    assert ratio_stderr(totals[:2], lengths[:2], 2) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"every": 0}, "every = 0 leaves nothing to measure"),
        ({"samples": -1}, "samples = -1 leaves nothing"),
        ({"max_length": 0}, "max_length = 0 leaves nothing"),
        ({"temperature": 0.0}, "temperature = 0.0: greedy sampling has no log-probabilities"),
        ({"stop_above": 0.0}, "stop_above = 0.0: KL starts at 0"),
        ({"stop_above": math.nan}, "stop_above = nan: KL starts at 0"),
    ],
)
def test_numbers_that_cannot_work_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        callback(**settings)


def test_prompts_that_cannot_be_read_are_refused_before_there_is_a_trainer():
    with pytest.raises(DataError, match="has no column 'prompts'"):
        KleashCallback([{"prompt": "hello"}], column="prompts")


def test_a_trainer_without_a_tokenizer_is_refused(tiny_model_dir):
    model, _ = load(tiny_model_dir)
    with pytest.raises(ModelError, match="processing_class is None"):
        policy_of(model, None)


def test_an_adapter_on_the_output_layer_is_refused(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir, tie_word_embeddings=False)
    model = with_lora(model, target_modules=["q_proj", "lm_head"])
    with pytest.raises(ModelError, match=r"the output layer of model .* is a peft\..*Linear.*target_modules"):
        policy_of(model, tokenizer)


def test_a_soft_prompt_is_refused(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    model = get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ModelError, match=r"trains 'prompt_encoder.*', which is no part of the language model"):
        policy_of(model, tokenizer)


def test_sharded_weights_are_refused(tiny_model_dir):
    model, tokenizer = load(tiny_model_dir)
    model.model.norm.weight.data = torch.empty(0)
    with pytest.raises(ModelError, match=r"sharded over processes \('model.norm.weight' is not whole here\)"):
        policy_of(model, tokenizer)


def test_a_fresh_adapter_resumes_with_its_run_and_ends_where_the_uninterrupted_one_does(tmp_path, tiny_model_dir):
    saving = {"save_strategy": "steps", "save_steps": 3, "max_steps": 6}
    torch.manual_seed(3)
    whole = trained(tmp_path / "a", tiny_model_dir, callback(), {}, **saving)
    resumed = callback(run_dir=tmp_path / "a" / "kleash")
    torch.manual_seed(3)
    model, tokenizer = load(tiny_model_dir)
    trainer = trainer_of(with_lora(model), tokenizer, tmp_path / "a", resumed, **saving)
    trainer.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    assert logged(trainer, SEQUENCE) == logged(whole, SEQUENCE)
    with RunReader(resumed.run_dir) as run:
        assert run.status == "finished"
        assert [step.step for step in run.steps()] == [0, 1, 2, 3, 4, 5, 6]
        assert {step: value for step, value, _ in run.series("eval/kl/exact_per_sequence")} == logged(whole, SEQUENCE)


@pytest.mark.parametrize("start", ["full", "continued", "no run"])
def test_a_resumed_training_whose_start_is_gone_is_refused(tmp_path, tiny_model_dir, start):
    model, tokenizer = load(tiny_model_dir)
    model = model if start == "full" else with_lora(model)
    if start == "continued":
        move(model)
    first = callback(run_dir=tmp_path / "run")
    trainer_of(model, tokenizer, tmp_path, first, max_steps=1).train()
    again = callback(run_dir=None if start == "no run" else first.run_dir)
    with pytest.raises(
        ModelError, match=r"training resumes after step 1 \(run_dir = .*\), and the model .* not in memory"
    ):
        again.on_train_begin(
            TrainingArguments(output_dir=str(tmp_path), use_cpu=True),
            TrainerState(global_step=1),
            TrainerControl(),
            model=model,
            processing_class=tokenizer,
        )


def test_the_monitor_sees_what_is_measured_and_what_the_trainer_logs(tmp_path, tiny_model_dir, monkeypatch):
    rule = Alarm(lambda step: False)
    only(monkeypatch, rule)
    trainer = trained(tmp_path, tiny_model_dir, callback())
    assert list(rule.seen) == [0, 1, 2, 3, 4]
    measured = {step: seen["kl/exact_per_sequence"] for step, seen in rule.seen.items() if step % 2 == 0}
    assert measured == logged(trainer, SEQUENCE)
    assert "kl/exact_per_sequence" not in rule.seen[1]
    norms = {step: seen["optim/grad_norm"] for step, seen in rule.seen.items() if step}
    assert norms == logged(trainer, "grad_norm")
    assert not any(key.startswith("eval/") for seen in rule.seen.values() for key in seen)


def test_an_alarm_is_recorded_and_said_with_its_causes_and_changes_nothing(
    tmp_path, tiny_model_dir, monkeypatch, caplog
):
    losses, weights = [], []
    for measured in ([], [callback()]):
        only(monkeypatch, Alarm(lambda step: step >= 2))
        model, tokenizer = load(tiny_model_dir)
        torch.manual_seed(3)
        trainer = trainer_of(model, tokenizer, tmp_path, *measured)
        with caplog.at_level(logging.WARNING, "kleash"):
            trainer.train()
        losses.append(logged(trainer, "loss"))
        weights.append(model.state_dict())
    assert losses[0] == losses[1]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    said = "critical, step 2, test/alarm: found at 2. Maybe the test wants it (read the test). Do nothing."
    assert caplog.text.count(said) == 1
    with RunReader(measured[0].run_dir) as run:
        assert run.status == "finished"
        (alarm,) = [event for event in run.events() if event.name == "test/alarm"]
    assert (alarm.step, alarm.began, alarm.severity) == (2, 2, "critical")


def test_the_ladder_stops_the_training_and_names_the_checkpoint_to_go_on_from(tmp_path, tiny_model_dir, monkeypatch):
    """The trainer's numbers of step 3 are those of the weights after 2 updates, so that checkpoint 2 is suspect."""
    only(monkeypatch, Alarm(lambda step: step >= 3))
    measured = callback(ladder=["stop"])
    trainer = trained(tmp_path, tiny_model_dir, measured, max_steps=6, save_strategy="steps", save_steps=1)
    assert trainer.state.global_step == 3
    with RunReader(measured.run_dir) as run:
        assert run.status == "stopped"
        reason = "step 3: the run ends here: test/alarm is critical since step 3; rung 1 of 1. found at 3. Do nothing."
        onward = f"under no alarm is {tmp_path / 'checkpoint-1'}: go on with resume_from_checkpoint="
        assert run.status_reason.startswith(reason)
        assert onward in run.status_reason
        assert [event.name for event in run.events()] == ["starting_model", "test/alarm", "action/stop"]
        assert [(saved.step, saved.path) for saved in run.checkpoints()] == [
            (step, tmp_path / f"checkpoint-{step}") for step in (1, 2, 3)
        ]


def test_a_stop_without_a_trusted_checkpoint_says_so(tmp_path, tiny_model_dir, monkeypatch):
    only(monkeypatch, Alarm(lambda step: True))
    measured = callback(ladder=["stop"])
    trained(tmp_path, tiny_model_dir, measured)
    with RunReader(measured.run_dir) as run:
        assert run.status_reason.startswith("step 0: the run ends here")
        assert run.status_reason.endswith("No checkpoint on disk is free of alarms.")


@pytest.mark.parametrize(("act_on", "steps"), [("critical", 4), ("warning", 2)])
def test_a_warning_leads_to_an_action_only_where_that_is_asked(tmp_path, tiny_model_dir, monkeypatch, act_on, steps):
    only(monkeypatch, Alarm(lambda step: step == 2, severity="warning"))
    measured = callback(ladder=["stop"], act_on=act_on)
    assert trained(tmp_path, tiny_model_dir, measured).state.global_step == steps


def test_a_command_is_given_each_alarm(tmp_path, tiny_model_dir, monkeypatch):
    only(monkeypatch, Alarm(lambda step: step >= 2))
    heard = tmp_path / "heard.json"
    code = f"import sys; open({str(heard)!r}, 'a').write(sys.stdin.read() + chr(10))"
    measured = callback(command=f'{sys.executable} -c "{code}"')
    trained(tmp_path / "out", tiny_model_dir, measured)
    (event,) = map(json.loads, heard.read_text().splitlines())
    assert (event["name"], event["step"], event["run"]) == ("test/alarm", 2, str(measured.run_dir))


def test_a_webhook_that_does_not_answer_holds_nothing_up(tmp_path, tiny_model_dir, monkeypatch, caplog):
    only(monkeypatch, Alarm(lambda step: step >= 2))
    measured = callback(webhook="http://127.0.0.1:9/nobody")
    with caplog.at_level(logging.WARNING, "kleash"):
        trainer = trained(tmp_path, tiny_model_dir, measured)
    assert trainer.state.global_step == 4
    assert "Kleash: the webhook http://127.0.0.1:9/… did not take an alarm" in caplog.text


def test_a_resumed_training_does_not_tell_an_open_alarm_again(tmp_path, tiny_model_dir, monkeypatch):
    only(monkeypatch, Alarm(lambda step: step >= 2))
    saving = {"save_strategy": "steps", "save_steps": 3, "max_steps": 6}
    torch.manual_seed(3)
    trained(tmp_path, tiny_model_dir, callback(), {}, **saving)
    only(monkeypatch, Alarm(lambda step: step >= 2))
    resumed = callback(run_dir=tmp_path / "kleash")
    model, tokenizer = load(tiny_model_dir)
    trainer = trainer_of(with_lora(model), tokenizer, tmp_path, resumed, **saving)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    with RunReader(resumed.run_dir) as run:
        assert [event.step for event in run.events() if event.name == "test/alarm"] == [2]
        assert [saved.step for saved in run.checkpoints()] == [3, 6]


def test_tightening_without_the_trainer_is_refused(tmp_path, tiny_model_dir):
    with pytest.raises(ConfigError, match=r"passed as callbacks=\[\.\.\.\]\. Join it with .*attach\(trainer\)"):
        trained(tmp_path, tiny_model_dir, callback(ladder=["tighten"]))


def test_tightening_a_trainer_without_a_leash_is_refused(tmp_path, tiny_model_dir):
    trainer = trainer_of(*load(tiny_model_dir), tmp_path)
    with pytest.raises(ConfigError, match=r"and Trainer has no beta that is the price of drift alone .* Use ladder="):
        callback(ladder=["tighten", "stop"]).attach(trainer)
    callback(ladder=["stop"]).attach(trainer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ladder": ["roll_back"]}, r"'roll_back': the trainer's weights.*Use 'stop'.*resume_from_checkpoint"),
        ({"ladder": ["tigten"]}, "'tigten', which is no action. Did you mean 'tighten'"),
        ({"ladder": ["stop", "tighten"]}, "goes on after 'stop'"),
        ({"act_on": "info"}, "act_on = 'info' is no severity of an alarm"),
        ({"patience": 0}, "patience = 0"),
        ({"tighten_by": 1.0}, "tighten_by = 1.0"),
        ({"webhook": "example.org"}, "webhook = 'example.org' is no web address"),
        ({"command": "notify 'me"}, "cannot be split into words"),
        ({"command": " "}, "names no program"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        callback(**settings)
