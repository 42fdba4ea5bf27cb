"""An adapter at a scale is start + s (trained - start), in the policy and in what any PEFT loader reads."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_run import perturb, policy
from transformers import AutoModelForCausalLM

from kleash.errors import ModelError
from kleash.models.lora import FusedLoraLinear
from kleash.models.scaled_adapter import ScaledAdapter
from kleash.training.state import save_weights

TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111]])


def folded(ours):
    """Each adapted weight of the copy that is sampled from, float64."""
    copy = ours.model_to_sample()
    names = [name for name, layer in ours.causal_lm.named_modules() if isinstance(layer, FusedLoraLinear)]
    return {name: copy.get_submodule(name).weight.double().clone() for name in names}


def starting_adapter(tiny_model_dir, folder, **how):
    """An adapter of random weights that PEFT itself wrote."""
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", **how)
    adapted = get_peft_model(base, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)
    return folder


def loaded(tiny_model_dir, folder):
    """Logits of the saved adapter, by PEFT alone."""
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    with torch.no_grad():
        return PeftModel.from_pretrained(base, folder).eval()(TOKENS).logits


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_a_fresh_adapter_is_scaled_towards_the_base(tiny_model_dir, tmp_path, scale):
    ours = policy(tiny_model_dir)
    base = folded(ours)
    perturb(ours)
    trained = folded(ours)
    adapter = ScaledAdapter(ours)
    adapter.turn(0.7)  # what went before leaves no trace
    adapter.turn(scale)
    for name, weight in folded(ours).items():
        torch.testing.assert_close(weight, base[name] + scale * (trained[name] - base[name]), rtol=0, atol=1e-6)
    save_weights(ours, tmp_path / "out")
    with torch.no_grad():
        expected = ours.causal_lm(TOKENS).logits
    torch.testing.assert_close(loaded(tiny_model_dir, tmp_path / "out"), expected, rtol=0, atol=1e-4)
    saved = LoraConfig.from_pretrained(tmp_path / "out")
    assert (saved.r, saved.lora_alpha) == (16, 32)


@pytest.mark.parametrize(
    "how",
    [{}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 16}}],
    ids=["plain", "rslora", "patterns"],
)
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_a_continued_adapter_is_scaled_towards_the_one_it_started_from(tiny_model_dir, tmp_path, how, scale):
    start = starting_adapter(tiny_model_dir, tmp_path / "start", **how)
    ours = policy(tiny_model_dir, f"model.adapter={start}")
    started = folded(ours)
    perturb(ours)
    trained = folded(ours)
    ScaledAdapter(ours).turn(scale)
    for name, weight in folded(ours).items():
        expected = started[name] + scale * (trained[name] - started[name])
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-5)
    assert max((trained[name] - started[name]).abs().max() for name in started) > 0.1
    save_weights(ours, tmp_path / "out")
    with torch.no_grad():
        expected = ours.causal_lm(TOKENS).logits
    torch.testing.assert_close(loaded(tiny_model_dir, tmp_path / "out"), expected, rtol=0, atol=1e-4)
    assert LoraConfig.from_pretrained(tmp_path / "out").r == 8


def test_at_the_ends_nothing_is_rounded(tiny_model_dir):
    ours = policy(tiny_model_dir)
    perturb(ours)
    before = {name: parameter.clone() for name, parameter in ours.trained()}
    adapter = ScaledAdapter(ours)
    adapter.turn(0.3)
    adapter.turn(1.0)
    assert all(torch.equal(before[name], parameter) for name, parameter in ours.trained())
    adapter.turn(0.0)
    with torch.no_grad(), ours.switched(None):
        base = ours.causal_lm(TOKENS).logits
    with torch.no_grad():
        assert torch.equal(ours.causal_lm(TOKENS).logits, base)


def test_a_model_trained_whole_has_nothing_to_scale(tiny_model_dir):
    with pytest.raises(ModelError, match="was trained whole: there is no adapter to scale"):
        ScaledAdapter(policy(tiny_model_dir, "model.lora=false"))
