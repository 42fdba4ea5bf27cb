import io
import json
import subprocess
import sys
from types import ModuleType

import pytest
from rich.console import Console
from synthetic_gauge import direction, estimate, gauge

import kleash.gauge
from kleash.cli.gauge_summary import print_summary
from kleash.cli.main import main
from kleash.errors import ModelError
from kleash.gauge.records import Estimate
from kleash.runs.records import Checkpoint, Step
from kleash.runs.writer import RunWriter

DEFAULTS = {
    "prompts": None, "column": None, "corpus": None, "limit": None, "samples": 1, "max_length": 64, "seed": 0,
    "dtype": "auto", "batch_size": "auto", "scale": True, "cache": True, "scores": [],
}  # fmt: skip


def measuring(monkeypatch, *gauges, error=None):
    """Let `kleash gauge` find these gauges instead of measuring; returns what it asks for."""
    asked = []

    def measure_many(reference, tuned, *, progress, **settings):
        progress("sampling", 1, 2)
        asked.append((reference, tuned, settings))
        if error is not None:
            raise error
        return list(gauges)

    module = ModuleType("kleash.gauge.measuring")
    module.measure_many = measure_many
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kleash.gauge, "measuring", module, raising=False)
    return asked


def with_mean(mean, **changes):
    made = gauge(**changes)
    spread = made.reverse.per_sequence
    moved = direction("reverse", 0.08)
    object.__setattr__(moved, "per_sequence", type(spread)(mean, *[1.0] * 6))
    object.__setattr__(made, "reverse", moved)
    return made


def printed(*gauges, width=80):
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    print_summary(console, gauges)
    return console.file.getvalue()


def test_the_settings_are_passed_on(monkeypatch):
    asked = measuring(monkeypatch, gauge(), gauge("b"))
    assert main(["gauge", "base", "a", "b"]) == 0
    given = ["--prompts", "p.txt", "--column", "q", "--corpus", "c.txt", "--limit", "9", "--samples", "2"]
    given += ["--max-length", "8", "--seed", "3", "--dtype", "float32", "--batch-size", "4", "--no-scale", "--no-cache"]
    given += ["--score", "m:f", "--score", "m:g"]
    assert main(["gauge", "base", "a", *given]) == 0
    assert asked == [
        ("base", ["a", "b"], DEFAULTS),
        (
            "base", ["a"],
            {
                "prompts": "p.txt", "column": "q", "corpus": "c.txt", "limit": 9, "samples": 2, "max_length": 8,
                "seed": 3, "dtype": "float32", "batch_size": 4, "scale": False, "cache": False,
                "scores": ["m:f", "m:g"],
            },
        ),
    ]  # fmt: skip


def test_the_verdict_comes_first_and_the_tables_fit_80_columns():
    lines = printed(gauge()).splitlines()
    assert lines[1].startswith("Moved 2.9 ± 0.3 nats per reply")
    tables = [line for line in lines[4:] if not line.startswith("most of")]
    assert max(map(len, tables)) <= 80
    assert [line.split("  ")[0] for line in tables[:5]] == [
        "KL in nats", "tuned ‖ reference", "reference ‖ tuned", "bf16 rounding", "4-bit rounding",
    ]  # fmt: skip


def test_numbers_have_their_intervals():
    text = printed(with_mean(Estimate(2.0, 1.5, 2.75, 100, 100)))
    assert "2.00 [1.50, 2.75]" in text
    assert "0.0121 [0.0109, 0.0133]" in text
    assert "story" in text
    assert "positive  0.110 [0.060, 0.160]" in text
    assert "' the' 12" in text


def test_given_text_alone_has_its_table():
    text = printed(gauge(reverse=None, forward=None, scale=None, scores=()))
    assert "perplexity, tuned" in text
    assert "per sequence" not in text


def test_several_models_are_compared_in_one_table():
    text = printed(gauge("org/near", verdict="near verdict"), gauge("org/far", verdict="far verdict"))
    assert text.index("near verdict") < text.index("far verdict") < text.index("KL in nats per sequence")
    assert "story" not in text


def test_json_on_standard_output_is_alone_there(monkeypatch, capsys):
    measuring(monkeypatch, gauge())
    assert main(["gauge", "base", "a", "--json", "-"]) == 0
    captured = capsys.readouterr()
    whole = json.loads(captured.out)
    assert whole["schema_version"] == 1
    assert [one["tuned"]["name"] for one in whole["gauges"]] == ["runs/a/checkpoints/step_40"]
    assert "Moved 2.9" in captured.err


def test_json_has_null_for_what_is_not_finite(monkeypatch, capsys):
    measuring(monkeypatch, with_mean(Estimate(float("nan"), float("nan"), float("inf"), 1, 1)))
    assert main(["gauge", "base", "a", "--json", "-"]) == 0
    mean = json.loads(capsys.readouterr().out)["gauges"][0]["reverse"]["per_sequence"]["mean"]
    assert mean == {"value": None, "low": None, "high": None, "count": 1, "prompts": 1}


def test_files_are_written_whole(monkeypatch, tmp_path, capsys):
    measuring(monkeypatch, gauge(), gauge("b"))
    numbers, page = tmp_path / "gauge.json", tmp_path / "gauge.html"
    assert main(["gauge", "base", "a", "b", "--json", str(numbers), "--out", str(page)]) == 0
    assert len(json.loads(numbers.read_text())["gauges"]) == 2
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(tmp_path.iterdir()) == [page, numbers]
    assert capsys.readouterr().out.splitlines()[-2:] == [f"numbers    {numbers}", f"page       {page}"]


@pytest.mark.parametrize(("low", "code"), [(1.49, 0), (1.5, 0), (1.51, 3)])
def test_fail_above_looks_at_the_lower_end(monkeypatch, capsys, low, code):
    measuring(monkeypatch, with_mean(Estimate(2.0, low, 2.5, 100, 100)))
    assert main(["gauge", "base", "a", "--fail-above", "1.5"]) == code
    if low == 1.51:
        assert capsys.readouterr().err == (
            "kleash: runs/a/checkpoints/step_40 moved 2.00 [1.51, 2.50] nats per sequence, KL(tuned ‖ reference): the "
            "whole 95 % interval is above the limit of 1.5 that --fail-above sets.\n"
        )


def test_a_kl_that_is_not_finite_holds_no_limit(monkeypatch, capsys):
    measuring(monkeypatch, with_mean(Estimate(*[float("nan")] * 3, 100, 100)))
    assert main(["gauge", "base", "a", "--fail-above", "1.5"]) == 3
    assert "moved nan nats per sequence" in capsys.readouterr().err


def test_every_model_above_the_limit_is_named(monkeypatch, capsys):
    far, near = with_mean(estimate(9.0), tuned="far"), with_mean(estimate(0.1), tuned="near")
    measuring(monkeypatch, far, near)
    assert main(["gauge", "base", "a", "b", "--fail-above", "1"]) == 3
    said = capsys.readouterr().err
    assert "far moved 9.00" in said
    assert "near" not in said


def test_a_limit_needs_a_kl(monkeypatch, capsys):
    measuring(monkeypatch, gauge(reverse=None))
    assert main(["gauge", "base", "a", "--fail-above", "1"]) == 2
    assert capsys.readouterr().err == (
        "kleash: --fail-above 1: runs/a/checkpoints/step_40 has no KL per sequence. Give it prompts.\n"
    )


def test_an_interrupted_measurement_is_reported_and_is_130(monkeypatch, tmp_path, capsys):
    measuring(monkeypatch, gauge(partial=True))
    page = tmp_path / "gauge.html"
    assert main(["gauge", "base", "a", "--out", str(page), "--fail-above", "0"]) == 130
    captured = capsys.readouterr()
    assert "Moved 2.9" in captured.out
    assert captured.err == "kleash: interrupted\n"
    assert "partial" in page.read_text()


def test_models_that_were_not_reached_are_an_interrupt_too(monkeypatch, capsys):
    measuring(monkeypatch, gauge())
    assert main(["gauge", "base", "a", "b"]) == 130
    assert "Moved 2.9" in capsys.readouterr().out


def test_one_prompt_has_no_interval_to_hold_a_limit_against(monkeypatch, capsys):
    measuring(monkeypatch, with_mean(Estimate(2.0, float("nan"), float("nan"), 1, 1)))
    assert main(["gauge", "base", "a", "--fail-above", "1.5"]) == 2
    assert capsys.readouterr().err == (
        "kleash: --fail-above 1.5: one prompt gives runs/a/checkpoints/step_40 no interval. Give two prompts or more.\n"
    )


def results(folder, name, value):
    path = folder / name
    path.write_text(json.dumps({"results": {"arc": {"acc,none": value, "acc_stderr,none": 0.001}}}))
    return str(path)


def test_lm_eval_scores_stand_beside_the_drift_and_in_the_verdict(monkeypatch, tmp_path, capsys):
    measuring(monkeypatch, gauge(), gauge("b"))
    first, second, third = (results(tmp_path, name, value) for name, value in (("a", 0.5), ("b", 0.25), ("c", 0.75)))
    words = ["--json", "-", "--lm-eval", first, "--lm-eval", second, "--lm-eval", third]
    assert main(["gauge", "base", "a", "b", *words]) == 0
    found = json.loads(capsys.readouterr().out)["gauges"]
    assert [[score["name"] for score in one["scores"]] for one in found] == [["positive", "arc acc"]] * 2
    assert [one["scores"][1]["difference"]["value"] for one in found] == [-0.25, 0.25]
    assert "down on arc acc" in found[0]["verdict"]
    assert "up on positive, arc acc" in found[1]["verdict"]


def test_lm_eval_is_given_once_a_model(monkeypatch, tmp_path, capsys):
    asked = measuring(monkeypatch, gauge())
    assert main(["gauge", "base", "a", "--lm-eval", results(tmp_path, "a", 0.5)]) == 2
    assert capsys.readouterr().err == (
        "kleash: --lm-eval is given 1 times for 1 reference and 1 tuned: a results file holds the scores of one model. "
        "Give it once for REFERENCE, then once for each TUNED, in their order.\n"
    )
    assert asked == []


def test_a_curve_measures_every_checkpoint(monkeypatch, tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        for step in (10, 20):
            folder = tmp_path / "run" / "checkpoints" / f"step_{step}"
            folder.mkdir(parents=True)
            writer.write_step(Step(step, {}))
            writer.write_checkpoint(Checkpoint(step, folder))
    asked = measuring(monkeypatch, gauge(), gauge("b"))
    assert main(["gauge", "base", str(tmp_path / "run"), "--curve"]) == 0
    assert asked[0][1] == [f"{tmp_path / 'run'}@10", f"{tmp_path / 'run'}@20"]


def test_a_model_that_cannot_be_used_is_the_users_mistake(monkeypatch, capsys):
    measuring(monkeypatch, error=ModelError("weights"))
    assert main(["gauge", "base", "a"]) == 2
    assert capsys.readouterr().err == "kleash: weights\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-above", "-1"], "--fail-above -1 is no limit: a KL is 0 nats or more. Give a number such as 2.5."),
        (["--fail-above", "nan"], "--fail-above nan is no limit"),
        (["--out", "none/page.html"], "--out none/page.html: there is no folder none to write it in. Make it first."),
        (["--json", "."], "--json . is a folder. Give the name of a file, such as gauge.html."),
    ],
)
def test_what_cannot_be_written_or_held_is_refused_before_measuring(monkeypatch, tmp_path, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    asked = measuring(monkeypatch, gauge())
    assert main(["gauge", "base", "a", *words]) == 2
    assert capsys.readouterr().err.startswith(f"kleash: {said}")
    assert asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--dtype", "float31"],
            "kleash: 'float31' is not a value of --dtype. Did you mean 'float32'? There are: auto,",
        ),
        (["--batch-size", "0"], "kleash: argument --batch-size: '0' is no number of replies. Give auto, or 1 or more"),
    ],
)
def test_values_that_do_not_parse(capsys, words, said):
    with pytest.raises(SystemExit) as left:
        main(["gauge", "base", "a", *words])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(said)


def test_a_refusal_needs_no_torch():
    script = (
        "import sys\nfrom kleash.cli.main import main\n"
        "main(['gauge', 'base', 'a', '--fail-above', '-1'])\n"
        "import kleash.gauge.page\n"
        "print(sorted({'torch', 'transformers'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
