import json
import subprocess
import sys

import pytest
from foreign_logs import event_file, json_lines, trainer_state

from kleash.cli.main import main
from kleash.monitor.rule import Finding
from kleash.runs.records import Cause, Checkpoint, Event, Step
from kleash.runs.writer import RunWriter

HISTORY = [
    {"step": step, "reward": 0.5, "kl": 0.25 * step, "completions/mean_length": 9.0, "rewards/mine/std": 0.1}
    for step in (1, 2, 3)
]


class Finds:
    """A rule that finds what it is told in the last step of three."""

    name, title, looks_at = "kl/spike", "Spike", ("kl/k3_per_token",)
    causes = (Cause("one odd batch", "its samples"),)
    advice = "Look at them."

    def __init__(self, severity):
        self.severity = severity

    def __call__(self, history, facts):
        """Find it."""
        if history.now < 3:
            return None
        return Finding(self.severity, f"The KL jumped, beta {facts.beta}.", {"kl": float("inf")}, began=2)


@pytest.fixture
def trl(tmp_path):
    trainer_state(tmp_path / "out", HISTORY, tag="grpo")
    return tmp_path / "out"


@pytest.fixture
def finds(monkeypatch):
    """Replace the rules by one that finds something of a severity, or by none."""

    def use(severity=None):
        rules = [] if severity is None else [severity]
        monkeypatch.setattr("kleash.monitor.monitor.make_rules", lambda: [Finds(one) for one in rules])

    use()
    return use


def test_a_healthy_log_is_told_and_exits_0(trl, finds, capsys):
    assert main(["audit", str(trl)]) == 0
    out = capsys.readouterr().out
    for words in (
        "TRL GRPO",
        "3, from 1 to 3",
        "the model card README.md says grpo",
        "KL(policy ‖ reference), estimator k3, nats per token",
        "rewards/mine/std",
        "None: no rule found anything in these numbers.",
        "0.750",
    ):
        assert words in out


def test_an_alarm_exits_4_with_its_causes(trl, finds, capsys):
    finds("warning")
    assert main(["audit", str(trl), "--beta", "0.5"]) == 4
    printed = capsys.readouterr()
    for words in (
        "warning   kl/spike  since step 2, noticed in 3",
        "The KL jumped, beta 0.5.",
        "likely  one odd batch",
        "check   its samples",
        "Look at them.",
        "Suspect checkpoints",
        "checkpoint-2",
    ):
        assert words in printed.out
    assert printed.err == f"kleash: {trl} raises kl/spike (warning).\n"
    assert main(["audit", str(trl), "--from", "critical"]) == 0
    finds("critical")
    assert main(["audit", str(trl), "--from", "critical"]) == 4
    finds("info")
    assert main(["audit", str(trl)]) == 0


def test_json_holds_everything(trl, finds, capsys, tmp_path):
    finds("critical")
    assert main(["audit", str(trl), "--json"]) == 4
    printed = capsys.readouterr()
    assert "kl/spike" in printed.err
    whole = json.loads(printed.out)
    assert whole["schema_version"] == 1
    assert whole["source"] == "TRL GRPO"
    assert whole["steps"] == {"count": 3, "first": 1, "last": 3}
    assert whole["columns"][0] == {
        "name": "kl",
        "key": "kl/k3_per_token",
        "says": "KL(policy ‖ reference), estimator k3, nats per token; times the ratio if use_bias_correction_kl",
    }
    assert whole["last"]["kl/k3_per_token"] == {"step": 3, "value": 0.75, "unit": "nats per token"}
    assert whole["alarms"] == [
        {
            "name": "kl/spike", "severity": "critical", "began": 2, "noticed": 3, "over": None,
            "message": "The KL jumped, beta None.", "values": {"kl": "inf"},
            "causes": [{"text": "one odd batch", "check": "its samples"}], "advice": "Look at them.",
        }
    ]  # fmt: skip
    assert whole["alarms_from"] == "rules"
    assert whole["suspect_checkpoints"] == [{"step": 2, "path": str(trl / "checkpoint-2"), "alarms": ["kl/spike"]}]
    assert main(["audit", str(trl), "--json", str(tmp_path / "audit.json")]) == 4
    assert json.loads((tmp_path / "audit.json").read_text()) == whole
    assert "Last numbers" in capsys.readouterr().out


def test_a_watched_run_is_told_as_it_was_recorded(tmp_path, finds, capsys):
    finds("critical")
    path = tmp_path / "run"
    with RunWriter.create(path, {"monitor": {"ignore": ["kl/spike"]}}, {}) as writer:
        for step in range(4):
            writer.write_step(Step(step, {"kl/exact_per_sequence": 1.0}))
    assert main(["audit", str(path)]) == 0
    out = capsys.readouterr().out
    assert "None was recorded in training." in out
    assert "this log has 4 of its KL, so that only fixed limits were applied." in " ".join(out.split())
    with RunWriter.resume(path, 3) as writer:
        writer.write_event(Event(3, "warning", "length/blow_up", "Longer.", began=2))
        writer.write_event(Event(3, "critical", "action/stop", "The run ends here."))
    assert main(["audit", str(path), "--json"]) == 4
    printed = capsys.readouterr()
    assert "As the run recorded them while it was trained." in printed.err
    whole = json.loads(printed.out)
    assert [(alarm["name"], alarm["began"]) for alarm in whole["alarms"]] == [("length/blow_up", 2)]
    assert whole["alarms_from"] == "record"
    assert whole["health_notes"] == [
        "Change rules need about 230 measurements of a series; this log has 4 of its KL, so that only fixed limits "
        "were applied."
    ]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--beta", "0.5"], "--beta 0.5: {path} is a Kleash run that was watched while it was trained"),
        (["--trainer", "TRL GRPO"], "{path} is a Kleash run: its numbers have the catalogue's names already"),
        (["--column", "a=kl/k3_per_token"], "so that --column a=kl/k3_per_token would change nothing. Leave it out."),
    ],
)
def test_what_would_change_nothing_of_a_kleash_run_is_refused(tmp_path, finds, capsys, option, words):
    path = tmp_path / "run"
    with RunWriter.create(path, {"monitor": {}}, {}) as writer:
        writer.write_step(Step(0, {"kl/exact_per_sequence": 0.0}))
    assert main(["audit", str(path), *option]) == 2
    assert words.format(path=path) in capsys.readouterr().err


def test_a_kleash_run_shows_the_kl_that_matters_and_its_suspects(tmp_path, finds, capsys):
    finds("warning")
    path = tmp_path / "run"
    with RunWriter.create(path, {"training": {"steps": 9}}, {}) as writer:
        for step in range(4):
            writer.write_step(
                Step(step, {"kl/exact_per_sequence": 1.0, "kl/class_word": 0.5, "eval/reward/proxy": 2.0})
            )
        writer.write_checkpoint(Checkpoint(3, path / "checkpoints" / "step_3"))
    assert main(["audit", str(path)]) == 4
    out = capsys.readouterr().out
    assert "The run was trained without a monitor; its steps were shown to the rules now." in out
    assert "KL to the reference, nats per sequence" in out
    assert "kl/class_word" not in out
    assert "Reward, held out" in out
    assert f"{path}/checkpoints/step_3  kl/spike" in out


def test_numbers_that_are_none_do_not_stop_it(tmp_path, capsys):
    rows = [
        {"step": step, "reward/proxy": 1.0, "kl/k1_per_token": value} for step, value in enumerate((0.1, "nan", "inf"))
    ]
    code = main(["audit", str(json_lines(tmp_path / "metrics.jsonl", rows)), "--json", "-"])
    assert code in (0, 4)
    assert json.loads(capsys.readouterr().out)["last"]["kl/k1_per_token"]["value"] == "inf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--column", "kl"], "--column kl is not NAME=KEY"),
        (["--column", "kl=kl/k3_per_token", "--column", "kl=kl/k1_per_token"], "--column gives kl twice"),
        (["--column", "kl=kl/k3_per_tokn"], "Did you mean 'kl/k3_per_token'?"),
        (["--trainer", "TRL GRP"], "Did you mean 'TRL GRPO'?"),
        (["--beta", "-1"], "--beta -1 is no price of drift"),
        (["--json", "nowhere/audit.json"], "there is no folder nowhere"),
    ],
)
def test_arguments_that_cannot_be(trl, arguments, message, capsys):
    assert main(["audit", str(trl), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_column_of_ones_own(tmp_path, finds, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("n,a=b\n1,0.5\n")
    assert main(["audit", str(path), "--column", "n=step", "--column", "a=b=kl/k3_per_token"]) == 0
    assert "k3 per token, nats per token; --column says so" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["none", "empty", "garbage.jsonl"])
def test_what_is_no_log_exits_2_with_a_sentence(tmp_path, name, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage.jsonl").write_bytes(b"\x00\xff" * 99)
    assert main(["audit", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("kleash: ")
    assert "Traceback" not in printed.err


def test_tensorboard_without_its_package_names_the_extra(tmp_path):
    event_file(tmp_path / "runs", {"train/kl": {1: 0.5}})
    code = (
        "import sys; sys.modules['tensorboard'] = None; from kleash.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "audit", str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 2, result.stderr
    assert "pip install 'kleash[logs]'" in result.stderr
