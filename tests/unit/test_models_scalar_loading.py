"""Where reward models and critics come from, what is refused, and that a critic leaves its policy alone."""

import json
import shutil

import pytest
import torch
import transformers as hf
from peft import AutoPeftModelForSequenceClassification, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_model import byte_tokenizer, save_tiny_model
from tiny_run import SIZES, perturb, policy

from kleash.config.schema import Lora, Model
from kleash.errors import ModelError
from kleash.models.batch import collate
from kleash.models.saved_reward import Rendering, open_saved
from kleash.models.scalar_loading import (
    critic_from_reward_model,
    critic_on_policy,
    load_saved,
    load_scalar_model,
    merge,
)
from kleash.models.scoring import response_hidden
from kleash.training.state import save_weights

CPU = torch.device("cpu")
EOS, PAD = 257, 258


def batch():
    return collate([[256, 97, 98], [256, 99]], [[100, EOS], [101, 102, 103, EOS]], pad=PAD, device=CPU)


def load(folder, members=1, seed=0, **settings):
    table = Model(name=str(folder), dtype="float32", **settings)
    return load_scalar_model(table, members=members, seed=seed, context=64, device=CPU)


def random_weights(scalar, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in scalar.trained():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return scalar


def classifier(folder, **settings):
    """A random Hugging Face classifier with the byte tokenizer."""
    torch.manual_seed(3)
    model = hf.LlamaForSequenceClassification(hf.LlamaConfig(**SIZES, **settings))
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return model.eval()


def saved_adapter(base, folder, members=1, **settings):
    random_weights(load(base, members=members, **settings)).save(folder, Rendering())
    return folder


def test_a_classifier_keeps_its_head(tmp_path):
    theirs = classifier(tmp_path, num_labels=1)
    ours = load(tmp_path, members=2)
    with torch.no_grad():
        expected = theirs(input_ids=batch().input_ids, attention_mask=batch().attention_mask.long()).logits[:, 0]
    assert expected.abs().min() > 1e-3
    for member in (0, 1):
        torch.testing.assert_close(ours.scores(batch(), member), expected, atol=1e-5, rtol=0)
    assert ours.members[0].head is not ours.members[1].head


def test_members_start_with_different_adapters_and_the_seed_repeats_them(tiny_model_dir):
    first, again, next_seed = (dict(load(tiny_model_dir, 2, seed).trained()) for seed in (0, 0, 5))
    down = "model.layers.0.self_attn.q_proj.lora_A.member_{}.weight"
    assert not torch.equal(first[down.format(0)], first[down.format(1)])
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first[down.format(0)], next_seed[down.format(0)])


def test_loading_says_nothing_and_draws_no_random_number(tiny_model_dir, capfd):
    load(tiny_model_dir)
    torch.manual_seed(7)
    load(tiny_model_dir)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(7)))
    assert capfd.readouterr().err == ""


def test_dropout_is_off_and_checkpointing_changes_no_gradient(tmp_path):
    classifier(tmp_path, num_labels=1, attention_dropout=0.5)
    gradients = []
    for checkpointing in (False, True):
        ours = load(tmp_path, gradient_checkpointing=checkpointing)
        random_weights(ours)
        with ours.active(0):
            ours.scores(batch(), 0).sum().backward()
        gradients.append([parameter.grad for _, parameter in ours.trained()])
    assert ours.model.training
    assert all(torch.equal(plain, again) for plain, again in zip(*gradients, strict=True))


def test_a_classifier_of_several_labels_is_refused(tmp_path):
    classifier(tmp_path, num_labels=3)
    for attempt in (load, open_saved):
        with pytest.raises(ModelError, match="num_labels = 3: a reward is one number"):
            attempt(tmp_path)


def test_an_encoder_is_refused_with_the_name_of_its_head(tmp_path):
    config = hf.BertConfig(
        vocab_size=261,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        eos_token_id=EOS,
        num_labels=1,
    )
    hf.BertForSequenceClassification(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"has its head in classifier.weight, classifier.bias; only decoders"):
        load(tmp_path)
    with pytest.raises(ModelError, match=r"head not found: .* classifier.bias, classifier.weight"):
        open_saved(tmp_path)


def test_a_value_head_of_another_name_is_refused(tiny_model_dir, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "v_head")
    weights = load_file(folder / "model.safetensors") | {"v_head.summary.weight": torch.zeros(1, 32)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"has its head in v_head.summary.weight.*called 'score'"):
        load(folder)


def test_a_classifier_without_its_head_is_refused(tmp_path):
    classifier(tmp_path, num_labels=1)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for attempt in (load, open_saved):
        with pytest.raises(ModelError, match="head not found: "):
            attempt(tmp_path)


@pytest.mark.parametrize(
    ("settings", "members", "message"),
    [
        ({"lora": False}, 2, "members = 2 with model.lora = false"),
        ({"adapter": "sft"}, 1, "model.adapter = 'sft' cannot be continued"),
        ({"lora": Lora(target_modules=("nothing",))}, 1, "matches no linear layer"),
        ({"lora": Lora(target_modules=("embed_tokens",))}, 1, r"trains 'model.embed_tokens' \(Embedding\)"),
    ],
)
def test_settings_that_cannot_be_scored_with_are_refused(tiny_model_dir, settings, members, message):
    with pytest.raises(ModelError, match=message):
        load(tiny_model_dir, members=members, **settings)


def test_a_run_directory_stands_for_its_newest_checkpoint(tiny_model_dir, tmp_path):
    for step in (2, 10):
        saved_adapter(tiny_model_dir, tmp_path / "checkpoints" / f"step_{step}")
    (tmp_path / "checkpoints" / ".step_11.unfinished").mkdir()
    saved = open_saved(tmp_path)
    assert saved.folder == tmp_path / "checkpoints" / "step_10"
    assert (saved.members, saved.base, saved.rendering) == ((saved.folder,), str(tiny_model_dir), Rendering())


def test_more_than_ten_members_stay_in_their_order(tiny_model_dir, tmp_path):
    one = saved_adapter(tiny_model_dir, tmp_path / "one")
    for index in range(11):
        shutil.copytree(one, tmp_path / "many" / f"member_{index}")
    assert [member.name for member in open_saved(tmp_path / "many").members] == [f"member_{i}" for i in range(11)]


def test_paths_that_are_no_reward_model_are_refused(tiny_model_dir, tmp_path):
    with pytest.raises(ModelError, match="there is no such folder"):
        open_saved(tmp_path / "missing")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelError, match="has no checkpoint yet"):
        open_saved(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(ModelError, match=r"neither adapter_config.json nor config.json, but notes.txt"):
        open_saved(tmp_path / "other")
    save_weights(policy(tiny_model_dir), tmp_path / "policy")
    with pytest.raises(ModelError, match=r"head not found: .*28 tensors.*algorithm.type = 'reward_model'"):
        open_saved(tmp_path / "policy")
    with pytest.raises(ModelError, match=r"head not found: .*outside of its layers model.embed_tokens.weight"):
        open_saved(tiny_model_dir)


def test_a_base_that_has_gone_is_named(tmp_path):
    base = save_tiny_model(tmp_path / "base")
    folder = saved_adapter(base, tmp_path / "reward")
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"belongs to the local folder '.*base', which has gone away"):
        open_saved(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": None}))
    with pytest.raises(ModelError, match="names no base model"):
        open_saved(folder)


def test_files_that_are_torn_are_refused(tiny_model_dir, tmp_path):
    folder = saved_adapter(tiny_model_dir, tmp_path)
    (folder / "kleash.json").write_text('{"append_stop": true}')
    with pytest.raises(ModelError, match=r"kleash.json lacks 'as_chat'"):
        open_saved(folder)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ModelError, match="cannot be read"):
        open_saved(folder)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        open_saved(folder)


def test_members_of_different_bases_are_refused(tiny_model_dir, tmp_path):
    other = save_tiny_model(tmp_path / "other")
    saved_adapter(tiny_model_dir, tmp_path / "both" / "member_0")
    saved_adapter(other, tmp_path / "both" / "member_1")
    with pytest.raises(ModelError, match="members of different bases"):
        open_saved(tmp_path / "both")


def test_a_folder_that_peft_wrote_scores_the_same(tiny_model_dir, tmp_path):
    torch.manual_seed(0)
    base = hf.AutoModelForSequenceClassification.from_pretrained(tiny_model_dir, num_labels=1)
    config = LoraConfig(task_type="SEQ_CLS", r=4, lora_dropout=0.3, use_rslora=True, init_lora_weights=False)
    plain = get_peft_model(base, config).eval()
    plain.save_pretrained(tmp_path)
    saved = open_saved(tmp_path)
    assert saved.rendering == Rendering(True, False, None)
    ours = load_saved(saved, context=64, device=CPU, dtype=torch.float32)
    with torch.no_grad():
        expected = plain(input_ids=batch().input_ids, attention_mask=batch().attention_mask.long()).logits[:, 0]
    torch.testing.assert_close(ours.scores(batch(), 0), expected, atol=1e-5, rtol=0)


def test_adapters_with_other_arithmetic_are_refused(tiny_model_dir, tmp_path):
    base = hf.AutoModelForSequenceClassification.from_pretrained(tiny_model_dir, num_labels=1)
    get_peft_model(base, LoraConfig(task_type="SEQ_CLS", use_dora=True)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="use_dora = True"):
        load_saved(open_saved(tmp_path), context=64, device=CPU)


def test_an_adapter_of_another_shape_is_refused(tiny_model_dir, tmp_path):
    folder = saved_adapter(tiny_model_dir, tmp_path)
    weights = load_file(folder / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"
    save_file(weights | {name: torch.zeros(16, 31)}, folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=rf"does not fit its base: 1 tensors differ.*{name}"):
        load_saved(open_saved(folder), context=64, device=CPU)


def test_merged_it_is_an_ordinary_classifier(tiny_model_dir, tmp_path):
    ours = random_weights(load(tiny_model_dir))
    ours.save(tmp_path / "adapter", Rendering(False, True, "Be kind."))
    merge(tmp_path / "adapter", tmp_path / "merged")
    plain = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    assert (plain.config.num_labels, plain.config.pad_token_id) == (1, PAD)
    with torch.no_grad():
        merged = plain(input_ids=batch().input_ids, attention_mask=batch().attention_mask.long()).logits[:, 0]
    assert open_saved(tmp_path / "merged").rendering == Rendering(False, True, "Be kind.")
    with pytest.raises(ModelError, match="no adapter to merge"):
        merge(tmp_path / "merged", tmp_path / "again")
    torch.testing.assert_close(merged, ours.scores(batch(), 0), atol=1e-5, rtol=0)


def test_an_ensemble_makes_no_one_model(tiny_model_dir, tmp_path):
    saved_adapter(tiny_model_dir, tmp_path, members=2)
    with pytest.raises(ModelError, match=r"2 members, which make no one model. Merge one, such as .*member_0"):
        merge(tmp_path, tmp_path / "out")


def snapshot(ours):
    """Everything of a policy that a critic could disturb."""
    return {
        "hidden": ours.hidden(batch()).detach(),
        "sampled": response_hidden(ours.model_to_sample(), batch()).detach(),
        **{f"trained {name}": parameter.detach().clone() for name, parameter in ours.trained()},
        **{f"frozen {name}": parameter.detach().clone() for name, parameter in ours.frozen()},
    }


def assert_same(before, after):
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def train(critic, steps=3):
    """Real updates of every weight of the critic."""
    optimizer = torch.optim.AdamW([parameter for _, parameter in critic.trained()], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        with critic.active(0):
            (critic.token_values(batch(), 0) - 1.0).square().sum().backward()
        optimizer.step()


def test_a_critic_on_the_policy_changes_no_number_of_it(tiny_model_dir, tmp_path):
    ours = policy(tiny_model_dir)
    perturb(ours)
    before = snapshot(ours)
    save_weights(ours, tmp_path / "before")
    critic = critic_on_policy(ours, settings=Model(name=str(tiny_model_dir), lora=Lora(r=4)), seed=0, context=64)
    assert torch.equal(critic.token_values(batch(), 0), torch.zeros(6))
    assert_same(before, snapshot(ours))
    train(critic)
    assert_same(before, snapshot(ours))
    assert critic.token_values(batch(), 0).abs().min() > 0.01
    save_weights(ours, tmp_path / "after")
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()


def test_updates_of_the_policy_leave_the_critic_alone(tiny_model_dir):
    ours = policy(tiny_model_dir)
    critic = critic_on_policy(ours, settings=Model(name=str(tiny_model_dir)), seed=0, context=64)
    train(critic)
    before = critic.token_values(batch(), 0)
    fingerprint = critic.fingerprint()
    perturb(ours)
    assert torch.equal(critic.token_values(batch(), 0), before)
    assert critic.fingerprint() == fingerprint
    ours.hidden(batch()).sum().backward()
    assert all(parameter.grad is not None for _, parameter in ours.trained())


def test_within_the_reference_a_critic_still_runs_its_own_adapter(tiny_model_dir, tmp_path):
    first = policy(tiny_model_dir)
    perturb(first)
    save_weights(first, tmp_path)
    ours = policy(tiny_model_dir, f"model.adapter={tmp_path}")
    critic = random_weights(critic_on_policy(ours, settings=Model(name=str(tiny_model_dir)), seed=0, context=64))
    expected = critic.token_values(batch(), 0)
    with ours.switched("reference"):
        assert torch.equal(critic.token_values(batch(), 0), expected)
        assert ours.trained() == []
    with ours.switched(None), pytest.raises(AssertionError, match="adapters are switched off"):
        critic.token_values(batch(), 0)
    assert len(ours.trained()) == 28


def test_a_critic_takes_only_the_memory_of_its_adapter(tiny_model_dir):
    ours = policy(tiny_model_dir)
    critic = critic_on_policy(ours, settings=Model(name=str(tiny_model_dir), lora=Lora(r=1)), seed=0, context=64)
    per_layer = 32 + 32 + 32 + 16 + 32 + 16 + 32 + 32 + 3 * (32 + 64)
    assert critic.extra_bytes == 4 * (2 * per_layer + 32)


def test_a_policy_that_is_trained_whole_gets_a_critic_of_its_own(tiny_model_dir):
    ours = policy(tiny_model_dir, "model.lora=false")
    table = Model(name=str(tiny_model_dir), dtype="float32", lora=False)
    critic = critic_on_policy(ours, settings=table, seed=0, context=64)
    assert not critic.borrowed
    assert not {id(p) for _, p in critic.trained()} & {id(p) for _, p in ours.trained()}
    assert torch.equal(critic.token_values(batch(), 0), torch.zeros(6))


def test_a_reward_model_on_the_same_base_is_loaded_onto_the_policy(tiny_model_dir, tmp_path):
    folder = saved_adapter(tiny_model_dir, tmp_path)
    ours = policy(tiny_model_dir)
    perturb(ours)
    before = snapshot(ours)
    critic = critic_from_reward_model(ours, open_saved(folder), context=64)
    assert critic.borrowed
    assert_same(before, snapshot(ours))
    plain = AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=1, pad_token_id=PAD).eval()
    with torch.no_grad():
        expected = plain(input_ids=batch().input_ids, attention_mask=batch().attention_mask.long()).logits[:, 0]
    torch.testing.assert_close(critic.scores(batch(), 0), expected, atol=1e-5, rtol=0)
    train(critic)
    assert_same(before, snapshot(ours))


def test_a_reward_model_that_does_not_fit_the_policy_is_a_model_of_its_own(tiny_model_dir, tmp_path):
    narrow = saved_adapter(tiny_model_dir, tmp_path / "narrow", lora=Lora(target_modules=("q_proj",)))
    elsewhere = saved_adapter(save_tiny_model(tmp_path / "base", seed=1), tmp_path / "elsewhere")
    classifier(tmp_path / "whole", num_labels=1)
    ours = policy(tiny_model_dir)
    for folder in (narrow, elsewhere, tmp_path / "whole"):
        saved = open_saved(folder)
        critic = critic_from_reward_model(ours, saved, context=64)
        assert not critic.borrowed
        alone = load_saved(saved, context=64, device=CPU, dtype=torch.float32)
        assert torch.equal(critic.scores(batch(), 0), alone.scores(batch(), 0))
        train(critic, steps=1)


def test_a_critic_starts_from_one_member_with_the_tokens_of_the_policy(tiny_model_dir, tmp_path):
    ours = policy(tiny_model_dir)
    saved = open_saved(saved_adapter(tiny_model_dir, tmp_path / "both", members=2))
    with pytest.raises(ModelError, match=r"2 members, and a critic starts from one. Set algorithm.critic.start = .*_0"):
        critic_from_reward_model(ours, saved, context=64)
    classifier(tmp_path / "whole", num_labels=1)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|more|>"])
    tokenizer.save_pretrained(tmp_path / "whole")
    with pytest.raises(ModelError, match=r"tokenizer is not that of the policy.*sizes 262 and 261"):
        critic_from_reward_model(ours, open_saved(tmp_path / "whole"), context=64)
