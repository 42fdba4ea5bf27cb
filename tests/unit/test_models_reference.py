"""Who the reference is, that KL starts at exactly 0.0, and how moving references move."""

import pytest
import torch
from tiny_model import save_tiny_model
from tiny_run import SIZES, perturb, policy, save_family
from transformers import LlamaConfig

from kleash.config.loader import load
from kleash.errors import ModelError
from kleash.kl.exact import linear_kl
from kleash.models.batch import collate
from kleash.models.loading import load_reference
from kleash.models.policy import Policy
from kleash.models.reference import AdapterReference, ModelReference, MovingReference
from kleash.training.state import save_weights

BATCH = collate([[256, 97, 98], [256, 99]], [[100, 101], [102, 103, 104]], pad=258, device=torch.device("cpu"))


def pair(model, *overrides):
    """A policy and its reference."""
    base = [f"model.name={model}", "model.dtype=float32", "prompts=demo", "reward=json:dumps"]
    settings = load(None, [*base, *overrides]).config.model
    ours = policy(model, *overrides)
    return ours, load_reference(settings, ours, context=64)


def kl(ours: Policy, reference):
    with torch.no_grad():
        hidden = ours.hidden(BATCH)
    return linear_kl(hidden, ours.head, reference.hidden(BATCH), reference.head, BATCH.targets).reverse_kl


@pytest.fixture
def adapter(tiny_model_dir, tmp_path):
    trained = policy(tiny_model_dir)
    perturb(trained)
    save_weights(trained, tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", ["fresh adapter", "continued adapter", "whole", "ema", "reset", "whole ema"])
def test_kl_starts_at_exactly_zero_and_rises(tiny_model_dir, adapter, dtype, how):
    overrides = {
        "fresh adapter": [],
        "continued adapter": [f"model.adapter={adapter}"],
        "whole": ["model.lora=false"],
        "ema": ["model.reference_ema=0.5"],
        "reset": [f"model.adapter={adapter}", "model.reference_reset_every=2"],
        "whole ema": ["model.lora=false", "model.reference_ema=0.5"],
    }[how]
    ours, reference = pair(tiny_model_dir, f"model.dtype={dtype}", *overrides)
    assert kl(ours, reference).tolist() == [0.0] * 5
    perturb(ours, seed=7)
    assert kl(ours, reference).min() > 0.001


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kl_starts_at_exactly_zero_with_biases(tmp_path, dtype):
    import transformers as hf

    folder = save_family(tmp_path, hf.Qwen2Config(**SIZES))
    ours, reference = pair(folder, f"model.dtype={dtype}")
    assert kl(ours, reference).tolist() == [0.0] * 5


def test_the_reference_of_a_continued_adapter_is_that_adapter(tiny_model_dir, adapter):
    ours, reference = pair(tiny_model_dir, f"model.adapter={adapter}")
    assert isinstance(reference, AdapterReference)
    assert reference.description == f"{tiny_model_dir} with its starting adapter, frozen"
    start = ours.hidden(BATCH).detach()
    perturb(ours, seed=7)
    assert torch.equal(reference.hidden(BATCH), start)
    assert not torch.allclose(ours.hidden(BATCH), start, atol=1e-3)
    base, _ = pair(tiny_model_dir)
    assert not torch.allclose(base.hidden(BATCH), start, atol=1e-3)


def test_scoring_the_reference_leaves_the_trained_adapter_trainable(tiny_model_dir, adapter):
    ours, reference = pair(tiny_model_dir, f"model.adapter={adapter}")
    names = [name for name, _ in ours.trained()]
    reference.hidden(BATCH)
    assert [name for name, _ in ours.trained()] == names
    ours.hidden(BATCH).sum().backward()
    assert all(p.grad is not None for _, p in ours.trained())
    assert all(".default." in name for name in names)


def test_a_fresh_adapter_needs_no_second_copy(tiny_model_dir):
    ours, reference = pair(tiny_model_dir)
    assert reference.extra_bytes == 0
    assert reference.head is ours.head
    assert "with the adapter off" in reference.description


def test_full_fine_tuning_has_a_frozen_copy(tiny_model_dir):
    ours, reference = pair(tiny_model_dir, "model.lora=false")
    assert isinstance(reference, ModelReference)
    assert reference.description == f"a frozen copy of {tiny_model_dir}"
    assert reference.extra_bytes == sum(p.nbytes for p in ours.causal_lm.parameters())
    assert not any(p.requires_grad for p in reference.causal_lm.parameters())
    assert not {p.data_ptr() for p in reference.causal_lm.parameters()} & {p.data_ptr() for _, p in ours.trained()}


@pytest.mark.parametrize("overrides", [[], ["model.lora=false"]])
def test_training_leaves_the_fingerprint_as_it_is(tiny_model_dir, overrides):
    ours, reference = pair(tiny_model_dir, *overrides)
    before = reference.fingerprint()
    perturb(ours)
    assert reference.fingerprint() == before
    again, same = pair(tiny_model_dir, *overrides)
    assert same.fingerprint() == before
    with torch.no_grad():
        next(iter(again.causal_lm.parameters())).view(-1)[0] += 1.0
        if isinstance(same, ModelReference):
            next(iter(same.causal_lm.parameters())).view(-1)[0] += 1.0
    assert same.fingerprint() != before


def test_the_starting_adapter_is_in_the_fingerprint(tiny_model_dir, adapter):
    _, fresh = pair(tiny_model_dir)
    _, continued = pair(tiny_model_dir, f"model.adapter={adapter}")
    assert fresh.fingerprint() != continued.fingerprint()


def test_another_model_by_path(tiny_model_dir, tmp_path):
    other = save_tiny_model(tmp_path, seed=1)
    ours, reference = pair(tiny_model_dir, f"model.reference={other}")
    there, _ = pair(other)
    assert reference.description == str(other)
    assert torch.equal(reference.hidden(BATCH), there.hidden(BATCH).detach())
    assert kl(ours, reference).min() > 0


def test_another_tokenizer_is_refused(tiny_model_dir, tmp_path):
    other = save_tiny_model(tmp_path)
    settings = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(settings.replace("<|im_start|>", "<|start|>"))
    configuration = (other / "tokenizer_config.json").read_text()
    (other / "tokenizer_config.json").write_text(configuration.replace("<|im_start|>", "<|start|>"))
    with pytest.raises(ModelError) as caught:
        pair(tiny_model_dir, f"model.reference={other}")
    assert "has another tokenizer than" in str(caught.value)
    assert "<|im_start|>" in str(caught.value)
    assert "use a reference of the same family" in str(caught.value)


def test_the_same_tokenizer_padded_to_another_size_is_refused(tiny_model_dir, tmp_path):
    other = save_family(tmp_path, LlamaConfig(**{**SIZES, "vocab_size": 272}))
    with pytest.raises(ModelError, match=r"has 272 rows in its output layer and .* has 261"):
        pair(tiny_model_dir, f"model.reference={other}")


@pytest.mark.parametrize("overrides", [[], ["model.lora=false"]])
def test_a_moving_average_moves_by_its_share(tiny_model_dir, overrides):
    ours, reference = pair(tiny_model_dir, "model.reference_ema=0.25", *overrides)
    assert isinstance(reference, MovingReference)
    start = {name: p.detach().clone() for name, p in ours.trained()}
    perturb(ours)
    moved = {name: p.detach().clone() for name, p in ours.trained()}
    for step in range(2):
        reference.follow(step, ours.trained())
    for name, tensor in reference.state().items():
        expected = 0.75**2 * start[name] + (1 - 0.75**2) * moved[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-7)
    assert "moving average, 0.25 of the policy a step" in reference.description


def test_a_slow_average_in_bfloat16_does_not_stall(tiny_model_dir):
    """A thousandth a step is less than bfloat16 resolves: alone it would stop a third of the way."""
    ours, reference = pair(tiny_model_dir, "model.lora=false", "model.dtype=bfloat16", "model.reference_ema=0.001")
    assert {p.dtype for _, p in ours.trained()} == {torch.bfloat16}
    start = {name: p.detach().float() for name, p in ours.trained()}
    perturb(ours)
    moved = {name: p.detach().float() for name, p in ours.trained()}
    for step in range(1500):
        reference.follow(step, ours.trained())
    share = 1 - 0.999**1500
    for name, tensor in reference.state().items():
        expected = (1 - share) * start[name] + share * moved[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-3, atol=1e-5)
    for name, tensor in reference._moving.causal_lm.named_parameters():
        expected = (1 - share) * start[name] + share * moved[name]
        torch.testing.assert_close(tensor.float(), expected, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("overrides", [[], ["model.lora=false"]])
def test_a_reset_reference_jumps_every_so_many_steps(tiny_model_dir, overrides):
    ours, reference = pair(tiny_model_dir, "model.reference_reset_every=3", *overrides)
    fingerprint = reference.fingerprint()
    for step in range(3):
        perturb(ours, seed=step)
        assert kl(ours, reference).max() > 0
        reference.follow(step, ours.trained())
    assert kl(ours, reference).tolist() == [0.0] * 5
    assert kl(ours, reference.original).min() > 0
    assert reference.fingerprint() == fingerprint == reference.original.fingerprint()


def test_the_state_of_a_moving_reference_comes_back(tiny_model_dir):
    ours, reference = pair(tiny_model_dir, "model.reference_ema=0.5")
    perturb(ours)
    reference.follow(0, ours.trained())
    _, other = pair(tiny_model_dir, "model.reference_ema=0.5")
    other.load_state(reference.state())
    assert torch.equal(other.hidden(BATCH), reference.hidden(BATCH))
