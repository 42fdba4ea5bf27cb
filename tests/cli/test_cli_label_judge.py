import argparse

import pytest
from judge_server import Act, judge_server

from kleash.cli import label_judge
from kleash.cli.judge_arguments import add_judge
from kleash.errors import ConfigError
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore

PAIRS = 5


@pytest.fixture
def store(tmp_path):
    path = str(tmp_path / "labels.db")
    with LabelStore.open(path) as opened:
        opened.add(Pair(f"prompt {i}", f"good {i}", f"bad {i}") for i in range(PAIRS))
    return path


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_judge(parser.add_subparsers())
    return vars(parser.parse_args(["judge", *words]))


def run(*words):
    arguments = parsed(*words)
    assert arguments.pop("call") == "label_judge:run"
    label_judge.run(**arguments)


def table(capsys):
    """The printed table: title to value."""
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    return {cells[0].strip(): next(cell.strip() for cell in cells[1:] if cell.strip()) for cells in rows}


def votes(store):
    with LabelStore.open(store) as opened:
        return [(vote.annotator, vote.choice) for vote in opened.votes()]


def honest(request):
    return Act("A" if request.answers[0].startswith("good") else "B")


def test_a_judge_votes_and_is_counted(store, tmp_path, capsys):
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("Good is better.\n")
    with judge_server(honest) as server:
        run(
            "--store",
            store,
            "--model",
            "judge-1",
            "--base-url",
            server.base_url,
            "--rubric",
            str(rubric),
            "--limit",
            "4",
        )
    assert "Good is better." in server.requests[0].message
    assert votes(store) == [("judge-1", "first")] * 4
    assert table(capsys) == {
        "asked": "4",
        "answered": "4",
        "ties": "0",
        "unparsable": "0",
        "failed": "0",
        "requests sent again": "0",
        "both orders agree": "100.0%",
        "position bias": "0.0%",
        "input tokens": "800",
        "output tokens": "16",
        "cost": "–",
    }


def test_prices_give_a_cost_and_missing_token_counts_are_said(store, capsys):
    prices = ("--price-per-million-input", "1000", "--price-per-million-output", "0")
    with judge_server(lambda request: Act("A", usage=None)) as server:
        run("--store", store, "--model", "judge-1", "--base-url", server.base_url, "--limit", "1", *prices)
    printed = table(capsys)
    assert printed["replies without a token count"] == "2"
    assert printed["cost"] == "0"
    assert printed["position bias"] == "100.0%"


def test_a_reward_function_votes(store, tmp_path, capsys):
    file = tmp_path / "rewards.py"
    file.write_text("def goodness(completions):\n    return [float('good' in text) for text in completions]\n")
    run("--store", store, "--reward", f"{file}:goodness", "--noise", "1", "--seed", "3", "--annotator", "contrary")
    assert votes(store) == [("contrary", "second")] * PAIRS
    assert table(capsys) == {"scored": "5", "ties": "0", "turned round": "5", "unscored": "0"}


@pytest.mark.parametrize("words", [(), ("--model", "demo", "--reward", "m:f")])
def test_exactly_one_votes(store, words):
    with pytest.raises(ConfigError) as caught:
        run("--store", store, *words)
    assert str(caught.value) == "Say who votes: --model for a judge or --reward for a function, one of the two."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--model", "demo", "--noise", "0.1"),
            "--noise has no effect with --model demo: it belongs to --reward. Leave it out.",
        ),
        (
            ("--reward", "m:f", "--max-tokens", "2"),
            "--max-tokens has no effect with --reward m:f: it belongs to --model. Leave it out.",
        ),
    ],
)
def test_an_option_without_effect_is_refused(store, words, message):
    with pytest.raises(ConfigError) as caught:
        run("--store", store, *words)
    assert str(caught.value) == message


def test_a_rubric_that_says_nothing_is_refused(store, tmp_path):
    missing, empty = tmp_path / "missing.txt", tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(ConfigError, match=r"missing\.txt cannot be read: No such file or directory\. Give a text file"):
        run("--store", store, "--model", "demo", "--rubric", str(missing))
    with pytest.raises(ConfigError, match=r'empty\.txt is empty\. Write into it what "better" means'):
        run("--store", store, "--model", "demo", "--rubric", str(empty))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--limit", "0"), "'0' is not a whole number of at least 1"),
        (("--noise", "1.5"), "'1.5' is not a probability: a number from 0 to 1"),
        (("--noise", "much"), "'much' is not a probability: a number from 0 to 1"),
        (("--requests-per-minute", "0"), "'0' is not a number above 0"),
        (("--price-per-million-input", "-1"), "'-1' is not a number of at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        parsed(*words)
    assert message in capsys.readouterr().err
