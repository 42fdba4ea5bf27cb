import re
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

import kleash.training
from kleash.cli.main import main
from kleash.config.loader import load, to_dict
from kleash.runs.reader import RunReader
from kleash.runs.records import Checkpoint, Event, Sample, Step
from kleash.runs.writer import RunWriter


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Room for a row on a line, however long the path of a temporary folder is."""
    monkeypatch.setattr("kleash.cli.screen.PIPE_WIDTH", 400)


@pytest.fixture
def run_dir(tmp_path):
    """A run of two training steps and the evaluation after them, stopped by a rule."""
    given = ["model=tiny", "prompts=openers.txt", "reward=mine:score", "algorithm.num_generations=8"]
    config = to_dict(load(None, [*given, "algorithm.kl.target_nats_per_sequence=6", 'mirrors=["wandb"]']).config)
    path = tmp_path / "runs" / "first"
    with RunWriter.create(path, config, {}) as writer:
        for step in range(2):
            metrics = {"reward/proxy": 0.25 + step, "kl/exact_per_sequence": 5.5, "control/beta": 0.0625}
            errors = {"reward/proxy": 0.0625}
            writer.write_step(Step(step, metrics | {"time/total": 1.0}, errors), events=[])
        writer.write_step(Step(2, {"eval/reward/proxy": 0.5, "eval/mine": 3.0}, {"eval/reward/proxy": 0.125}))
        writer.write_event(Event(1, "critical", "kl_limit", "KL went [over] 5"))
        writer.write_checkpoint(Checkpoint(2, path / "checkpoints" / "step_2"))
        writer.set_status("stopped", "KL limit")
    return path


def rows(text):
    """The cells of each line; two blanks or more stand between them."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_list_has_a_line_a_run(run_dir, capsys):
    assert main(["runs", "list", str(run_dir.parent)]) == 0
    header, line = rows(capsys.readouterr().out)
    assert header == ["run", "status", "health", "algorithm", "model", "steps", "result", "KL", "beta", "started"]
    assert line[:9] == [
        str(run_dir), "stopped", "no alarm", "rloo", "tiny", "2",
        "reward 1.250 ± 0.062", "5.50 nats per sequence", "0.0625",
    ]  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", line[9])


@pytest.mark.parametrize(
    ("algorithm", "metrics", "result", "kl"),
    [
        ("dpo", {"preference/accuracy": 0.5, "eval/preference/accuracy": 0.75, "eval/reward/proxy": 0.125},
         "accuracy 0.750", "2 nats per sequence"),
        ("reward_model", {"preference/accuracy": 0.5}, "accuracy 0.500", "2 nats per sequence"),
        ("sft", {"loss/sft": 3.0, "eval/loss/sft": 2.25}, "loss 2.25", "2 nats per sequence"),
        ("sft", {}, "–", "2 nats per sequence"),
    ],
)  # fmt: skip
def test_list_names_the_number_that_a_run_is_about(tmp_path, capsys, algorithm, metrics, result, kl):
    with RunWriter.create(tmp_path / "runs" / "one", {"algorithm": {"type": algorithm}}, {}) as writer:
        writer.write_step(Step(0, metrics | {"eval/kl/exact_per_sequence": 2.0, "time/total": 1.0}))
    assert main(["runs", "list", str(tmp_path / "runs")]) == 0
    _, line = rows(capsys.readouterr().out)
    assert line[3] == algorithm
    assert line[6:8] == [result, kl]


def test_a_run_that_cannot_be_read_hides_no_other(run_dir, capsys):
    broken = run_dir.parent / "broken"
    broken.mkdir()
    (broken / "run.db").write_text("not a database, but long enough to be read as one" * 50)
    assert main(["runs", "list", str(run_dir.parent)]) == 0
    printed = capsys.readouterr()
    assert [line[:2] for line in rows(printed.out)[1:]] == [[str(broken), "unreadable"], [str(run_dir), "stopped"]]
    assert printed.err.startswith(f"{broken / 'run.db'} cannot be read as a run")


def test_a_folder_without_runs(tmp_path, capsys):
    assert main(["runs", "list", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"There are no runs in {tmp_path}. `kleash demo` makes one.\n"
    assert main(["runs", "list", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(f"kleash: There is no folder {tmp_path / 'none'}")


def test_show_says_all_that_matters(run_dir, capsys):
    assert main(["runs", "show", str(run_dir)]) == 0
    printed = capsys.readouterr().out
    lines = rows(printed)
    assert "\x1b" not in printed
    for line in (
        ["status", "stopped: KL limit"],
        ["algorithm", "rloo"],
        ["steps", "2 of 100"],
        ["samples", "0 train, 0 eval, 0 before, 0 after"],
        ["report", f"none yet: kleash report {run_dir}"],
        ["algorithm.num_generations", "8"],
        ["algorithm.kl.target_nats_per_sequence", "6.0"],
        ["model.name", '"tiny"'],
        ["mirrors", '["wandb"]'],
        ["Reward", "1.250 ± 0.062", "0.50 ± 0.12", "reward", "reward/proxy"],
        ["beta", "0.0625", "–", "reward per nat", "control/beta"],
        ["mine", "–", "3", "mine"],
        ["1", "critical", "kl_limit", "KL went [over] 5"],
        ["2", "–", f"{run_dir}/checkpoints/step_2 (gone)"],
    ):
        assert line in lines, line
    assert not any(line[0] in ("training.seed", "training.steps", "name", "algorithm.type") for line in lines)


def test_show_keeps_the_address_of_a_webhook_secret(tmp_path, capsys):
    settings = {"monitor": {"webhook": "https://me:word@hooks.example.com/services/T0/SECRET?key=SECRET"}}
    RunWriter.create(tmp_path / "run", settings, {}).close()
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert ["monitor.webhook", '"https://hooks.example.com/…"'] in rows(printed)
    assert "SECRET" not in printed
    assert "word" not in printed


def test_show_counts_samples_without_reading_them(run_dir, capsys, monkeypatch):
    with RunWriter.resume(run_dir, 2) as writer:
        writer.write_samples(
            Sample(2, split, index, 0, "Why?", "So.", ("So", "."), (0.5, 0.5), None, None, 1.0, True)
            for split, index in (("train", 0), ("eval", 0), ("eval", 1))
        )

    def refuse(*_):
        raise AssertionError("every text and token was read")

    monkeypatch.setattr(RunReader, "samples", refuse)
    monkeypatch.setattr(RunReader, "steps", refuse)
    monkeypatch.setattr(RunReader, "series", refuse)
    assert main(["runs", "show", str(run_dir)]) == 0
    lines = rows(capsys.readouterr().out)
    assert ["samples", "1 train, 2 eval, 0 before, 0 after"] in lines
    assert ["steps", "2 of 100"] in lines


def test_a_checkpoint_of_the_callback_is_suspect_where_the_next_step_is(tmp_path, capsys):
    """There the numbers of a step are measured before its update, so the next step measures the checkpoint too."""
    for name, settings in (("callback", {"callback": {"ladder": []}}), ("kleash", {"monitor": {}})):
        path = tmp_path / "runs" / name
        with RunWriter.create(path, settings, {}) as writer:
            writer.write_event(Event(11, "critical", "kl/spike", "KL jumped", began=11))
            writer.write_checkpoint(Checkpoint(10, path / "step_10"))
        assert main(["runs", "show", str(path)]) == 0
        suspect = {"callback": "kl/spike", "kleash": "–"}[name]
        assert ["10", suspect, f"{path}/step_10 (gone)"] in rows(capsys.readouterr().out)


def test_a_run_from_before_there_was_a_monitor_is_not_called_healthy(tmp_path, capsys):
    RunWriter.create(tmp_path / "runs" / "old", {"training": {"steps": 8}}, {}).close()
    assert main(["runs", "list", str(tmp_path / "runs")]) == 0
    _, line = rows(capsys.readouterr().out)
    assert line[2] == "not watched"


@pytest.fixture
def alarmed(run_dir):
    """The same run with an alarm that is over, one that goes on, and what was done."""
    with RunWriter.resume(run_dir, 1) as writer:
        for event in (
            Event(0, "warning", "kl/spike", "KL jumped", began=0),
            Event(0, "warning", "action/tighten", "target 6 -> 4.2"),
            Event(1, "info", "kl/spike", "over", {"last": 0}, began=0, ends=True),
            Event(1, "warning", "kl/ramp", "KL doubles", began=1),
            Event(1, "critical", "kl/ramp", "KL doubles fast", began=1),
            Event(1, "warning", "text/diversity", "the same words", began=1),
        ):
            writer.write_event(event)
        writer.write_checkpoint(Checkpoint(0, run_dir / "checkpoints" / "step_0"))
    return run_dir


def test_show_tells_alarms_with_their_steps_and_marks_suspect_checkpoints(alarmed, capsys):
    assert main(["runs", "show", str(alarmed)]) == 0
    lines = rows(capsys.readouterr().out)
    alarms, events, checkpoints = (lines.index([title]) for title in ("Alarms", "Events", "Checkpoints"))
    assert lines[alarms + 1 : alarms + 5] == [
        ["began", "last", "severity", "alarm", "what happened"],
        ["0", "0", "warning", "kl/spike", "KL jumped"],
        ["1", "open", "critical", "kl/ramp", "KL doubles fast"],
        ["1", "open", "warning", "text/diversity", "the same words"],
    ]
    assert [line[2] for line in lines[events + 2 : checkpoints] if line[0]] == ["kl_limit", "action/tighten"]
    assert lines[checkpoints + 1 :] == [
        ["step", "suspect because of", "folder"],
        ["0", "kl/spike", f"{alarmed}/checkpoints/step_0 (gone)"],
        ["2", "kl/ramp, text/diversity", f"{alarmed}/checkpoints/step_2 (gone)"],
    ]


def test_list_names_the_worst_alarm_that_is_open(alarmed, capsys, monkeypatch):
    monkeypatch.chdir(alarmed.parent.parent)
    assert main(["runs", "list"]) == 0
    _, line = rows(capsys.readouterr().out)
    assert line[2] == "critical: kl/ramp and 1 more"


@dataclass(frozen=True)
class APair:
    prompt: str
    reference_text: str
    policy_text: str
    tokens: tuple[str, ...]
    token_kl: tuple[float, ...]
    kl: float


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the models: remembers what it is asked and answers one pair a prompt."""
    calls = []

    def side_by_side(run_dir, prompts, **options):
        calls.append((run_dir, prompts, options))
        return [
            APair(prompt, " was bad", " was\ngood", (" was", "\n", "good"), (0.0, 0.25, 3.5), 3.75)
            for prompt in prompts
        ]

    module = ModuleType("kleash.training.compare")
    module.side_by_side = side_by_side
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kleash.training, "compare", module, raising=False)
    return calls


def test_try_prints_numbers_where_there_are_no_colours(run_dir, asked, capsys):
    assert main(["try", str(run_dir), "The film", "The book", "--step", "2", "--samples", "3", "--seed", "5"]) == 0
    assert asked == [(run_dir, ["The film", "The book"], {"step": 2, "samples": 3, "seed": 5, "max_length": None})]
    assert capsys.readouterr().out.split("\n\n")[0].splitlines() == [
        "prompt     'The film'",
        "reference  ' was bad'",
        "policy     ' was\\ngood'",
        "KL         3.75 nats: ' was' 0  '\\n' 0.250  'good' 3.50",
    ]


def test_try_colours_tokens_on_a_terminal(run_dir, asked, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["try", str(run_dir), "The film"]) == 0
    printed = capsys.readouterr().out
    assert "nats per token" in printed
    worst, swatch = re.search(r"\x1b\[([0-9;]+)mgood", printed), re.search(r"\x1b\[([0-9;]+)m 3 \x1b", printed)
    assert worst[1] == swatch[1]
    assert "policy, KL 3.75 nats" in printed
    assert "\x1b[1mThe film" in printed
