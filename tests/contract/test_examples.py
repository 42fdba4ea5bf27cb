"""What users copy works: the one-file loop, and the pages of docs that are written by code or lead elsewhere."""

import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kleash.choices import ALLOWED, REFUSED
from kleash.metrics import METRICS

ROOT = Path(__file__).parents[2]
LOOP = ROOT / "examples" / "loop_in_one_file.py"
PAGES = sorted((ROOT / "docs").glob("*.md"))


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny_model(tmp_path):
    """A random 2-layer Llama with a byte tokenizer, in a folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate(["<end>", *alphabet])}
    inner = Tokenizer(models.BPE(vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>").save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


def test_the_loop_starts_at_kl_zero_and_moves(tiny_model):
    loop = load(LOOP)
    loop.reward = lambda text: float(sum(letter.islower() for letter in text))
    torch.manual_seed(1)
    policy, tokenizer = loop.load(tiny_model)
    frozen = {name: p.clone() for name, p in policy.named_parameters() if not p.requires_grad}
    first, *later = loop.train(policy, tokenizer, 3)
    assert first.kl_nats_per_sequence == 0.0
    assert first.beta == loop.STARTING_BETA
    assert all(0 < step.kl_nats_per_sequence < math.inf for step in later)
    assert all(torch.equal(p, frozen[name]) for name, p in policy.named_parameters() if name in frozen)


def test_the_loop_prints_steps_and_samples_from_the_command_line(tiny_model, capsys):
    loop = load(LOOP)
    loop.main([tiny_model, "--steps", "1"])
    header, first, *rest = capsys.readouterr().out.splitlines()
    assert header.split("  ") == ["step", "reward", "KL (nats per sequence)", "beta (reward per nat)"]
    assert first.split()[0] == "0"
    assert float(first.split()[2]) == 0.0
    assert sum(line.startswith("  policy:") for line in rest) == len(loop.PROMPTS)


def test_the_loop_stops_counting_after_the_first_stop_token(tiny_model):
    loop = load(LOOP)
    policy, tokenizer = loop.load(tiny_model)
    torch.manual_seed(0)
    with torch.no_grad():  # every token is then equally likely, the stop token too
        policy.get_base_model().get_output_embeddings().weight.zero_()
        rollout = loop.sample(policy, tokenizer, ["a", "bcd"] * 400)
    responses = rollout.tokens[:, -rollout.response_mask.shape[1] :].tolist()
    lengths = [row.index(0) + 1 if 0 in row else len(row) for row in responses]
    assert rollout.response_mask.sum(dim=1).tolist() == lengths
    assert min(lengths) < max(lengths)
    assert rollout.attention_mask.sum(dim=1).tolist() == [
        length + prompt for length, prompt in zip(lengths, [1, 3] * 400, strict=True)
    ]


@pytest.mark.parametrize(("text", "expected"), [("Seven silent seals", 1.0), ("She sells, he buys", 0.5), ("", 0.0)])
def test_the_reward_of_the_loop(text, expected):
    assert load(LOOP).reward(text) == expected


def test_the_beta_of_the_loop_rises_above_the_target_and_falls_below():
    loop = load(LOOP)
    at_target, integral = loop.next_beta(loop.TARGET, 100, math.log(0.05))
    assert (at_target, integral) == (pytest.approx(0.05), math.log(0.05))
    above, integral = loop.next_beta(math.e * loop.TARGET, 100, math.log(0.05))
    assert above == pytest.approx(0.05 * math.exp(2.08))
    assert integral == pytest.approx(math.log(0.05) + 0.08)
    below, _ = loop.next_beta(0.0, 100, math.log(0.05))
    assert below == pytest.approx(0.05 * math.exp(-2.08))


def test_the_loop_is_short_and_stands_on_the_two_pure_packages():
    source = LOOP.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 200
    imported = set(re.findall(r"^from kleash\.(\w+)", source, re.MULTILINE))
    assert imported == {"kl", "ops"}


@pytest.mark.parametrize("name", ["metrics.md", "configuration.md", "rules.md", "kl.md"])
def test_a_written_page_is_up_to_date(name):
    generate = load(ROOT / "docs" / "generate.py")
    page = ROOT / "docs" / name
    assert generate.pages()[page] == page.read_text(encoding="utf-8"), "run: python docs/generate.py"


def test_every_metric_has_a_row():
    rows = re.findall(r"^\| `([\w/]+)` \|", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(METRICS)


def test_every_penalty_is_in_the_table_with_its_gradient_or_its_reason():
    text = (ROOT / "docs" / "kl.md").read_text(encoding="utf-8")
    rows = {tuple(re.split(r" *\| *", line)[1:4]): line for line in text.splitlines() if line.startswith("| `")}
    for choice in ALLOWED:
        row = rows[f"`{choice.estimator}`", f"`{choice.scope}`", f"`{choice.placement}`"]
        assert choice.gradient in row
        assert ("only on-policy" in row) == choice.on_policy_only
    for names, reason in REFUSED.items():
        assert reason in rows[tuple(f"`{name}`" for name in names)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_index_names_every_page_once():
    linked = re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert sorted(linked) == [page.name for page in PAGES if page.name != "index.md"]
