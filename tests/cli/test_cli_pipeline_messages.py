"""Bad comparisons, reward models and tables are refused in a sentence, before any weight is read."""

import json

import pytest
from tiny_jobs import settings_of, write_data
from tiny_model import byte_tokenizer

from kleash.cli.main import main
from kleash.config.schema import Model
from kleash.models import loading, scalar_loading
from kleash.models.saved_reward import Rendering

GOOD = {"prompt": "a prompt", "chosen": " yes", "rejected": " no"}


@pytest.fixture(autouse=True)
def no_weights(monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading, "_load_weights", fail)
    monkeypatch.setattr(scalar_loading, "_load_backbone", fail)


@pytest.fixture
def refused(tiny_model_dir, tmp_path, capsys):
    """Train with some settings; return what is printed about the mistake."""
    write_data(tmp_path)

    def refused(job, *overrides):
        code = main(["train", *settings_of(job, tiny_model_dir, tmp_path, *overrides)])
        said = capsys.readouterr().err
        assert code == 2, said
        assert not (tmp_path / "runs" / "run").exists()
        return said

    return refused


@pytest.fixture
def compared(refused, tmp_path):
    """The same for rows of comparisons."""

    def compared(*rows, job="dpo", more=()):
        (tmp_path / "comparisons.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        return refused(job, *more)

    return compared


@pytest.mark.parametrize("job", ["dpo", "reward_model"])
def test_a_missing_side(compared, job):
    said = compared(GOOD, {"prompt": "a prompt", "chosen": " yes"}, job=job)
    assert "comparisons.jsonl:2 has no rejected answer; its columns: prompt, chosen. A comparison needs" in said


@pytest.mark.parametrize("job", ["dpo", "reward_model"])
def test_equal_sides_everywhere_say_what_was_filtered(compared, job):
    said = compared(*({**GOOD, "rejected": " yes", "prompt": f"prompt {i}"} for i in range(3)), job=job)
    assert "nothing is left of 3 comparisons. Filtered: 3 because chosen and rejected are the same text" in said


@pytest.mark.parametrize("job", ["dpo", "reward_model"])
def test_unknown_columns(compared, job):
    said = compared({**GOOD, "strenght": 2}, job=job)
    assert "strenght" in said
    assert "'strength'" in said


def test_a_prompt_that_leaves_no_room(compared):
    said = compared({**GOOD, "prompt": "x" * 600}, GOOD, {**GOOD, "prompt": "b"}, more=["comparisons.held_out=1"])
    assert "is 601 tokens long, and the context of" in said
    assert "has 512: nothing is left for a completion. Shorten or remove the prompt." in said


def test_a_completion_that_is_too_long_is_counted(compared):
    rows = [{**GOOD, "chosen": " " + "y" * 40, "prompt": f"prompt {i}"} for i in range(4)]
    said = compared(*rows, more=["comparisons.max_completion_length=20", "comparisons.held_out=1"])
    assert "because a side is longer than max_completion_length = 20 tokens" in said


@pytest.mark.parametrize("job", ["dpo", "reward_model", "ppo"])
def test_sound_settings_come_as_far_as_the_weights(tiny_model_dir, tmp_path, capsys, job):
    """Else the refusals above and below would show nothing."""
    write_data(tmp_path)
    assert main(["train", *settings_of(job, tiny_model_dir, tmp_path)]) == 1
    assert "weights were read" in capsys.readouterr().err


def test_a_critic_begins_from_a_reward_model_that_is_there(refused, tiny_model_dir, tmp_path):
    assert "head not found" in refused("ppo", f"algorithm.critic.start={tiny_model_dir}")
    assert "nowhere': there is no such folder" in refused("ppo", f"algorithm.critic.start={tmp_path / 'nowhere'}")


def test_a_critic_of_other_tokens_is_refused_once_the_policy_is_read(refused, tiny_model_dir, tmp_path, monkeypatch):
    """The one refusal here that comes after weights: tokenizers are compared when the critic meets its policy."""
    monkeypatch.undo()
    settings = Model(name=str(tiny_model_dir), dtype="float32")
    scalar_loading.load_scalar_model(settings, members=1, seed=0, context=64).save(tmp_path / "other", Rendering())
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|more|>"])
    tokenizer.save_pretrained(tmp_path / "other")
    said = refused("ppo", f"algorithm.critic.start={tmp_path / 'other'}")
    assert f"the critic would start from '{tmp_path / 'other'}', whose tokenizer is not that of the policy" in said
    assert "sizes 262 and 261. A critic values the policy's tokens" in said


def test_a_causal_model_is_no_reward_model(refused, tiny_model_dir):
    said = refused("mixed", f"reward.model={tiny_model_dir}", "reward.functions=[]")
    assert "head not found" in said


def test_a_reward_model_that_is_not_there(refused, tmp_path):
    said = refused("ppo", f"reward.model={tmp_path / 'nowhere'}", "reward.functions=[]")
    assert "nowhere': there is no such folder. Give a run, a checkpoint or a Hugging Face folder" in said


def test_a_run_without_a_checkpoint_is_no_reward_model(refused, tmp_path):
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    said = refused("ppo", f"reward.model={tmp_path / 'empty'}", "reward.functions=[]")
    assert "has no checkpoint yet" in said


@pytest.mark.parametrize(
    ("job", "kind", "message"),
    [
        ("mixed", "dpo", "algorithm.type = 'dpo' needs the table comparisons, and there is none."),
        ("dpo", "rloo", "algorithm.type = 'rloo' needs the table prompts, and there is none."),
        ("dpo", "sft", "algorithm.type = 'sft' needs the table demonstrations, and there is none."),
        ("mixed", "reward_model", "algorithm.type = 'reward_model' takes comparisons. Remove the table"),
    ],
)
def test_tables_that_are_missing_or_of_no_use(refused, job, kind, message):
    assert message in refused(job, f"algorithm.type={kind}")


def test_the_text_of_the_mix_is_read_before_the_weights(refused, tmp_path):
    assert "nowhere.txt" in refused("mixed", f"pretraining.path={tmp_path / 'nowhere.txt'}")
    (tmp_path / "short.txt").write_text("a")
    said = refused("mixed", f"pretraining.path={tmp_path / 'short.txt'}")
    assert "The text has 1 tokens, too few for one row of 64" in said
