"""The fused adapter layer against PEFT's own and against plain autograd, and adapters on disk."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_run import perturb, policy
from torch import nn
from transformers import AutoModelForCausalLM

from kleash.errors import ModelError
from kleash.models.batch import collate
from kleash.models.lora import FusedLoraLinear, _FusedLora
from kleash.training.state import save_weights

TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111], [256, 119, 111, 114, 108, 100]])


def plain_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def layers(model):
    return [module for module in model.modules() if isinstance(module, FusedLoraLinear)]


@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_plain_autograd(bias):
    def inputs():
        torch.manual_seed(1)
        shapes = [(2, 3, 5), (4, 5), (4,), (2, 5), (4, 2)]
        return [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    results = []
    for fused in (True, False):
        x, weight, offset, a, b = inputs()
        for leaf in (x, a, b):
            leaf.requires_grad_()
        if fused:
            y = _FusedLora.apply(x, weight, offset if bias else None, a, b, 1.7)
        else:
            y = x @ weight.T + 1.7 * (x @ a.T) @ b.T + (offset if bias else 0.0)
        (y * torch.arange(24, dtype=torch.float64).view(2, 3, 4).sin()).sum().backward()
        results.append([y.detach(), x.grad, a.grad, b.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_no_gradient_goes_where_none_is_asked_for():
    x, weight, a, b = torch.randn(3, 5), torch.randn(4, 5), torch.randn(2, 5), torch.randn(4, 2, requires_grad=True)
    _FusedLora.apply(x, weight, None, a, b, 1.0).sum().backward()
    assert (x.grad, weight.grad, a.grad) == (None, None, None)
    assert b.grad is not None


def logits_and_gradients(model):
    logits = model(TOKENS).logits.float()
    (logits * torch.linspace(-1, 1, logits.shape[-1])).mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert {gradient.dtype for gradient in gradients.values()} == {torch.float32}
    return {"logits": logits.detach(), **gradients}


def gap(values, truth):
    return {name: float((values[name] - truth[name]).norm() / truth[name].norm()) for name in truth}


def test_the_whole_model_matches_pefts_own_layer(tiny_model_dir, tmp_path):
    """To rounding in float32; in bfloat16 it is as near to the float32 values as PEFT is."""
    ours = policy(tiny_model_dir)
    perturb(ours)
    save_weights(ours, tmp_path)

    def pefts(dtype):
        base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=dtype).eval()
        return PeftModel.from_pretrained(base, tmp_path, is_trainable=True).get_base_model()

    assert not layers(pefts(torch.float32))
    truth = logits_and_gradients(pefts(torch.float32))
    assert len(truth) == 1 + 2 * len(layers(ours.causal_lm)) == 29
    assert max(gap(logits_and_gradients(ours.causal_lm), truth).values()) < 2e-5

    narrow = policy(tiny_model_dir, "model.dtype=bfloat16")
    perturb(narrow)
    ours_off, pefts_off = (
        gap(logits_and_gradients(model), truth) for model in (narrow.causal_lm, pefts(torch.bfloat16))
    )
    assert sum(ours_off.values()) < 1.25 * sum(pefts_off.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_off_is_the_base_to_the_bit(tiny_model_dir, dtype):
    ours = policy(tiny_model_dir, f"model.dtype={dtype}")
    perturb(ours)
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=ours.dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        on = ours.causal_lm(TOKENS).logits
        with ours.switched(None):
            off = ours.causal_lm(TOKENS).logits
        assert torch.equal(off, base(TOKENS).logits)
        assert not torch.equal(on, off)


def test_a_fresh_adapter_is_float32_and_computes_nothing_yet(tiny_model_dir):
    ours = policy(tiny_model_dir, "model.dtype=bfloat16")
    assert {p.dtype for _, p in ours.trained()} == {torch.float32}
    assert {p.dtype for _, p in ours.frozen()} == {torch.bfloat16}
    with torch.no_grad():
        on = ours.causal_lm(TOKENS).logits
        with ours.switched(None):
            assert torch.equal(on, ours.causal_lm(TOKENS).logits)


def test_the_seed_decides_the_fresh_adapter_and_nothing_else_does(tiny_model_dir):
    first, again, other = (policy(tiny_model_dir, seed=seed) for seed in (3, 3, 4))
    pairs = [[p for name, p in one.trained() if "lora_A" in name] for one in (first, again, other)]
    assert all(torch.equal(x, y) for x, y in zip(pairs[0], pairs[1], strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(pairs[0], pairs[2], strict=True))


def test_loading_leaves_the_global_generator_where_it_was(tiny_model_dir):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    policy(tiny_model_dir)
    assert torch.rand(1) == expected


def test_a_saved_adapter_gives_the_same_logits_in_plain_peft(tiny_model_dir, tmp_path):
    ours = policy(tiny_model_dir)
    perturb(ours)
    save_weights(ours, tmp_path)
    theirs = PeftModel.from_pretrained(plain_model(tiny_model_dir), tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(ours.causal_lm(TOKENS).logits, theirs(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny_model_dir)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["no_such_layer"], r"matches no linear layer of this model"),
        (["lm_head"], r"trains the output layer, which policy and reference share"),
        (["embed_tokens"], r"trains 'model.embed_tokens' \(Embedding\); only low-rank adapters of linear layers"),
    ],
)
def test_layers_that_cannot_be_adapted_are_refused(tiny_model_dir, targets, message):
    with pytest.raises(ModelError, match=message):
        policy(tiny_model_dir, f"model.lora.target_modules={json.dumps(targets)}")


@pytest.fixture
def adapter(tiny_model_dir, tmp_path):
    """A trained adapter on disk."""
    trained = policy(tiny_model_dir)
    perturb(trained)
    save_weights(trained, tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_continued_adapter_starts_where_it_was(tiny_model_dir, adapter):
    continued = policy(tiny_model_dir, f"model.adapter={adapter}")
    original = PeftModel.from_pretrained(plain_model(tiny_model_dir), adapter)
    with torch.no_grad():
        torch.testing.assert_close(continued.causal_lm(TOKENS).logits, original(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert all(".default." in name for name, _ in continued.trained())
    assert len(continued.trained()) == 28


def test_a_folder_without_an_adapter_is_refused(tiny_model_dir, tmp_path):
    with pytest.raises(ModelError, match=r"no adapter_config.json in that folder"):
        policy(tiny_model_dir, f"model.adapter={tmp_path}")


def test_dora_is_refused(tiny_model_dir, tmp_path):
    config = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM")
    get_peft_model(plain_model(tiny_model_dir), config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="uses DoRA or trained biases; only plain LoRA can be continued"):
        policy(tiny_model_dir, f"model.adapter={tmp_path}")


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_an_adapter_with_a_trained_head_is_refused(tiny_model_dir, tmp_path):
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM")
    model = plain_model(tiny_model_dir)
    model.config.tie_word_embeddings = False
    get_peft_model(model, config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="trains the output layer"):
        policy(tiny_model_dir, f"model.adapter={tmp_path}")


def test_an_adapter_of_another_base_is_refused_with_its_name(tiny_model_dir, adapter, tmp_path):
    from tiny_model import byte_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(tiny_model_dir)
    config.hidden_size, config.intermediate_size = 16, 32
    LlamaForCausalLM(config).save_pretrained(tmp_path / "narrow")
    byte_tokenizer().save_pretrained(tmp_path / "narrow")
    with pytest.raises(ModelError) as caught:
        policy(tmp_path / "narrow", f"model.adapter={adapter}")
    assert "does not fit this model" in str(caught.value)
    assert f"Its base was {str(tiny_model_dir)!r}; use that model" in str(caught.value)


def test_dropout_of_a_continued_adapter_is_off(tiny_model_dir, adapter, tmp_path):
    copy = tmp_path / "with_dropout"
    shutil.copytree(adapter, copy)
    settings = json.loads((copy / "adapter_config.json").read_text())
    settings["lora_dropout"] = 0.5
    (copy / "adapter_config.json").write_text(json.dumps(settings))
    continued = policy(tiny_model_dir, f"model.adapter={copy}")
    continued.causal_lm.train()
    batch = collate([[256, 97]], [[98, 99, 100]], pad=0, device=torch.device("cpu"))
    assert torch.equal(continued.hidden(batch), continued.hidden(batch))
    assert not any(isinstance(module, nn.Dropout) and module.p > 0 for module in continued.causal_lm.modules())
