"""Bad comparisons, prompts, tables and reward models: one sentence, exit code 2, and no weight is read for it."""

import json

import pytest

from kleash.cli.main import main
from kleash.models import loading, scalar_loading

CONTEXT = 512
"""Tokens that the tiny model reads; each byte is one, and BOS is another."""
READS_WEIGHTS = "weights are read"


@pytest.fixture(autouse=True)
def no_weights(monkeypatch):
    """Reading weights is a fault here: the command then ends with exit code 1."""

    def refuse(*args, **kwargs):
        raise AssertionError(READS_WEIGHTS)

    monkeypatch.setattr(loading, "_load_weights", refuse)
    monkeypatch.setattr(scalar_loading, "_load_backbone", refuse)


@pytest.fixture
def train(tiny_model_dir, tmp_path, capsys):
    """A function that runs `kleash train` with settings and returns its exit code and what it said on stderr."""

    def called(*settings):
        base = [f"model={tiny_model_dir}", "model.dtype=float32", f"output_dir={tmp_path / 'runs'}", "name=run"]
        code = main(["train", *base, "training.steps=2", "training.prompts_per_step=2", *settings])
        assert not (tmp_path / "runs" / "run").exists()
        return code, capsys.readouterr().err

    return called


@pytest.fixture
def comparisons(tmp_path):
    """A function that writes rows and returns the settings of a run that learns from them."""

    def written(*rows):
        path = tmp_path / "comparisons.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return [f"comparisons={path}", "comparisons.held_out=0"]

    return written


@pytest.fixture
def prompts(tmp_path):
    """Settings of a run that samples, without a reward."""
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    return [f"prompts={path}", "prompts.held_out=0", "rollout.max_completion_length=8"]


def row(number, **columns):
    return {"prompt": f"prompt {number}", "chosen": "yes", "rejected": "no"} | columns


LEARNERS = pytest.mark.parametrize("algorithm", ["dpo", "reward_model"])


@LEARNERS
def test_good_comparisons_come_as_far_as_the_weights(train, comparisons, algorithm):
    code, said = train(f"algorithm.type={algorithm}", *comparisons(row(0), row(1)))
    assert code == 1
    assert READS_WEIGHTS in said


@LEARNERS
def test_a_comparison_without_one_side(train, comparisons, algorithm):
    data = comparisons(row(0), {"prompt": "prompt 1", "chosen": "yes"})
    code, said = train(f"algorithm.type={algorithm}", *data)
    assert code == 2
    assert "comparisons.jsonl:2 has no rejected answer; its columns: prompt, chosen." in said
    assert said.endswith("A comparison needs chosen and rejected. Write it, or remove the row.\n")


@LEARNERS
def test_equal_sides_everywhere(train, comparisons, algorithm):
    data = comparisons(*(row(i, rejected="yes") for i in range(3)))
    code, said = train(f"algorithm.type={algorithm}", *data)
    assert code == 2
    assert said.endswith(
        "comparisons.jsonl': nothing is left of 3 comparisons. Filtered: 3 because chosen and rejected are the same"
        " text. Mend it, or give other comparisons.\n"
    )


@LEARNERS
def test_sides_that_are_all_too_long(train, comparisons, algorithm):
    data = comparisons(row(0, chosen="y" * 30), row(1, rejected="n" * 30))
    code, said = train(f"algorithm.type={algorithm}", *data, "comparisons.max_completion_length=20")
    assert code == 2
    assert (
        "nothing is left of 2 comparisons. Filtered: 2 because a side is longer than max_completion_length = 20 tokens."
        " Raise max_completion_length, or give other comparisons." in said
    )


@LEARNERS
@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("winner", "Known columns: prompt, chosen, rejected, strength, annotator, source."),
        ("choosen", "Did you mean 'chosen'?"),
        ("margin", "What others call 'margin' is 'strength' here."),
    ],
)
def test_an_unknown_column(train, comparisons, algorithm, column, hint):
    code, said = train(f"algorithm.type={algorithm}", *comparisons(row(0), row(1, **{column: 1})))
    assert code == 2
    assert f"comparisons.jsonl:2 has a column '{column}', which is not one of a comparison." in said
    assert hint in said


@LEARNERS
def test_a_prompt_that_leaves_no_room_for_a_completion(train, comparisons, algorithm):
    data = comparisons(row(0), row(1, prompt="p" * (CONTEXT - 1)))
    code, said = train(f"algorithm.type={algorithm}", *data)
    assert code == 2
    assert "comparisons.jsonl:2" in said
    assert f"is {CONTEXT} tokens long, and the context of " in said
    assert f"has {CONTEXT}: nothing is left for a completion. Shorten or remove the prompt.\n" in said


@LEARNERS
def test_learning_from_comparisons_without_any(train, algorithm):
    code, said = train(f"algorithm.type={algorithm}")
    assert code == 2
    assert (
        f"algorithm.type = '{algorithm}' needs the table comparisons, and there is none. Add comparisons ="
        ' "comparisons.jsonl".' in said
    )


def test_prompts_are_of_no_use_to_dpo(train, comparisons, prompts):
    code, said = train("algorithm.type=dpo", *comparisons(row(0), row(1)), prompts[0])
    assert code == 2
    assert "prompts.path = " in said
    assert (
        "has no effect: algorithm.type = 'dpo' takes comparisons, reward. Remove the table, or choose another"
        " algorithm." in said
    )


SOURCES = pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(lambda path: [f"reward.model={path}"], id="reward"),
        pytest.param(
            lambda path: ["reward=builtins:len", "algorithm.type=ppo", f"algorithm.critic.start={path}"], id="critic"
        ),
    ],
)
"""Both places that take a reward model."""


@SOURCES
def test_a_causal_model_is_no_reward_model(train, prompts, tiny_model_dir, wanted):
    code, said = train(*prompts, *wanted(tiny_model_dir))
    assert code == 2
    assert f"head not found: {tiny_model_dir} holds " in said
    assert "outside of its layers model.embed_tokens.weight, model.norm.weight, and none is 'score.weight'." in said
    assert "train a reward model from it with algorithm.type = 'reward_model'" in said


@SOURCES
def test_a_reward_model_that_is_nowhere(train, prompts, tmp_path, wanted):
    code, said = train(*prompts, *wanted(tmp_path / "nowhere"))
    assert code == 2
    assert f"reward model '{tmp_path / 'nowhere'}': there is no such folder. Give a run, a checkpoint or a " in said


@SOURCES
def test_a_reward_model_run_without_a_checkpoint(train, prompts, tmp_path, wanted):
    path = tmp_path / "young"
    (path / "checkpoints").mkdir(parents=True)
    code, said = train(*prompts, *wanted(path))
    assert code == 2
    assert f"run '{path}' has no checkpoint yet. Let it reach one, or give another reward model" in said


@SOURCES
def test_a_folder_with_something_else(train, prompts, tmp_path, wanted):
    path = tmp_path / "notes"
    path.mkdir()
    (path / "todo.md").write_text("buy milk")
    code, said = train(*prompts, *wanted(path))
    assert code == 2
    assert f"{path} is no reward model: it has neither adapter_config.json nor config.json, but todo.md." in said
