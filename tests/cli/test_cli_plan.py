"""`kleash plan` from its arguments to its files, on a model of two layers."""

import json

import pytest
from tiny_run import PROMPTS, REWARD

from kleash.cli import plan
from kleash.cli.arguments import Parser
from kleash.cli.plan_arguments import add_plan
from kleash.errors import ConfigError, DataError

MORE = '''
def capped(completions, **columns):
    """Vowels count up to a share of 0.2: what is beyond is no better."""
    return [min(0.2, share) for share in vowels(completions)]


def silent(completions, **columns):
    """No score at all."""
    return [None for text in completions]


def constant(completions, **columns):
    """The same for everything."""
    return [0.5 for text in completions]


def against(completions, reference_completions, **columns):
    """By how much a reply is longer than the reference's."""
    return [float(len(a) - len(b)) for a, b in zip(completions, reference_completions, strict=True)]
'''


@pytest.fixture
def settings(tiny_model_dir, tmp_path):
    """Words for the command line: twelve prompts, two of them held out."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "reward.py").write_text(REWARD + MORE)
    return [
        f"model={tiny_model_dir}",
        "model.dtype=float32",
        f"prompts={tmp_path / 'prompts.txt'}",
        "prompts.held_out=2",
        f"reward={tmp_path / 'reward.py'}:vowels",
        "rollout.max_completion_length=8",
    ]


def plan_words(*words):
    """Run the command as `kleash plan WORDS` would."""
    top = Parser(prog="kleash")
    add_plan(top.add_subparsers())
    arguments = vars(top.parse_args(["plan", *map(str, words)]))
    assert arguments.pop("call") == "plan:run"
    plan.run(**arguments)


def found_by(capsys, *words):
    plan_words(*words, "--json", "-")
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def vowels(text):
    return sum(letter in "aeiou" for letter in text) / max(1, len(text))


def test_numbers_table_and_page(settings, tmp_path, capsys):
    page = tmp_path / "page.html"
    gold = f"reward.gold={tmp_path / 'reward.py'}:capped"
    found, said = found_by(capsys, *settings, gold, "--samples", "32", "--out", page)
    assert (found["prompts"], found["samples"], found["unscored"], found["left_out"]) == (10, 32, 0, 0)
    assert found["settings"]["rollout"]["max_completion_length"] == 8
    claimed = [point["predicted"] for point in found["points"] if point["predicted"]]
    for low, high in (("kl", 0.0), ("reward", found["start"]["reward"]["value"])):
        values = [high, *(point[low]["value"] for point in claimed)]
        assert values == sorted(values)
    assert claimed[0]["kl"]["value"] == pytest.approx(0.01, rel=0.5)
    assert found["points"][-1]["predicted"] is None
    for sample in found["favoured"]:
        assert sample["reward"] == pytest.approx(vowels(sample["completion"]))
        assert sample["gold"] == pytest.approx(min(0.2, sample["reward"]))
        assert sample["factor"] > 1
    beta = found["suggestion"]["beta"]
    assert f"beta = {beta:g}  # or, to hold the KL itself: target_nats_per_sequence = " in said
    assert "nothing is claimed at beta" in said
    assert "A trained run lies below it" in said
    assert f"page       {page}" in said
    assert "Gold reward over KL" in page.read_text()


def test_betas_that_are_asked_for_and_the_runs_own(settings, capsys):
    words = [*settings, "algorithm.kl.beta=0.3", "--samples", "16", "--betas", "0.5,2,0.5"]
    found, _ = found_by(capsys, *words)
    assert [point["beta"] for point in found["points"]] == [2.0, 0.5, 0.3]
    assert found_by(capsys, *words)[0] == found
    other, _ = found_by(capsys, "training.seed=1", *words)
    assert other["favoured"] != found["favoured"]


def test_a_file_of_numbers_and_fewer_prompts(settings, tmp_path, capsys):
    numbers = tmp_path / "numbers.json"
    plan_words(*settings, "--samples", "16", "--prompts", "3", "--betas", "1", "--json", numbers)
    said = capsys.readouterr().out
    assert f"numbers    {numbers}" in said
    assert "not claimed" in said
    assert json.loads(numbers.read_text())["prompts"] == 3


def test_a_reward_that_compares_with_the_reference(settings, tmp_path, capsys):
    reward = f"reward={tmp_path / 'reward.py'}:against"
    found, _ = found_by(capsys, *settings, reward, "--samples", "16", "--betas", "20")
    assert len({sample["reward"] for sample in found["favoured"]}) > 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("silent", r"0 of 10 prompts have 4 scored samples, .* \(None\)"),
        ("constant", r"pays all samples of a prompt the same \(0\.500\): no beta favours one over another"),
    ],
)
def test_a_reward_that_says_nothing(settings, tmp_path, function, said):
    with pytest.raises(DataError, match=said):
        plan_words(*settings, f"reward={tmp_path / 'reward.py'}:{function}", "--samples", "16")


def test_no_prompts_are_left_to_train_on(settings, tmp_path):
    (tmp_path / "one.txt").write_text("a single prompt")
    with pytest.raises(DataError, match=r"There are 1 prompts to train on, and a prediction needs two"):
        plan_words(*settings, f"prompts={tmp_path / 'one.txt'}", "prompts.held_out=0", "--samples", "16")
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(DataError, match=r"none\.txt"):
        plan_words(*settings, f"prompts={tmp_path / 'none.txt'}", "prompts.held_out=0", "--samples", "16")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm.type=dpo", "comparisons=none.jsonl"], "'dpo' optimises no reward on samples of its own"),
        (
            ["algorithm.type=online_dpo", "prompts=demo", "reward=kleash.demo.sentiment:positive"],
            "'online_dpo' learns which of two samples is better and not by how much",
        ),
        (
            [
                "algorithm.type=grpo",
                "algorithm.scale_rewards=group",
                "prompts=demo",
                "reward=kleash.demo.sentiment:positive",
            ],
            r"scale_rewards = 'group' divides rewards by the spread of each group: .* = 'none'",
        ),
    ],
)
def test_settings_whose_optimum_is_another(tiny_model_dir, words, said):
    with pytest.raises(ConfigError, match=said):
        plan_words(f"model={tiny_model_dir}", *words)


def test_what_cannot_work_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"--samples 1 is too few: .* Give 16 or more"):
        plan_words("none.toml", "--samples", "1")
    with pytest.raises(ConfigError, match="--prompts 1 is too few: an interval needs 2 prompts"):
        plan_words("none.toml", "--prompts", "1")
    with pytest.raises(ConfigError, match="there is no folder"):
        plan_words("none.toml", "--out", tmp_path / "none" / "page.html")


@pytest.mark.parametrize("text", ["", "0", "0.1,two", "0.1,-1", "inf", "nan"])
def test_betas_that_are_none(text, capsys):
    with pytest.raises(SystemExit) as left:
        plan_words("run.toml", f"--betas={text}")
    assert left.value.code == 2
    assert f"'{text}' is no list of betas. Give rewards per nat above 0, such as 0.02,0.05,0.1" in (
        capsys.readouterr().err
    )
