"""`kleash bestofn` from its arguments to its files, on a model of two layers."""

import json

import pytest
from tiny_run import PROMPTS, REWARD

from kleash.cli import bestofn
from kleash.cli.arguments import Parser
from kleash.cli.bestofn_arguments import add_bestofn
from kleash.errors import ConfigError, DataError

GOLD = '''
def brevity(completions, **columns):
    return [-float(len(text)) for text in completions]


def silent(completions, **columns):
    """No score at all."""
    return [None for text in completions]


def against(completions, reference_completions, **columns):
    """Whether a reply is longer than the reference's."""
    return [float(len(a) > len(b)) for a, b in zip(completions, reference_completions, strict=True)]
'''


@pytest.fixture
def settings(tiny_model_dir, tmp_path):
    """Words for the command line: twelve prompts, four of them held out."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "reward.py").write_text(REWARD + GOLD)
    return [
        f"model={tiny_model_dir}",
        "model.dtype=float32",
        f"prompts={tmp_path / 'prompts.txt'}",
        "prompts.held_out=4",
        f"reward={tmp_path / 'reward.py'}:vowels",
        "rollout.max_completion_length=8",
    ]


def bestofn_words(*words):
    """Run the command as `kleash bestofn WORDS` would."""
    top = Parser(prog="kleash")
    add_bestofn(top.add_subparsers())
    arguments = vars(top.parse_args(["bestofn", *map(str, words)]))
    assert arguments.pop("call") == "bestofn:run"
    bestofn.run(**arguments)


def found_by(capsys, *words):
    bestofn_words(*words, "--json", "-")
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_numbers_table_and_page(settings, tmp_path, capsys):
    page = tmp_path / "page.html"
    gold = f"reward.gold={tmp_path / 'reward.py'}:brevity"
    found, said = found_by(capsys, *settings, gold, "--n", "4,1,2", "--samples", "6", "--out", page)
    assert [size["n"] for size in found["sizes"]] == [1, 2, 4]
    assert (found["prompts"], found["samples"], found["unscored"]) == (4, 6, 0)
    assert found["settings"]["prompts"]["held_out"] == 4
    rewards = [size["proxy"]["value"] for size in found["sizes"]]
    assert rewards == sorted(rewards)
    assert rewards[0] < rewards[-1]
    assert found["sizes"][0]["proxy_win_rate"]["value"] == pytest.approx(0.5)
    assert 0.5 < found["sizes"][2]["proxy_win_rate"]["value"] <= 4 / 5
    assert all(size["gold"]["value"] <= 0 for size in found["sizes"])
    for example in found["examples"]:
        for choice in example["choices"]:
            vowels = sum(letter in "aeiou" for letter in choice["completion"]) / max(1, len(choice["completion"]))
            assert choice["proxy"] == pytest.approx(vowels)
            assert choice["gold"] == -len(choice["completion"])
    assert "Best of 4: reward" in said
    assert "gold win rate" in said
    assert f"page       {page}" in said
    assert "Gold reward of the best of n" in page.read_text()


def test_the_samples_repeat_and_are_those_of_the_seed(settings, capsys):
    first, _ = found_by(capsys, *settings, "--n", "1,2")
    assert first["samples"] == 4
    assert found_by(capsys, *settings, "--n", "1,2")[0] == first
    assert found_by(capsys, *settings, "training.seed=1", "--n", "1,2")[0]["examples"] != first["examples"]


def test_every_prompt(settings, tmp_path, capsys):
    numbers = tmp_path / "numbers.json"
    bestofn_words(*settings, "--n", "2", "--prompts", "all", "--json", numbers)
    assert f"numbers    {numbers}" in capsys.readouterr().out
    assert json.loads(numbers.read_text())["prompts"] == 12


def test_a_reward_that_compares_with_the_reference(settings, tmp_path, capsys):
    found, _ = found_by(capsys, *settings, f"reward={tmp_path / 'reward.py'}:against", "--n", "2")
    choices = [choice for example in found["examples"] for choice in example["choices"]]
    assert len(choices) == 4
    assert {choice["proxy"] for choice in choices} <= {0.0, 1.0}
    assert found["tied_share"] > 0


def test_no_prompt_is_held_out(settings):
    with pytest.raises(DataError, match=r"prompts\.held_out = 0 .* --prompts all"):
        bestofn_words(*settings, "prompts.held_out=0", "--n", "2")


def test_a_reward_that_scores_nothing(settings, tmp_path):
    with pytest.raises(DataError, match="No prompt has 2 scored samples; the most is 0 of 4"):
        bestofn_words(*settings, f"reward={tmp_path / 'reward.py'}:silent", "--n", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm.type=dpo", "comparisons=none.jsonl"], "'dpo' neither samples nor optimises a reward"),
        (
            ["algorithm.type=online_dpo", "prompts=demo", "reward.judge.model=demo"],
            r"reward\.judge compares the two samples of a pair .* Give another algorithm\.type",
        ),
    ],
)
def test_settings_with_nothing_to_sample_or_to_choose_by(tiny_model_dir, words, said):
    with pytest.raises(ConfigError, match=said):
        bestofn_words(f"model={tiny_model_dir}", *words, "--n", "2")


def test_too_few_samples_are_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match=r"--samples 8 is too few for the best of 8: .* Give 9 or more"):
        bestofn_words("none.toml", "--n", "8", "--samples", "8")


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        bestofn_words("none.toml", "--out", tmp_path / "none" / "page.html")
    with pytest.raises(ConfigError, match=r"is a folder\. Give the name of a file"):
        bestofn_words("none.toml", "--json", tmp_path)


@pytest.mark.parametrize("text", ["", "0", "1,two", "1.5", "4,-1"])
def test_sizes_that_are_none(text, capsys):
    with pytest.raises(SystemExit) as left:
        bestofn_words("run.toml", f"--n={text}")
    assert left.value.code == 2
    assert f"'{text}' is no list of numbers of samples. Give some, such as 1,2,4,8" in capsys.readouterr().err
