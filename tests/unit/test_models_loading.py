"""From names to models: what cannot be loaded is refused with a sentence."""

import pytest
import torch
import transformers as hf
from tiny_model import save_tiny_model
from tiny_run import SIZES, policy, save_family
from torch import nn

from kleash.errors import ModelError
from kleash.models.batch import collate
from kleash.models.device import pick_attention, pick_dtype


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_dropout_is_off_even_in_training_mode(tmp_path):
    config = hf.GPT2Config(
        vocab_size=261,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=512,
        bos_token_id=256,
        eos_token_id=257,
        attn_pdrop=0.5,
        resid_pdrop=0.5,
        embd_pdrop=0.5,
    )
    ours = policy(save_family(tmp_path, config), "model.gradient_checkpointing=true")
    assert ours.causal_lm.training
    assert all(module.p == 0.0 for module in ours.causal_lm.modules() if isinstance(module, nn.Dropout))
    batch = collate([[256, 97]], [[98, 99]], pad=258, device=torch.device("cpu"))
    assert torch.equal(ours.hidden(batch), ours.hidden(batch))


def test_attention_dropout_is_off(tmp_path):
    ours = policy(save_family(tmp_path, hf.LlamaConfig(**SIZES, attention_dropout=0.5)))
    ours.causal_lm.train()
    batch = collate([[256, 97]], [[98, 99]], pad=258, device=torch.device("cpu"))
    assert torch.equal(ours.hidden(batch), ours.hidden(batch))


def test_weights_that_are_torn_are_refused(tmp_path):
    folder = save_tiny_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ModelError, match="the folder cannot be read as a Hugging Face model"):
        policy(folder)


def test_whole_training_trains_every_weight(tiny_model_dir):
    ours = policy(tiny_model_dir, "model.lora=false")
    assert ours.peft_model is None
    assert len(ours.trained()) == len(list(ours.causal_lm.parameters()))


def test_checkpointing_changes_no_gradient(tiny_model_dir):
    batch = collate([[256, 97]], [[98, 99]], pad=258, device=torch.device("cpu"))
    gradients = []
    for setting in ("false", "true"):
        ours = policy(tiny_model_dir, "model.lora=false", f"model.gradient_checkpointing={setting}")
        ours.hidden(batch).pow(3).sum().backward()
        gradients.append({name: p.grad for name, p in ours.trained() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert all(torch.equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items())


def test_dtype_as_asked_and_attention_by_length():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert pick_dtype(cpu, "float32") == torch.float32
    assert pick_dtype(cpu, "bfloat16") == torch.bfloat16
    assert pick_dtype(torch.device("mps"), "auto") == torch.float32
    assert [pick_attention(cpu, 512), pick_attention(cpu, 513), pick_attention(gpu, 16)] == ["eager", "sdpa", "sdpa"]
