"""Checkpoints: whole or not at all, readable by other tools, and back in a session as they were."""

import math

import pytest
import torch
from peft import PeftModel
from tiny_run import perturb, session, settings
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.errors import RunDirError
from kleash.training import state
from kleash.training.experience import Spread
from kleash.training.on_policy import OnPolicyJob
from kleash.training.session import make_controller
from kleash.training.step import on_policy_step

TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111]])


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        return session(settings(tiny_model_dir, tmp_path, *overrides))

    return made


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.kl.target_nats_per_sequence=2"],
        ["model.lora=false", "model.dtype=bfloat16", "training.learning_rate=1e-4"],
        ["model.reference_ema=0.5", "training.num_epochs=2"],
        ["model.reference_ema=0.01", "model.lora=false", "model.dtype=bfloat16", "training.learning_rate=1e-4"],
    ],
    ids=["lora with a target", "whole in bfloat16", "moving reference", "slow reference in bfloat16"],
)
def test_a_restored_session_goes_on_as_the_saved_one_does(make, tmp_path, overrides):
    running = make(*overrides)
    running.rewarder.spread = Spread(0.1, 0.2, 16)
    for step in range(2):
        on_policy_step(running, step)
    fingerprint = running.reference.fingerprint()
    OnPolicyJob(running).save(tmp_path / "step_2", 2, fingerprint)
    expected = [on_policy_step(running, step).numbers for step in (2, 3)]

    resumed = make(*overrides)
    first = OnPolicyJob(resumed).restore(state.read(tmp_path / "step_2"), resumed.reference.fingerprint())
    assert first == 2
    assert resumed.rewarder.spread == Spread(0.1, 0.2, 16)
    for step, numbers in zip((2, 3), expected, strict=True):
        again = on_policy_step(resumed, step).numbers
        timed = ("time/", "throughput/")
        assert {k: v for k, v in again.metrics.items() if not k.startswith(timed)} == {
            k: v for k, v in numbers.metrics.items() if not k.startswith(timed)
        }
        assert again.notes == numbers.notes


def test_the_bounds_of_beta_come_back(make, tmp_path):
    """A reward of sd 2000 starts at beta 500, far above what the bounds of a default start would let through."""
    target = "algorithm.kl.target_nats_per_sequence=8"
    running = make(target)
    running.starting_beta = 2000 / math.sqrt(2 * 8)
    running.controller = make_controller(running.config.algorithm.kl, running.starting_beta)
    running.controller.update(8.0, 16)
    OnPolicyJob(running).save(tmp_path / "step_1", 1, "f")
    resumed = make(target)
    OnPolicyJob(resumed).restore(state.read(tmp_path / "step_1"), "f")
    assert resumed.starting_beta == 500
    assert resumed.controller.beta == running.controller.beta > 1000 * 0.05
    for kl in (8.0, 12.0, 3.0):
        assert resumed.controller.update(kl, 16) == running.controller.update(kl, 16)
        assert resumed.controller.saturated == 0


def test_an_adapter_checkpoint_loads_in_peft(make, tmp_path, tiny_model_dir):
    running = make()
    perturb(running.policy)
    OnPolicyJob(running).save(tmp_path / "step_1", 1, "f")
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path / "step_1").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(TOKENS).logits, running.policy.causal_lm(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "step_1").eos_token_id == 257


def test_a_whole_checkpoint_loads_in_transformers(make, tmp_path):
    running = make("model.lora=false")
    perturb(running.policy)
    OnPolicyJob(running).save(tmp_path / "step_1", 1, "f")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "step_1", dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(TOKENS).logits, running.policy.causal_lm(TOKENS).logits)


def test_a_moving_reference_adapter_is_no_part_of_the_checkpoint(make, tmp_path):
    running = make("model.reference_ema=0.5")
    OnPolicyJob(running).save(tmp_path / "step_1", 1, "f")
    assert {path.name for path in (tmp_path / "step_1").iterdir() if path.is_dir()} == set()
    assert (tmp_path / "step_1" / "adapter_model.safetensors").is_file()


def test_a_changed_reference_is_refused(make, tmp_path):
    running = make()
    OnPolicyJob(running).save(tmp_path / "step_0", 0, "a" * 64)
    with pytest.raises(RunDirError) as caught:
        OnPolicyJob(running).restore(state.read(tmp_path / "step_0"), "b" * 64)
    text = str(caught.value)
    assert text.startswith("the reference has changed: its weights hash to bbbbbbbbbbbbbbbb")
    assert "this run was measured from aaaaaaaaaaaaaaaa" in text
    assert "Put the old weights back" in text


def test_a_save_that_fails_leaves_the_old_checkpoint(make, tmp_path, monkeypatch):
    running = make()
    folder = tmp_path / "step_1"
    OnPolicyJob(running).save(folder, 1, "f")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space left"):
        OnPolicyJob(running).save(folder, 1, "g")
    monkeypatch.undo()
    assert state.read(folder)["reference_fingerprint"] == "f"
    OnPolicyJob(running).save(folder, 1, "g")
    assert state.read(folder)["reference_fingerprint"] == "g"
    assert [path.name for path in tmp_path.glob(".step*")] == []


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: content[:1000],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: bytes(len(content)),
        lambda content: b"no checkpoint at all",
        lambda content: content[:200] + bytes(200) + content[400:],
    ],
    ids=["torn early", "torn late", "empty", "zeros", "text", "overwritten"],
)
def test_a_state_that_is_damaged_or_gone_is_refused(make, tmp_path, damaged):
    running = make()
    OnPolicyJob(running).save(tmp_path / "step_1", 1, "f")
    file = tmp_path / "step_1" / state.STATE_FILE
    file.write_bytes(damaged(file.read_bytes()))
    for folder in (tmp_path / "step_1", tmp_path / "step_9"):
        with pytest.raises(RunDirError, match=r"(?s)no training state can be read there .* Resume from another"):
            state.read(folder)
