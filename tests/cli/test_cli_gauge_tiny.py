"""`kleash gauge` from the command line to its exit code, on a model of two layers."""

import json
import shutil

import pytest
from tiny_model import CONTEXT

from kleash.cli.main import main

SMALL = ["--max-length", "6", "--limit", "4", "--no-cache"]


@pytest.fixture
def model(tiny_model_dir):
    return str(tiny_model_dir)


def copied(model, folder):
    shutil.copytree(model, folder)
    return folder


def refused(capsys, *words):
    """Run a command that must be refused; return what it says."""
    assert main(["gauge", *map(str, words)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kleash: ")
    assert "Traceback" not in said
    return said


def test_a_model_has_not_moved_from_itself(model, tmp_path, capsys):
    page = tmp_path / "page.html"
    words = [*SMALL, "--no-scale", "--json", "-", "--out", str(page), "--fail-above", "0"]
    assert main(["gauge", model, model, *words]) == 0
    captured = capsys.readouterr()
    (found,) = json.loads(captured.out)["gauges"]
    for name in ("reverse", "forward"):
        assert found[name]["per_sequence"]["maximum"] == 0.0
        assert {kl for reply in found[name]["replies"] for kl in reply["token_kl"]} == {0.0}
        assert len(found[name]["replies"]) == 4
    assert "ot moved" in captured.err
    assert found["verdict"] in captured.err
    assert "How far" in page.read_text()


def test_prompts_scores_and_given_text_of_ones_own(model, tmp_path, capsys):
    prompts, texts = tmp_path / "prompts.jsonl", tmp_path / "texts.txt"
    prompts.write_text("".join(f'{{"ask": "number {i}", "category": "c{i % 2}"}}\n' for i in range(6)))
    texts.write_text("one text\nanother text\n")
    scorer = tmp_path / "scorer.py"
    scorer.write_text("def length(completions, **columns):\n    return [float(len(text)) for text in completions]\n")
    words = [
        "--prompts",
        prompts,
        "--column",
        "ask",
        "--corpus",
        texts,
        "--samples",
        "2",
        "--score",
        f"{scorer}:length",
    ]
    assert main(["gauge", model, model, *SMALL, "--no-scale", "--json", "-", *map(str, words)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["gauges"]
    assert len(found["reverse"]["replies"]) == 8
    assert set(found["reverse"]["by_category"]) == {"c0", "c1"}
    assert found["corpus"]["texts"] == 2
    assert found["corpus"]["top1_agreement"]["value"] == 1.0
    assert [score["name"] for score in found["scores"]] == ["length"]


def test_prompts_that_are_not_there(model, tmp_path, capsys):
    said = refused(capsys, model, model, "--prompts", tmp_path / "none.txt")
    assert f"{tmp_path / 'none.txt'}" in said
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "no prompts" in refused(capsys, model, model, "--prompts", empty)


def test_a_column_that_is_not_there(model, tmp_path, capsys):
    path = tmp_path / "prompts.csv"
    path.write_text("question,category\nWhy?,chat\n")
    said = refused(capsys, model, model, "--prompts", path, "--column", "questoin")
    assert "no column 'questoin'" in said
    assert "Did you mean 'question'?" in said


def test_conversations_without_a_chat_template(model, tmp_path, capsys):
    bare = copied(model, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n')
    assert "has no chat template" in refused(capsys, bare, bare, "--prompts", path)


def test_another_tokenizer(model, tmp_path, capsys):
    other = copied(model, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    said = refused(capsys, model, other, *SMALL)
    assert "has another tokenizer" in said
    assert "2 tokens have other ids" in said


def test_a_prompt_longer_than_the_context(model, tmp_path, capsys):
    path = tmp_path / "prompts.txt"
    path.write_text("x" * CONTEXT + "\n")
    said = refused(capsys, model, model, "--prompts", path)
    assert f"more than the context of {CONTEXT} tokens" in said


def test_an_adapter_of_another_base(model, tmp_path, capsys):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/elsewhere"})
    )
    said = refused(capsys, model, adapter, *SMALL)
    assert "is an adapter for 'org/elsewhere'" in said


def test_a_gguf_of_an_unknown_architecture(model, tmp_path, capsys):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "nonsense")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    said = refused(capsys, model, path, *SMALL)
    assert f"{path} cannot be read by transformers" in said
    assert "nonsense" in said


def test_a_model_that_is_not_there(model, tmp_path, capsys):
    assert "no such local folder" in refused(capsys, model, tmp_path / "none", *SMALL)
