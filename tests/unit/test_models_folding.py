"""The copy to sample from: base + adapter, sharing all the rest, while the base stays as it is."""

import hashlib

import pytest
import torch
from tiny_run import perturb, policy, session, settings

from kleash.models.lora import FusedLoraLinear
from kleash.training.step import on_policy_step

TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111]])


def bytes_of(named):
    """A digest of our own."""
    digest = hashlib.blake2b()
    for name, tensor in sorted(named):
        digest.update(name.encode() + tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_folded_equals_unfolded_within_rounding(tiny_model_dir, dtype, tolerance):
    ours = policy(tiny_model_dir, f"model.dtype={dtype}")
    perturb(ours)
    with torch.no_grad():
        unfolded = ours.causal_lm(TOKENS).logits.float()
        folded = ours.model_to_sample()(TOKENS).logits.float()
        with ours.switched(None):
            base = ours.causal_lm(TOKENS).logits.float()
    assert (folded - unfolded).norm() / unfolded.norm() < tolerance
    assert (folded - base).norm() / base.norm() > 0.1


def test_each_folded_weight_is_base_plus_scaled_product(tiny_model_dir):
    ours = policy(tiny_model_dir, "model.lora.r=3", "model.lora.alpha=6")
    perturb(ours)
    copy = ours.model_to_sample()
    checked = 0
    for name, layer in ours.causal_lm.named_modules():
        if isinstance(layer, FusedLoraLinear):
            a, b = layer.lora_A["default"].weight.double(), layer.lora_B["default"].weight.double()
            expected = layer.base_layer.weight.double() + 2.0 * b @ a
            torch.testing.assert_close(copy.get_submodule(name).weight.double(), expected, rtol=1e-5, atol=1e-6)
            checked += 1
    assert checked == 14


def test_what_has_no_adapter_is_shared(tiny_model_dir):
    ours = policy(tiny_model_dir)
    copy = ours.model_to_sample()
    assert copy.get_input_embeddings().weight is ours.causal_lm.get_input_embeddings().weight
    assert copy.lm_head.weight is ours.head
    assert copy.model.norm.weight is ours.causal_lm.model.norm.weight
    adapted = [layer.base_layer.weight for layer in ours.causal_lm.modules() if isinstance(layer, FusedLoraLinear)]
    assert ours.sampling.extra_bytes == sum(weight.nbytes for weight in adapted)
    assert not {w.data_ptr() for w in adapted} & {p.data_ptr() for p in copy.parameters()}


def test_folding_again_after_an_update_forgets_the_last_adapter(tiny_model_dir):
    ours = policy(tiny_model_dir)
    perturb(ours, seed=1)
    ours.model_to_sample()
    with torch.no_grad():
        for name, parameter in ours.trained():
            if "lora_B" in name:
                parameter.zero_()
        base = ours.causal_lm(TOKENS).logits
        torch.testing.assert_close(ours.model_to_sample()(TOKENS).logits, base, rtol=1e-5, atol=1e-5)


def test_a_model_trained_whole_is_sampled_from_its_own_weights(tiny_model_dir):
    ours = policy(tiny_model_dir, "model.lora=false", "model.gradient_checkpointing=true")
    copy = ours.model_to_sample()
    assert ours.causal_lm.training
    assert not any(module.training for module in copy.modules())
    assert {p.data_ptr() for p in copy.parameters()} == {p.data_ptr() for p in ours.causal_lm.parameters()}
    assert ours.sampling.extra_bytes == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_base_is_never_written_in_a_hundred_steps(tiny_model_dir, tmp_path, dtype):
    config = settings(
        tiny_model_dir,
        tmp_path,
        f"model.dtype={dtype}",
        "rollout.max_completion_length=4",
        "algorithm.num_generations=2",
        "training.prompts_per_step=2",
        "training.steps=100",
        "training.learning_rate=0.01",
    )
    running = session(config)
    before, adapter = bytes_of(running.policy.frozen()), bytes_of(running.policy.trained())
    for step in range(100):
        on_policy_step(running, step)
    assert bytes_of(running.policy.frozen()) == before
    assert bytes_of(running.policy.trained()) != adapter
