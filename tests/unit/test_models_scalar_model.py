"""Scores and values against plain Hugging Face code, members that share a backbone, and the folders they save."""

import json
from dataclasses import replace

import pytest
import torch
import transformers as hf
from peft import AutoPeftModelForSequenceClassification
from safetensors import safe_open
from tiny_run import SIZES, save_family
from torch import nn

from kleash.config.schema import Model
from kleash.models.batch import collate
from kleash.models.saved_reward import Rendering, open_saved
from kleash.models.scalar_loading import load_saved, load_scalar_model
from kleash.models.scalar_model import saved_pad_id
from kleash.models.tokenizer import Tokenizer

CPU = torch.device("cpu")
EOS, PAD = 257, 258
PROMPTS = [[256, 97, 98, 99, 100], [256, 101], [256, 102, 103]]
RESPONSES = [[104, 105, EOS], [106, EOS], [107, 108, 109, 110, 111, EOS]]


def batch(rows=range(3), pad=PAD):
    return collate([PROMPTS[i] for i in rows], [RESPONSES[i] for i in rows], pad=pad, device=CPU)


def scalar(folder, members=1, perturbed=True, dtype="float32", **settings):
    """Its trained weights are random, so that no two members agree."""
    table = Model(name=str(folder), dtype=dtype, **settings)
    made = load_scalar_model(table, members=members, seed=0, context=64, device=CPU)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in made.trained() if perturbed else ():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return made


def rows_of(model, folder, *, side):
    """Scores by a plain Hugging Face model: one padded batch."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    assert model.config.pad_token_id == tokenizer.pad_token_id
    tokenizer.padding_side = side
    rows = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    padded = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    positions = (padded.attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        return model.eval()(**padded, position_ids=positions).logits[:, 0]


FAMILIES = {
    "gpt2": hf.GPT2Config(
        vocab_size=261, n_embd=32, n_layer=2, n_head=2, n_positions=512, bos_token_id=256, eos_token_id=EOS
    ),
    "qwen2": hf.Qwen2Config(**SIZES),
}


@pytest.fixture(params=["llama", *FAMILIES])
def family(request, tmp_path_factory, tiny_model_dir):
    if request.param == "llama":
        return tiny_model_dir
    return save_family(tmp_path_factory.mktemp(request.param), FAMILIES[request.param])


def test_fresh_scores_are_exactly_zero(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=2, perturbed=False)
    assert torch.equal(ours.scores(batch(), 1), torch.zeros(3))
    assert torch.equal(ours.token_values(batch(), 0), torch.zeros(11))


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@pytest.mark.parametrize("side", ["left", "right"])
def test_plain_peft_scores_a_saved_adapter_the_same(family, tmp_path, side):
    ours = scalar(family)
    ours.save(tmp_path, Rendering())
    plain = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path, num_labels=1, pad_token_id=PAD)
    scores = ours.scores(batch(), 0)
    assert scores.abs().min() > 1e-3
    torch.testing.assert_close(scores, rows_of(plain, tmp_path, side=side), atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@pytest.mark.parametrize("side", ["left", "right"])
def test_plain_transformers_scores_a_saved_model_the_same(family, tmp_path, side):
    ours = scalar(family, lora=False)
    ours.save(tmp_path, Rendering())
    plain = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float32)
    assert plain.config.num_labels == 1
    scores = ours.scores(batch(), 0)
    assert scores.abs().min() > 1e-3
    torch.testing.assert_close(scores, rows_of(plain, tmp_path, side=side), atol=1e-5, rtol=0)


@pytest.mark.parametrize("pad", [PAD, EOS])
def test_scores_depend_neither_on_company_nor_on_the_padding(tiny_model_dir, pad):
    ours = scalar(tiny_model_dir)
    together = ours.scores(batch(pad=pad), 0)
    for row in range(3):
        alone = batch([row], pad=pad)
        assert alone.attention_mask is None
        torch.testing.assert_close(ours.scores(alone, 0), together[row : row + 1], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.scores(batch([2, 0, 1], pad=pad), 0), together[[2, 0, 1]], atol=1e-5, rtol=0)


def test_the_score_of_a_prefix_is_the_value_after_it(tiny_model_dir):
    ours = scalar(tiny_model_dir)
    values = ours.token_values(batch([0]), 0)
    prefixes = [PROMPTS[0] + RESPONSES[0][:length] for length in range(3)]
    one_by_one = [ours.scores(collate([prefix], [[]], pad=PAD, device=CPU), 0) for prefix in prefixes]
    torch.testing.assert_close(values, torch.cat(one_by_one), atol=1e-5, rtol=0)


def test_values_come_row_by_row(tiny_model_dir):
    ours = scalar(tiny_model_dir)
    alone = [ours.token_values(batch([row]), 0) for row in range(3)]
    torch.testing.assert_close(ours.token_values(batch(), 0), torch.cat(alone), atol=1e-5, rtol=0)


def test_a_backward_reaches_its_own_member_and_no_other(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=2)
    with ours.active(1):
        ours.scores(batch(), 1).sum().backward()
    reached = {name for name, parameter in ours.trained() if parameter.grad is not None}
    assert reached == {name for name, _ in ours.trained() if ".member_1." in name}
    assert "score.member_1.weight" in reached


def test_outside_of_active_the_adapter_gets_no_gradient(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=2)
    ours.scores(batch(), 1).sum().backward()
    assert {name for name, parameter in ours.trained() if parameter.grad is not None} == {"score.member_1.weight"}


def test_gradients_are_those_of_plain_peft(tiny_model_dir, tmp_path):
    ours = scalar(tiny_model_dir)
    ours.save(tmp_path, Rendering())
    plain = AutoPeftModelForSequenceClassification.from_pretrained(
        tmp_path, is_trainable=True, num_labels=1, pad_token_id=PAD
    )
    plain.eval()(input_ids=batch().input_ids, attention_mask=batch().attention_mask).logits.sum().backward()
    with ours.active(0):
        ours.scores(batch(), 0).sum().backward()
    theirs = {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}
    for name, parameter in ours.trained():
        if name == "score.member_0.weight":
            twin = theirs.pop("base_model.model.score.modules_to_save.default.weight")
        else:
            twin = theirs.pop("base_model.model." + name.replace(".member_0.", ".default."))
        torch.testing.assert_close(parameter.grad, twin, atol=1e-4, rtol=1e-4)
    assert not theirs


def test_nested_blocks_put_back_what_was_active(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=3)
    flags = {}

    def trainable():
        return {name.split(".")[-2] for name, p in ours.trained() if "lora_" in name and p.requires_grad}

    flags["before"] = trainable()
    with ours.active(2):
        with ours.active(1):
            flags["inner"] = trainable()
        flags["outer"] = trainable()
    flags["after"] = trainable()
    assert flags == {"before": {"member_0"}, "inner": {"member_1"}, "outer": {"member_2"}, "after": {"member_0"}}


def test_names_are_unique_and_the_same_whoever_is_active(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=2)
    names = [name for name, _ in ours.trained()]
    assert len(set(names)) == len(names) == 2 * (2 * 7 * 2 + 1)
    with ours.active(1):
        assert [name for name, _ in ours.trained()] == names


def test_whole_training_trains_every_weight_and_freezes_none(tiny_model_dir):
    ours = scalar(tiny_model_dir, lora=False)
    ours.scores(batch(), 0).sum().backward()
    assert all(parameter.grad is not None for _, parameter in ours.trained())
    assert "score.weight" in dict(ours.trained())
    assert ours.fingerprint() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_fingerprint_is_of_the_frozen_part(tiny_model_dir):
    ours, other = scalar(tiny_model_dir), scalar(tiny_model_dir, perturbed=False)
    assert ours.fingerprint() == other.fingerprint()
    with torch.no_grad():
        other.model.base_model.embed_tokens.weight[0, 0] += 1
    assert ours.fingerprint() != other.fingerprint()


def test_memory_is_that_of_all_its_weights(tiny_model_dir):
    ours = scalar(tiny_model_dir, members=2)
    backbone = hf.AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    per_layer = 16 * (4 * 32 + 32 + 16 + 32 + 16 + 32 + 32 + 3 * (32 + 64)) - 16 * 2 * 32
    added = 2 * (2 * per_layer + 32)
    assert ours.extra_bytes == 4 * (backbone.num_parameters() + added)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [{}, {"lora": False}])
def test_a_saved_model_comes_back_to_the_bit(tiny_model_dir, tmp_path, lora, dtype):
    ours = scalar(tiny_model_dir, dtype=dtype, **lora)
    ours.save(tmp_path, Rendering())
    again = load_saved(open_saved(tmp_path), context=64, device=CPU, dtype=ours.dtype)
    assert again.members[0].head.weight.dtype == torch.float32
    stored = dict(again.trained())
    assert stored.keys() == dict(ours.trained()).keys()
    assert all(torch.equal(parameter, stored[name]) for name, parameter in ours.trained())
    assert torch.equal(again.scores(batch(), 0), ours.scores(batch(), 0))


def test_members_are_saved_one_by_one(tiny_model_dir, tmp_path):
    ours = scalar(tiny_model_dir, members=2)
    ours.save(tmp_path, Rendering(False, True, "Be brief."))
    saved = open_saved(tmp_path)
    assert saved.members == (tmp_path / "member_0", tmp_path / "member_1")
    assert saved.rendering == Rendering(False, True, "Be brief.")
    again = load_saved(saved, context=64, device=CPU, dtype=torch.float32)
    for member in (0, 1):
        assert torch.equal(again.scores(batch(), member), ours.scores(batch(), member))
        alone = load_saved(open_saved(saved.members[member]), context=64, device=CPU, dtype=torch.float32)
        assert torch.equal(alone.scores(batch(), 0), ours.scores(batch(), member))
    assert not torch.equal(ours.scores(batch(), 0), ours.scores(batch(), 1))


def test_what_an_adapter_folder_holds(tiny_model_dir, tmp_path):
    scalar(tiny_model_dir, revision="abc").save(tmp_path, Rendering())
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["task_type"], config["modules_to_save"], config["revision"]) == ("SEQ_CLS", ["score"], "abc")
    assert config["base_model_name_or_path"] == str(tiny_model_dir)
    with safe_open(tmp_path / "adapter_model.safetensors", framework="pt") as file:
        assert list(file.get_slice("base_model.model.score.weight").get_shape()) == [1, 32]
        assert len(list(file.keys())) == 2 * 7 * 2 + 1
    written = json.loads((tmp_path / "kleash.json").read_text())
    assert written == {"append_stop": True, "as_chat": False, "system_prompt": None, "origin": 0.0}


def test_padding_that_is_saved_is_not_the_stop_token(tiny_model_dir, tmp_path):
    inner = hf.AutoTokenizer.from_pretrained(tiny_model_dir)
    own = Tokenizer(inner, "tiny", 512, (EOS, 260), PAD)
    assert saved_pad_id(own) == PAD
    inner.pad_token_id = EOS
    assert saved_pad_id(own) == PAD
    inner.pad_token = None
    assert saved_pad_id(own) == PAD
    assert saved_pad_id(Tokenizer(inner, "tiny", 512, (EOS, 260, PAD, 259), PAD)) == 256


def test_without_another_special_token_the_stop_token_pads():
    inner = hf.PreTrainedTokenizerFast(tokenizer_object=_words(), eos_token="</s>")
    assert saved_pad_id(Tokenizer(inner, "words", 8, (1,), 1)) == 1


def _words():
    from tokenizers import Tokenizer as Words
    from tokenizers.models import WordLevel

    return Words(WordLevel({"a": 0, "</s>": 1}, unk_token="a"))


def test_saving_leaves_the_tokenizer_alone(tiny_model_dir, tmp_path):
    ours = scalar(tiny_model_dir)
    ours.tokenizer.inner.pad_token = None
    ours.save(tmp_path, Rendering())
    assert ours.tokenizer.inner.pad_token_id is None
    assert hf.AutoTokenizer.from_pretrained(tmp_path).pad_token_id == PAD


def test_a_head_with_a_bias_adds_it(tiny_model_dir, tmp_path):
    ours = scalar(tiny_model_dir)
    before = ours.scores(batch(), 0)
    biased = nn.Linear(32, 1)
    with torch.no_grad():
        biased.weight.copy_(ours.members[0].head.weight)
        biased.bias.fill_(2.5)
    ours = replace(ours, members=(replace(ours.members[0], head=biased),))
    torch.testing.assert_close(ours.scores(batch(), 0), before + 2.5, atol=1e-5, rtol=0)
    assert dict(ours.trained())["score.member_0.bias"] is biased.bias
    ours.save(tmp_path, Rendering())
    again = load_saved(open_saved(tmp_path), context=64, device=CPU, dtype=torch.float32)
    assert torch.equal(again.scores(batch(), 0), ours.scores(batch(), 0))
