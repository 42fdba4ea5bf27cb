"""The small model that recipes train: its texts, its prompts, and a few steps of its training."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.small_model import make as small  # noqa: E402

TEXTS = [f"the film number {i} was a joy to watch, and so was the one after it" for i in range(40)]


def test_there_are_a_hundred_sums_and_they_are_right():
    sums = small.sums()
    assert (len(sums), len(set(sums))) == (100, 100)
    assert {"zero plus zero is zero.", "nine plus nine is eighteen.", "seven plus five is twelve."} <= set(sums)


def test_a_tenth_is_held_out_the_same_each_time():
    seen, unseen = small.split({"movies": TEXTS})["movies"]
    assert (len(seen), len(unseen)) == (36, 4)
    assert sorted(seen + unseen) == sorted(TEXTS)
    assert small.split({"movies": TEXTS, "tweets": ["a"]})["movies"] == (seen, unseen)


def test_openers_are_first_words_of_what_goes_on_after_them():
    reviews = [
        "A Film of Two Halves and no middle",
        "a film of wit, a film of heart",
        "too short to go on",
        "b c d e f g h",
    ]
    assert small.openers(reviews) == ["a film of", "b c d"]


def test_it_is_made_once_and_reads_like_any_other_folder(tmp_path, monkeypatch):
    archive = {"movies": TEXTS, "tweets": [f"good morning {i}" for i in range(20)]}
    parsed = {
        kind: SimpleNamespace(snippets=[SimpleNamespace(text=f" {t}\n") for t in texts])
        for kind, texts in archive.items()
    }
    monkeypatch.setattr(small, "fetch", lambda: b"")
    monkeypatch.setattr(small, "read_archive", lambda _: parsed)
    monkeypatch.setattr(small, "EPOCHS", 2)
    monkeypatch.setattr(small, "VOCABULARY", 300)
    folder = small.made(tmp_path)
    written = (folder / "config.json").stat().st_mtime_ns
    assert small.made(tmp_path) == folder
    assert (folder / "config.json").stat().st_mtime_ns == written

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("Two plus Two is four.").input_ids) == "two plus two is four."
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<stop>", model.config.eos_token_id)
    assert (tmp_path / "sums.txt").read_text().splitlines() == small.sums()
    assert len((tmp_path / "movies.txt").read_text().splitlines()) == 36
    (prompt, *_) = [json.loads(line)["prompt"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert prompt == "the film number"


def test_loss_is_nats_per_token_with_the_stop_counted():
    model = small.untrained(300)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    tokenizer = small.tokenizer_of(TEXTS)
    assert small.loss(model, tokenizer, ["a joy", "and so was it"]) == pytest.approx(math.log(300))
