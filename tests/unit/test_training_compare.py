"""Reference and policy side by side, and runs as something to ship."""

import tempfile
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from plain_user import as_plain_user
from tiny_run import Remembering, settings
from transformers import AutoModelForCausalLM

from kleash.errors import ModelError, RunDirError
from kleash.training import export as exporting
from kleash.training.compare import checkpoint_of, side_by_side
from kleash.training.export import export
from kleash.training.observer import Silent
from kleash.training.run import train

TOKENS = torch.tensor([[256, 104, 101, 108, 108, 111]])


@pytest.fixture(scope="module")
def run(tiny_model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = settings(
        tiny_model_dir, folder, "prompts.held_out=3", "training.learning_rate=0.02", "training.checkpoint_every=2"
    )
    return train(config, observer=Silent())


def test_both_models_answer_and_each_token_has_its_kl(run):
    pairs = side_by_side(run, ["hello", "a longer prompt"], samples=2, max_length=6)
    assert [pair.prompt for pair in pairs] == ["hello", "hello", "a longer prompt", "a longer prompt"]
    for pair in pairs:
        assert 1 <= len(pair.tokens) == len(pair.token_kl) <= 6
        assert pair.kl == pytest.approx(sum(pair.token_kl))
        assert pair.kl > 0.01
        assert pair.policy_text != pair.reference_text


def test_an_earlier_checkpoint_has_drifted_less(run):
    later, earlier = (
        sum(pair.kl for pair in side_by_side(run, ["hello"], samples=8, step=step, max_length=8)) for step in (4, 2)
    )
    assert 0 < earlier < later


def test_a_checkpoint_that_is_not_there(run):
    with pytest.raises(RunDirError, match=r"has no checkpoint of step 3; there are \[0, 2, 4\]. Choose one of these"):
        side_by_side(run, ["hello"], step=3)


def test_merged_and_unmerged_exports_are_the_same_model(run, tiny_model_dir, tmp_path):
    export(run, tmp_path / "adapter", step=None, merge=False, observer=Silent())
    export(run, tmp_path / "merged", step=4, merge=True, observer=Silent())
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    unmerged = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(merged(TOKENS).logits, unmerged(TOKENS).logits, rtol=1e-4, atol=1e-4)
    card = (tmp_path / "merged" / "README.md").read_text()
    assert "KL(merged ‖ unmerged), nats per sequence" in card
    assert "| KL to the reference, nats per sequence | 4 |" in card
    assert not (tmp_path / "adapter" / "training_state.pt").exists()


@pytest.mark.parametrize("where", [".", "below"])
def test_an_export_to_a_read_only_folder_is_refused(run, monkeypatch, where):
    found = checkpoint_of(run, None)
    monkeypatch.setattr(exporting, "checkpoint_of", lambda *_: found)
    monkeypatch.setattr(exporting, "_alarms", lambda *_: [])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with as_plain_user(), pytest.raises(RunDirError, match=r"cannot be written: Permission denied\. Give another"):
            export(run, Path(folder) / where, step=None, merge=False, observer=Remembering())
        Path(folder).chmod(0o755)


def test_exports_that_cannot_be(run, tiny_model_dir, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(RunDirError, match="is not empty"):
        export(run, tmp_path / "taken", step=None, merge=False, observer=Remembering())
    with pytest.raises(RunDirError, match=r"taken/file is a file, .*another folder with --out"):
        export(run, tmp_path / "taken" / "file", step=None, merge=False, observer=Remembering())
    with pytest.raises(RunDirError, match=r"file/below cannot be written: Not a directory\. Give another folder"):
        export(run, tmp_path / "taken" / "file" / "below", step=None, merge=False, observer=Remembering())
    whole = train(
        settings(tiny_model_dir, tmp_path, "model.lora=false", "training.steps=1"),
        observer=Silent(),
    )
    with pytest.raises(ModelError, match="trained whole weights: there is no adapter to merge"):
        export(whole, tmp_path / "out", step=None, merge=True, observer=Remembering())
