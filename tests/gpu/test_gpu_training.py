"""The promises that a GPU's kernels could break: exact zero at the start, sampler and scorer alike, NaN in words."""

import pytest
import torch
from tiny_run import Remembering, session, settings

from kleash.errors import RunStopped
from kleash.runs.reader import RunReader
from kleash.training.observer import Silent
from kleash.training.run import train
from kleash.training.step import on_policy_step

pytestmark = pytest.mark.gpu


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        return settings(tiny_model_dir, tmp_path, "rollout.max_completion_length=40", *overrides)

    return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "overrides",
    [[], ["model.lora=false", "training.learning_rate=1e-4"], ["model.gradient_checkpointing=true"]],
    ids=["lora", "whole", "checkpointing"],
)
def test_a_run_passes_preflight_and_starts_at_exactly_zero(make, dtype, overrides):
    observer = Remembering()
    path = train(make(f"model.dtype={dtype}", *overrides), observer=observer)
    assert all(check.passed for check in observer.checks)
    with RunReader(path) as reader:
        assert reader.meta["device"] == "cuda:0"
        kl = [value for _, value, _ in reader.series("kl/exact_per_sequence")]
    assert kl[0] == 0.0
    assert kl[3] > 0.0


def test_auto_is_bfloat16_on_the_gpu(make):
    running = session(make("model.dtype=auto"))
    assert running.policy.dtype == torch.bfloat16
    assert {p.dtype for _, p in running.policy.trained()} == {torch.float32}


def test_the_base_is_never_written(make):
    running = session(make("model.dtype=bfloat16"))
    before = running.reference.fingerprint()
    for step in range(20):
        on_policy_step(running, step)
    assert running.reference.fingerprint() == before


def test_nan_stops_the_run_with_a_sentence_and_not_with_a_device_assertion(make):
    running = session(make())
    with torch.no_grad():
        running.policy.trained()[1][1].view(-1)[0] = float("nan")
    with pytest.raises(RunStopped, match=r"step 3: policy_logprobs is nan at sequence \d+, token \d+"):
        on_policy_step(running, 3)
    assert torch.ones(2, device="cuda").sum().item() == 2.0


def test_the_same_seed_gives_nearly_the_same_run(make):
    kl = []
    for name in ("a", "b"):
        path = train(make(f"name={name}", "training.steps=3"), observer=Silent())
        with RunReader(path) as reader:
            kl.append([value for _, value, _ in reader.series("kl/exact_per_sequence")])
    assert kl[0] == pytest.approx(kl[1], rel=0.05, abs=1e-4)
