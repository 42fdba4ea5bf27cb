"""A checkpoint that lies under an alarm is exported only when that is asked for, and its card says so."""

import shutil
from pathlib import Path

import pytest
from scripted_rules import Scripted
from tiny_run import Remembering, settings

from kleash.errors import RunDirError
from kleash.monitor import monitor
from kleash.training import export as export_module
from kleash.training.export import export
from kleash.training.observer import Silent
from kleash.training.run import train


@pytest.fixture(scope="module")
def run(tiny_model_dir, tmp_path_factory):
    """Checkpoints 0, 2 and 4, of which 2 and 4 lie under an alarm."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitor, "make_rules", lambda: [Scripted({3: "critical"}, "kl/spike", began=1)])
        config = settings(tiny_model_dir, tmp_path_factory.mktemp("suspect"), "training.checkpoint_every=2")
        return train(config, observer=Silent())


def exported(run, out, **how):
    return export(run, out, **({"step": None, "merge": False, "observer": Remembering()} | how))


@pytest.mark.parametrize("step", [None, 2])
def test_a_suspect_checkpoint_is_refused_and_leaves_no_folder(run, tmp_path, step):
    with pytest.raises(RunDirError) as caught:
        exported(run, tmp_path / "out", step=step)
    assert str(caught.value) == (
        f"the checkpoint of step {step or 4} in {run} is suspect: it lies under kl/spike (critical, since step 1). The "
        "newest checkpoint without an alarm is that of step 0: --step 0. To export this one all the same, after a look "
        "at its samples: --allow-suspect"
    )
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_trusted_one_is_exported_and_its_card_is_silent(run, tmp_path):
    card = (exported(run, tmp_path / "out", step=0) / "README.md").read_text(encoding="utf-8")
    assert "Suspect" not in card
    assert "kl/spike" not in card


def test_the_card_of_a_suspect_one_names_the_alarm(run, tmp_path):
    out = exported(run, tmp_path / "out", allow_suspect=True)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "# run, step 4\n\n**Suspect.** This checkpoint lies under an alarm of its run" in card
    assert "- kl/spike (critical, since step 1): found at 3.\n" in card
    assert (out / "adapter_model.safetensors").exists()


def test_where_no_checkpoint_is_trusted_the_error_says_so(run, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    shutil.rmtree(copied / "checkpoints" / "step_0")
    with pytest.raises(RunDirError, match=r"since step 1\)\. No checkpoint on disk is without an alarm\. To export"):
        exported(copied, tmp_path / "out")


@pytest.fixture
def with_folder(run, tmp_path):
    """The same run, whose checkpoint 0 holds a folder, as that of a tokenizer with several chat templates does."""
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    folder = copied / "checkpoints" / "step_0" / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text("x", encoding="utf-8")
    return copied


def test_folders_of_a_checkpoint_are_exported(with_folder, tmp_path):
    out = exported(with_folder, tmp_path / "out", step=0)
    assert (out / "additional_chat_templates" / "tool_use.jinja").read_text(encoding="utf-8") == "x"
    assert (out / "adapter_config.json").exists()
    assert not (out / "training_state.pt").exists()


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("merge", [False, True])
def test_an_export_that_fails_leaves_nothing(run, tmp_path, monkeypatch, there, merge):
    def broken(*_args, **_how):
        raise OSError("no space left")

    monkeypatch.setattr(export_module, "model_card", broken)
    out = tmp_path / "out"
    if there:
        out.mkdir()
    with pytest.raises(OSError, match="no space left"):
        exported(run, out, step=0, merge=merge)
    assert list(tmp_path.iterdir()) == ([out] if there else [])
    assert not there or list(out.iterdir()) == []


def test_an_empty_folder_stays_the_folder_it_is(run, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    before = out.stat().st_ino
    monkeypatch.chdir(out)
    exported(run.absolute(), Path(), step=0)
    assert out.stat().st_ino == before
    assert (out / "adapter_config.json").exists()
    assert list(tmp_path.iterdir()) == [out]
