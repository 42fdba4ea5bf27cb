"""`kleash frontier` from its arguments to its files, and its exit codes."""

import json

import pytest
from frontier_runs import rising_and_falling, write_best_of_n, write_run

from kleash.cli.main import main
from kleash.runs.records import Event


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a", rising_and_falling(), saved=range(10, 80, 10))


def words(*given):
    return ["frontier", *map(str, given)]


def test_choice_and_peak_are_printed_and_written(run, tmp_path, capsys):
    best, page, numbers = write_best_of_n(tmp_path / "best.json"), tmp_path / "page.html", tmp_path / "numbers.json"
    assert main(words(run, "--bestofn", best, "--max-nats", 7, "--out", page, "--json", numbers)) == 0
    said = capsys.readouterr().out
    assert f"Best gold reward within 7 nats per sequence: {run} step 30 (RLOO)" in said
    assert "Its peak is at 6.16 nats" in said
    assert "note: KL is not comparable across RLOO, best-of-n" in said
    assert f"page       {page}" in said
    assert json.loads(numbers.read_text())["choice"]["chosen"]["at"] == 30
    assert "<h1>Frontier</h1>" in page.read_text()


def test_json_on_standard_output_is_nothing_but_json(run, capsys):
    assert main(words(run, "--json", "-", "--by", "proxy")) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["choice"]["chosen"]["at"] == 70
    assert "Best proxy reward" in captured.err


def test_the_same_run_twice_is_one_run(run, capsys):
    assert main(words(run, run, "--json", "-")) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) == 8


def test_nothing_that_qualifies_is_said_and_is_no_error(tmp_path, capsys):
    alarm = Event(10, "warning", "kl/ramp", "It rises.", began=0)
    run = write_run(tmp_path / "a", rising_and_falling(), saved=[10, 20], events=[alarm])
    assert main(words(run, "--json", "-")) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["choice"]["chosen"] is None
    assert captured.err.startswith("No checkpoint qualifies.\n")
    assert "Under a warning or critical alarm (kl/ramp)" in captured.err


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ({}, [], "no held-out evaluation that measured KL"),
        ({0: (0.0, 0.2, 0.1)}, [], "There is 1 point in all"),
        ({0: (0.0, 0.2, None), 10: (1.0, 0.3, None)}, ["--by", "gold"], "No point has a held-out gold reward"),
        (rising_and_falling(), ["--bestofn", "none.json"], "none.json cannot be read as best-of-n"),
        (rising_and_falling(), ["--out", "none/page.html"], "there is no folder none"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(tmp_path, capsys, rows, more, said):
    assert main(words(write_run(tmp_path / "a", rows), *more)) == 2
    err = capsys.readouterr().err
    assert err.startswith("kleash: ")
    assert said in err


def test_no_run_there(tmp_path, capsys):
    assert main(words(tmp_path / "none")) == 2
    assert "There is no run directory" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "much"])
def test_a_limit_that_is_none(run, capsys, limit):
    with pytest.raises(SystemExit, match="2"):
        main(words(run, f"--max-nats={limit}"))
    assert f"'{limit}' is no limit of KL" in capsys.readouterr().err
