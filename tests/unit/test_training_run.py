"""A run from settings to its folder, and what cannot run: a sentence, an exit code, and no half-made folder."""

import tempfile
from pathlib import Path

import pytest
from plain_user import as_plain_user
from tiny_run import Remembering, settings

from kleash.errors import ConfigError, DataError, ModelError, RunDirError, RunStopped
from kleash.metrics import METRICS
from kleash.runs.reader import RunReader
from kleash.training.observer import Silent
from kleash.training.run import check, resume, train


@pytest.fixture
def make(tiny_model_dir, tmp_path):
    def made(*overrides):
        return settings(tiny_model_dir, tmp_path, *overrides)

    return made


def refused(config, kind):
    """The text of the error, which must leave no run behind."""
    with pytest.raises(kind) as caught:
        train(config, observer=Silent())
    assert not (Path(config.output_dir) / "run").exists()
    return caught.value


def test_a_run_leaves_its_numbers_samples_checkpoints_and_report(make):
    path = train(make("prompts.held_out=3", "training.eval_every=2", "training.checkpoint_every=2"), observer=Silent())
    with RunReader(path) as reader:
        assert reader.status == "finished"
        steps = reader.steps()
        assert [step.step for step in steps] == [0, 1, 2, 3, 4]
        assert "eval/reward/proxy" in steps[2].metrics
        assert "eval/reward/proxy" not in steps[3].metrics
        assert set(steps[4].metrics) <= {f"eval/{key}" for key in METRICS}
        assert {key.removeprefix("eval/") for step in steps for key in step.metrics} <= set(METRICS)
        assert [checkpoint.step for checkpoint in reader.checkpoints()] == [0, 2, 4]
        before, after = reader.samples("before"), reader.samples("after")
        assert [sample.prompt for sample in before] == [sample.prompt for sample in after]
        assert len(before) == 3
        assert len(reader.samples("train", 1)) == 8
        meta = reader.meta
    assert len(meta["reference_fingerprint"]) == 64
    assert meta["reference"].endswith("(no second copy of the weights)")
    assert meta["versions"]["torch"]
    assert (path / "report.html").read_text().startswith("<!doctype html>")


def test_at_beta_zero_kl_is_recorded(make):
    path = train(make("algorithm.kl.beta=0"), observer=Silent())
    with RunReader(path) as reader:
        kl = [value for _, value, _ in reader.series("kl/exact_per_sequence")]
        assert {value for _, value, _ in reader.series("control/beta")} == {0.0}
        assert {value for _, value, _ in reader.series("loss/kl")} == {0.0}
    assert kl[0] == 0.0
    assert kl[3] > 0.0


def test_a_moving_reference_reports_kl_to_the_original_too(make):
    path = train(make("model.reference_reset_every=2", "training.steps=5"), observer=Silent())
    with RunReader(path) as reader:
        moving = [value for _, value, _ in reader.series("kl/exact_per_sequence")]
        original = [value for _, value, _ in reader.series("kl/original_per_sequence")]
    assert moving[:2] == original[:2] == [0.0, moving[1]]
    assert moving[1] > 0.0
    assert moving[2] == moving[4] == 0.0
    assert original[4] > original[2] > 0.0


def test_check_makes_no_folder_and_says_whether_a_run_would_start(make, tmp_path):
    observer = Remembering()
    assert check(make(), observer=observer)
    assert len(observer.checks) == 7
    (tmp_path / "constant.py").write_text("def same(completions):\n    return [1.0] * len(completions)\n")
    observer = Remembering()
    assert not check(make(f"reward={tmp_path / 'constant.py'}:same"), observer=observer)
    assert observer.facts[-1].startswith("preflight failed: reward_varies")
    assert not (tmp_path / "runs").exists()


def test_warnings_are_told_first(make):
    observer = Remembering()
    train(make("training.steps=1"), observer=observer, warnings=["beware"])
    assert observer.facts[0] == "note       beware"


def test_a_named_run_that_exists(make):
    config = make("training.steps=1")
    path = train(config, observer=Silent())
    database = (path / "run.db").read_bytes()
    with pytest.raises(RunDirError, match="run") as caught:
        train(config, observer=Silent())
    assert caught.value.exit_code == 2
    assert (path / "run.db").read_bytes() == database


def test_a_read_only_folder(make):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        config = make(f"output_dir={folder}")
        from kleash.training import run

        prepared = run.prepare(config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "prepare", lambda *_: prepared)
            with as_plain_user(), pytest.raises(RunDirError) as caught:
                train(config, observer=Silent())
        Path(folder).chmod(0o755)
    assert folder in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_prompt_longer_than_the_context(make, tmp_path):
    (tmp_path / "prompts.txt").write_text("short one\n" + "x" * 600 + "\nanother\n")
    error = refused(make("prompts.held_out=0"), DataError)
    assert "is 601 tokens long; with max_completion_length = 10 it needs 611, more than the context of 512" in str(
        error
    )
    assert "prompts.txt:2 (" in str(error)
    assert error.exit_code == 2


def test_chat_prompts_without_a_template(make, tiny_model_dir, tmp_path):
    import shutil

    plain = tmp_path / "plain"
    shutil.copytree(tiny_model_dir, plain)
    (plain / "chat_template.jinja").unlink()
    error = refused(make(f"model={plain}", "prompts.as_chat=true"), ModelError)
    assert "has no chat template" in str(error)
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[1.0]", "Reward 'bad' returned 1 scores for 16 completions"),
        ("['good'] * len(completions)", "Reward 'bad' returned 'good' (a str) for completion 0"),
        ("[float('nan')] * len(completions)", "Reward 'bad' returned nan for completion 0"),
        ("'great'", "Reward 'bad' returned a str ('great')"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_reward_that_returns_nonsense(make, tmp_path, body, message):
    (tmp_path / "bad.py").write_text(f"def bad(prompts, completions):\n    return {body}\n")
    error = refused(make(f"reward={tmp_path / 'bad.py'}:bad"), DataError)
    assert message in str(error)
    assert error.exit_code == 2


def test_a_model_that_is_not_there_is_refused_before_a_folder_is_made(make):
    error = refused(make("model=no/such-model"), ModelError)
    assert "no such local folder, and the hub gave nothing" in str(error)


def test_a_reward_that_is_not_there(make, tmp_path):
    error = refused(make(f"reward={tmp_path / 'reward.py'}:vowel"), ConfigError)
    assert "Did you mean 'vowels'?" in str(error)


def test_kl_above_the_limit_stops_the_run_with_exit_3_where_it_can_go_on(make):
    config = make("algorithm.kl.stop_above=0.0005", "training.learning_rate=0.01", "training.steps=6")
    with pytest.raises(RunStopped, match=r"step 1: KL is .* above algorithm.kl.stop_above = 0.0005") as caught:
        train(config, observer=Silent())
    assert caught.value.exit_code == 3
    path = Path(config.output_dir) / "run"
    with RunReader(path) as reader:
        assert reader.status == "stopped"
        assert reader.latest_checkpoint().step == 2
        assert [step.step for step in reader.steps()] == [0, 1]
    with pytest.raises(RunStopped, match=r"step 2: KL is"):
        resume(path, observer=Silent())


def test_prompts_that_have_changed_are_refused_on_resume(make, tmp_path):
    with pytest.raises(RunStopped, match="stop_above"):
        train(make("algorithm.kl.stop_above=1e-9", "training.checkpoint_every=1"), observer=Silent())
    path, prompts = tmp_path / "runs" / "run", tmp_path / "prompts.txt"
    told = prompts.read_text()
    prompts.write_text(told.replace("prompt number 3", "prompt number 4"))
    with pytest.raises(RunDirError, match=r"the data of .*run have changed since it began .*prompts.txt") as caught:
        resume(path, observer=Silent())
    assert "Put the old ones back, or start a new run" in str(caught.value)
    assert caught.value.exit_code == 2
    prompts.write_text(told)
    with pytest.raises(RunStopped, match="stop_above"):
        resume(path, observer=Silent())


def test_two_rewards_of_one_name_are_told_apart_and_recorded(make, tmp_path):
    for stem, letter in (("first", "a"), ("second", "e")):
        (tmp_path / f"{stem}.py").write_text(
            f"def count(completions):\n    return [float(text.count('{letter}')) + i % 3"
            " for i, text in enumerate(completions)]\n"
        )
    names = [f"{tmp_path / stem}.py:count" for stem in ("first", "second")]
    path = train(make(f"reward.functions={names}", "training.steps=1"), observer=Silent())
    with RunReader(path) as reader:
        (step,) = reader.steps()
    means = [step.metrics[f"reward/function/{name}"] for name in names]
    assert sum(means) == pytest.approx(step.metrics["reward/proxy"])
    assert min(means) >= 15 / 16  # the mean of i % 3 over 16 samples


def test_nothing_to_resume(make, tmp_path):
    with pytest.raises(RunDirError, match="There is no run directory"):
        resume(tmp_path / "gone", observer=Silent())
    path = train(make("training.steps=1"), observer=Silent())
    with pytest.raises(RunDirError, match=r"is finished: all 1 steps are done"):
        resume(path, observer=Silent())
