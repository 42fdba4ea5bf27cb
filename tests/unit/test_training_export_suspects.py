"""A checkpoint that lies under an alarm is exported only when that is asked for, and its card says so."""

import shutil

import pytest
from scripted_rules import Scripted
from tiny_run import Remembering, settings

from kleash.errors import RunDirError
from kleash.monitor import monitor
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
