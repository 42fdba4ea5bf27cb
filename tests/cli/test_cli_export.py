"""`kleash export --max-nats` and `kleash gauge --dial`: what they pass on, print, write and refuse."""

import json

import pytest
from rich.console import Console
from tiny_run import settings

from kleash.cli import export as command
from kleash.cli.main import main
from kleash.gauge.dial_search import Dial, Point
from kleash.gauge.records import Estimate
from kleash.runs.records import Checkpoint, Step
from kleash.runs.writer import RunWriter
from kleash.training import export as exporting
from kleash.training.observer import Silent
from kleash.training.run import train


def estimate(value):
    return Estimate(value, value - 0.2, value + 0.2, 128, 32)


DIAL = Dial(
    "run",
    20,
    3.0,
    0.5,
    tuple(Point(s, estimate(10 * s * s), estimate(s), estimate(9.0), estimate(s / 2), None) for s in (0.0, 0.5, 1.0)),
    ((1.0, 10.0),),
    32,
    4,
    {"prompts": "held out of the run"},
    ("something to know",),
)


@pytest.fixture
def saved_run(tmp_path):
    """A run with a checkpoint of step 20, without weights."""
    run_dir = tmp_path / "run"
    folder = run_dir / "checkpoints" / "step_20"
    with RunWriter.create(run_dir, {}, {}) as writer:
        writer.write_step(Step(20, {}))
        writer.write_checkpoint(Checkpoint(20, folder))
    folder.mkdir(parents=True)
    return run_dir


def test_the_limit_goes_into_the_call_and_the_folder(monkeypatch, saved_run, tmp_path, capsys):
    asked = []

    def within(run_dir, out, **how):
        asked.append((run_dir, out, {name: value for name, value in how.items() if name != "observer"}))
        return DIAL

    monkeypatch.setattr(exporting, "export_within", within)
    given = {"prompts": None, "step": None, "merge": False, "allow_suspect": False}
    assert main(["export", str(saved_run), "--max-nats", "3"]) == 0
    printed = capsys.readouterr().out
    assert main(["export", str(saved_run), "--max-nats", "1.5", "--merge", "--step", "20", "--prompts", "p.txt"]) == 0
    assert asked == [
        (saved_run, saved_run / "export" / "step_20_3_nats", given | {"max_nats": 3.0}),
        (
            saved_run,
            saved_run / "export" / "step_20_1.5_nats_merged",
            given | {"max_nats": 1.5, "merge": True, "step": 20, "prompts": "p.txt"},
        ),
    ]
    lines = [line.split() for line in printed.splitlines()]
    assert printed.splitlines()[1].startswith(
        "Scale 0.5: KL 2.50 [2.30, 2.70] nats per sequence, within the limit of 3, "
    )
    assert ["scale", "KL", "reward"] in lines
    assert ["0.5", "2.50", "[2.30,", "2.70]", "0.25", "[0.05,", "0.45]"] in lines
    assert "note: Something to know." in printed
    assert "over 32 prompts (held out of the run), 4 replies to each." in printed
    assert printed.splitlines()[-1] == str(saved_run / "export" / "step_20_3_nats")


def test_a_table_fits_a_narrow_terminal(monkeypatch, saved_run, capsys):
    monkeypatch.setattr(exporting, "export_within", lambda *_, **__: DIAL)
    monkeypatch.setattr(command, "screen", lambda: Console(width=60, markup=False, highlight=False))
    assert main(["export", str(saved_run), "--max-nats", "3"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("0.5")]
    assert len(rows) == 1
    assert "0.45]" in rows[0]


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "many"])
def test_a_limit_that_is_none(saved_run, capsys, limit):
    with pytest.raises(SystemExit) as left:
        main(["export", str(saved_run), "--max-nats", limit])
    assert left.value.code == 2
    assert f"argument --max-nats: '{limit}' is no limit of KL. Give a positive number" in capsys.readouterr().err


def test_prompts_without_a_limit_have_no_use(saved_run, capsys):
    assert main(["export", str(saved_run), "--prompts", "p.txt"]) == 2
    assert capsys.readouterr().err == (
        "kleash: --prompts p.txt is for measuring the KL of --max-nats NATS. Give both, or neither\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "kleash gauge run: nothing to measure against it. Give REFERENCE and TUNED, or a run with --dial."),
        (
            ["run", "other", "--dial"],
            "--dial varies the adapter of one run and takes no second model. Leave other out.",
        ),
        *(
            (["run", "--dial", *option], f"{option[0]} has no effect beside --dial, which measures as the run does.")
            for option in (
                ["--samples", "2"],
                ["--max-length", "8"],
                ["--seed", "1"],
                ["--no-scale"],
                ["--no-cache"],
                ["--curve"],
                ["--score", "a:b"],
                ["--corpus", "c.txt"],
                ["--fail-above", "2"],
                ["--lm-eval", "f.json"],
                ["--limit", "4"],
            )
        ),
    ],
)
def test_a_dial_takes_one_run_and_nothing_that_it_would_ignore(capsys, words, said):
    assert main(["gauge", *words]) == 2
    assert capsys.readouterr().err.startswith(f"kleash: {said}")


def test_a_dial_of_a_run_in_numbers_and_as_a_page(tiny_model_dir, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("\n".join(f"prompt {i} says" for i in range(20)), encoding="utf-8")
    given = ["prompts.held_out=8", "training.learning_rate=0.02", "training.steps=2"]
    run = train(settings(tiny_model_dir, tmp_path, *given), observer=Silent())
    page = tmp_path / "dial.html"
    assert main(["gauge", str(run), "--dial", "--json", "-", "--out", str(page)]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [point["scale"] for point in found["points"]] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert found["points"][0]["kl"]["value"] == pytest.approx(0, abs=1e-6)
    assert found["points"][-1]["kl"]["value"] > 0.01
    assert (found["limit"], found["prompts"], found["samples"]) == (None, 8, 16)
    assert "At scale 1: KL " in captured.err
    text = page.read_text(encoding="utf-8")
    assert "KL(policy ‖ reference) over the scale" in text
    assert "Reward over the KL" in text
