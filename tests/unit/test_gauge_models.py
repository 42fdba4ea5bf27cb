"""Weights that are shared, adapters that are switched, and adapters that are refused."""

import warnings

import pytest
import torch
from gauge_files import save_adapter, tiny_gguf
from peft import PromptTuningConfig, get_peft_model
from tiny_model import byte_tokenizer, save_tiny_model
from transformers import AutoConfig, AutoModelForCausalLM

from kleash.errors import ModelError
from kleash.gauge.models import Loader, Narrowed, Remembering
from kleash.gauge.sources import identify
from kleash.models.batch import collate


@pytest.fixture
def loader():
    return Loader(dtype="float32", context=64, device=torch.device("cpu"))


@pytest.fixture
def batch():
    return collate([[256, 5, 6], [256, 7]], [[8, 9], [10]], pad=0, device=torch.device("cpu"))


def merged_hidden(base, adapter, batch):
    from peft import PeftModel

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter)
    states = model.merge_and_unload().eval().base_model(batch.input_ids, attention_mask=batch.attention_mask.long())
    return states.last_hidden_state[batch.predicts_response].detach()


def test_adapters_share_the_load_of_the_reference_and_leave_it_as_it_was(loader, batch, tiny_model_dir, tmp_path):
    base = identify(tiny_model_dir)
    reference = loader.load(base)
    before, head = reference.hidden(batch), reference.head
    folders = [save_adapter(tiny_model_dir, tmp_path / str(seed), scale=0.3, seed=seed) for seed in (1, 2)]
    one, other = (loader.load(identify(folder, base)) for folder in folders)
    for model, folder in ((one, folders[0]), (other, folders[1]), (one, folders[0])):
        torch.testing.assert_close(model.hidden(batch), merged_hidden(tiny_model_dir, folder, batch), atol=1e-5, rtol=0)
        assert torch.equal(reference.hidden(batch), before)
    assert not torch.allclose(one.hidden(batch), other.hidden(batch), atol=1e-3)
    assert reference.head.data_ptr() == one.head.data_ptr() == other.head.data_ptr() == head.data_ptr()


def test_an_adapter_that_changes_nothing_computes_exactly_what_the_base_does(loader, batch, tiny_model_dir, tmp_path):
    base = identify(tiny_model_dir)
    adapter = loader.load(identify(save_adapter(tiny_model_dir, tmp_path / "zero"), base))
    assert torch.equal(adapter.hidden(batch), loader.load(base).hidden(batch))


def test_fingerprints_follow_the_weights_and_not_the_name(loader, tiny_model_dir, tmp_path):
    copy, other = save_tiny_model(tmp_path / "copy"), save_tiny_model(tmp_path / "other", seed=5)
    prints = [loader.load(identify(folder)).facts.fingerprint for folder in (tiny_model_dir, copy, other)]
    assert prints[0] == prints[1] != prints[2]
    base = identify(tiny_model_dir)
    adapters = [save_adapter(tiny_model_dir, tmp_path / name, scale=0.1, seed=seed) for name, seed in
                (("a", 1), ("b", 1), ("c", 2))]  # fmt: skip
    adapted = [loader.load(identify(folder, base)).facts.fingerprint for folder in adapters]
    assert adapted[0] == adapted[1] != adapted[2]
    assert loader.load(base).facts.fingerprint == prints[0] != adapted[0]


def test_facts_say_what_was_measured(loader, tiny_model_dir, tmp_path):
    facts = loader.load(identify(tiny_gguf(tiny_model_dir, tmp_path / "tiny.gguf"))).facts
    assert (facts.kind, facts.dtype, facts.vocabulary) == ("gguf", "float32", 261)
    assert "dequantised by transformers, not llama.cpp's own arithmetic" in facts.description
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_auto_measures_in_float32_on_a_cpu():
    cpu = torch.device("cpu")
    assert Loader(dtype="auto", context=8, device=cpu).dtype == torch.float32
    assert Loader(dtype="bfloat16", context=8, device=cpu).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_modules": ["lm_head"]}, "trains the output layer"),
        ({"bias": "lora_only"}, r"trains biases \(bias = 'lora_only'\).*merge_and_unload"),
    ],
)
def test_adapters_that_cannot_be_switched_off_are_refused(loader, tiny_model_dir, tmp_path, options, message):
    config = AutoConfig.from_pretrained(tiny_model_dir, tie_word_embeddings=False)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "untied")
    base = identify(tmp_path / "untied")
    with warnings.catch_warnings(action="ignore"):  # PEFT's, on saving embeddings
        adapter = save_adapter(base.weights, tmp_path / "adapter", **options)
    with pytest.raises(ModelError, match=message):
        loader.load(identify(adapter, base))


def test_an_adapter_with_virtual_tokens_is_refused(loader, tiny_model_dir, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="PROMPT_TUNING adapter, which adds virtual tokens"):
        loader.load(identify(tmp_path, identify(tiny_model_dir)))


@pytest.mark.parametrize("change", [{"hidden_size": 48, "intermediate_size": 96}, {"num_hidden_layers": 3}])
def test_an_adapter_whose_tensors_do_not_fit_is_refused_whatever_base_it_names(
    loader, tiny_model_dir, tmp_path, change
):
    config = AutoModelForCausalLM.from_pretrained(tiny_model_dir).config
    for key, value in change.items():
        setattr(config, key, value)
    config.layer_types = None
    other = tmp_path / "other"
    config.head_dim = config.hidden_size // config.num_attention_heads
    AutoModelForCausalLM.from_config(config).save_pretrained(other)
    byte_tokenizer().save_pretrained(other)
    adapter = save_adapter(other, tmp_path / "adapter", named=str(tiny_model_dir))
    with pytest.raises(
        ModelError, match=r"is not an adapter for this base: .*Gauge it against the base it was trained on"
    ):
        loader.load(identify(adapter, identify(tiny_model_dir)))


def test_a_remembering_model_computes_each_batch_once(loader, batch, tiny_model_dir, monkeypatch):
    model = loader.load(identify(tiny_model_dir))
    expected, computed = model.hidden(batch), []
    monkeypatch.setattr(model, "hidden", lambda asked: computed.append(asked) or expected)
    remembering = Remembering(model)
    again = collate([[256, 5, 6], [256, 7]], [[8, 9], [10]], pad=0, device=torch.device("cpu"))
    assert remembering.hidden(batch) is remembering.hidden(again) is expected
    assert len(computed) == 1
    otherwise = collate([[256, 5], [256]], [[6, 8, 9], [7, 10]], pad=0, device=torch.device("cpu"))
    assert torch.equal(otherwise.input_ids, batch.input_ids)
    remembering.hidden(otherwise)
    assert len(computed) == 2


def test_a_narrowed_model_has_fewer_tokens_to_draw(loader, tiny_model_dir):
    with loader.load(identify(tiny_model_dir)).active() as causal_lm:
        head = Narrowed(causal_lm, 100).get_output_embeddings().weight
    assert head.shape == (100, 32)
    assert head.data_ptr() == causal_lm.get_output_embeddings().weight.data_ptr()


def test_a_peft_model_in_memory_over_the_reference_itself_is_refused(tiny_model_dir, tmp_path):
    from peft import PeftModel

    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    base = identify((model, byte_tokenizer()))
    wrapped = PeftModel.from_pretrained(model, save_adapter(tiny_model_dir, tmp_path))
    with pytest.raises(ModelError, match="so that its adapter is on in both"):
        identify((wrapped, byte_tokenizer()), base)
