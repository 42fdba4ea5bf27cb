import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from kleash.cli.lines import closing
from kleash.cli.progress import Plain, Terminal, watching
from kleash.runs.records import Event, Step
from kleash.training.observer import CheckResult

KL = "kl/exact_per_sequence"


def a_step(number, **more):
    metrics = {
        "reward/proxy": 0.4123,
        KL: 5.831,
        "control/target": 6.0,
        "control/beta": 0.0412,
        "entropy/per_token": 2.318,
        "length/mean": 23.9,
        "length/stop_rate": 0.0312,
        "text/distinct_2": 0.9312,
        "time/total": 4.82,
    }
    return Step(number, metrics | more, {"reward/proxy": 0.0312, KL: 0.211})


def lines_of(capsys):
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    return printed.splitlines()


def test_plain_prints_one_line_a_step(capsys):
    watcher = Plain(KL)
    watcher.fact("reference  the adapter switched off")
    watcher.checked(CheckResult("padding", True, "padding moves a score by 0 nats"))
    watcher.checked(CheckResult("kl_at_start", False, "KL is 0.2 nats"))
    watcher.checked(CheckResult("speed", False, "slow", fatal=False))
    watcher.began(10, 55)
    watcher.progress("held-out", 3, 36)
    watcher.stepped(a_step(10))
    assert lines_of(capsys) == [
        "reference  the adapter switched off",
        "check      ok      padding: padding moves a score by 0 nats",
        "check      failed  kl_at_start: KL is 0.2 nats",
        "check      warning speed: slow",
        "training   45 steps, from step 10",
        "step 10  reward 0.412±0.031  KL nats/sequence 5.83±0.21  target 6  beta 0.0412  entropy 2.32  length 23.9  "
        "stop 3\u202f%  dist-2 0.931  s/step 4.82",
    ]


def test_the_unit_of_the_kl_is_that_of_the_target(capsys):
    Plain("kl/exact_per_token").stepped(Step(3, {"kl/exact_per_token": 0.25, "time/total": 1.0}))
    assert lines_of(capsys) == [
        "step 3  reward –  KL nats/token 0.250  target –  beta –  entropy –  length –  stop –  dist-2 –  s/step 1"
    ]


def test_an_evaluation_has_its_line_and_the_last_one_is_no_step(capsys):
    evaluated = {"eval/reward/proxy": 0.5, f"eval/{KL}": 6.25}
    watcher = Plain(KL)
    watcher.stepped(a_step(20, **evaluated))
    watcher.stepped(Step(55, evaluated, {"eval/reward/proxy": 0.0625, f"eval/{KL}": 0.25}))
    first, step, last = lines_of(capsys)
    assert first == "held out   after 20 steps: reward 0.500, KL 6.25 nats per sequence"
    assert step.startswith("step 20  reward 0.412±0.031  ")
    assert last == "held out   after 55 steps: reward 0.500 ± 0.062, KL 6.25 ± 0.25 nats per sequence"


TEXT = {
    "loss/preference": 0.625, "preference/accuracy": 0.75, "preference/margin": 0.5, "time/total": 2.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (
            TEXT | {"preference/chosen_drift": -1.5, "preference/rejected_drift": -4.25},
            "step 3  loss 0.625  accuracy 0.750±0.062  margin 0.500  chosen drift nats/sequence −1.50  "
            "rejected drift nats/sequence −4.25  s/step 2",
        ),
        (
            TEXT | {"preference/chosen_score": 1.0, "preference/rejected_score": 0.5},
            "step 3  loss 0.625  accuracy 0.750±0.062  margin 0.500  s/step 2",
        ),
        (
            {"loss/sft": 2.25, "throughput/tokens_per_second": 1500.0, "time/total": 2.0},
            "step 3  loss nats/token 2.25  tokens/s 1,500  s/step 2",
        ),
    ],
)
def test_a_step_on_written_text_has_columns_of_its_own(capsys, metrics, line):
    errors = {key: 0.0625 for key in metrics if key == "preference/accuracy"}
    Plain(KL).stepped(Step(3, metrics, errors))
    assert lines_of(capsys) == [line]


ALARM = Event(12, "critical", "kl/spike", "KL is 40 nats [sic].", {"kl": 40.0}, 9, advice="Lower the rate.")
OVER = Event(32, "info", "kl/spike", "over since step 13: it is quiet.", {"last": 12}, 9, ends=True)
ACTION = Event(12, "warning", "action/tighten", "target 6 -> 4.2 nats per sequence.")


def test_plain_prints_an_alarm_with_its_severity_in_words(capsys):
    watcher = Plain(KL)
    for event in (ALARM, ACTION, OVER):
        watcher.alarmed(event)
    assert lines_of(capsys) == [
        "critical   step 12: kl/spike since step 9: KL is 40 nats [sic]. Lower the rate.",
        "warning    step 12: action/tighten: target 6 -> 4.2 nats per sequence.",
        "over       step 32: kl/spike: over since step 13: it is quiet.",
    ]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (
            {"preference/accuracy": 0.75, "reward/proxy": 0.5, "reward/gold": 0.25, KL: 6.25},
            "accuracy 0.750, reward 0.500, gold 0.250, KL 6.25 nats per sequence",
        ),
        ({"preference/accuracy": 0.75, "preference/agreement": 0.875}, "accuracy 0.750, agreement 0.875"),
        ({"loss/sft": 2.25, KL: 6.25}, "loss 2.25 nats per token, KL 6.25 nats per sequence"),
        ({"preference/accuracy": 0.75, "reward/proxy": None}, "accuracy 0.750"),
    ],
)
def test_an_evaluation_says_what_it_measured(capsys, metrics, said):
    Plain(KL).stepped(Step(40, {f"eval/{key}": value for key, value in metrics.items()}))
    assert lines_of(capsys) == [f"held out   after 40 steps: {said}"]


def test_how_a_run_ended(tmp_path):
    assert closing(tmp_path, "finished", "") == [f"finished   {tmp_path}"]
    (tmp_path / "report.html").touch()
    (tmp_path / "checkpoints" / "step_20").mkdir(parents=True)
    report, resume = f"report     {tmp_path}/report.html", f"go on      kleash train --resume {tmp_path}"
    assert closing(tmp_path, "finished", "") == [f"finished   {tmp_path}", report]
    assert closing(tmp_path, "interrupted", "by Ctrl-C") == [
        f"interrupted {tmp_path} (by Ctrl-C)",
        report,
        resume,
    ]
    assert closing(tmp_path, "stopped", "said by the error") == [f"stopped    {tmp_path}", report, resume]


def test_output_that_is_no_terminal_is_plain(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    with watching(KL) as watcher:
        assert isinstance(watcher, Plain)


def test_of_several_processes_only_the_first_speaks(monkeypatch, capsys):
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with watching(KL) as watcher:
            watcher.fact(f"from process {rank}")
    assert capsys.readouterr().out == "from process 0\n"


@pytest.fixture
def terminal():
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=80, height=30, _environ={}, markup=False
    )
    return Terminal(console, KL)


def seen(terminal):
    """What was printed, without the codes that move the cursor."""
    printed = terminal.live.console.file.getvalue()
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed).splitlines()]


def test_the_terminal_keeps_the_last_eight_steps_within_80_columns(terminal, tmp_path):
    with terminal.live:
        terminal.began(0, 55)
        for number in range(12):
            terminal.stepped(a_step(number))
        terminal.ended(tmp_path, "finished", "")
    lines = seen(terminal)
    end = lines.index(f"finished   {tmp_path}")
    header, *rows = lines[end - 9 : end]
    assert " ".join(header.split()) == "step reward nats/sequence target beta entropy length stop dist-2 s/step"
    assert [row.split()[0] for row in rows] == [str(number) for number in range(4, 12)]
    assert rows[-1].split() == (
        "11 0.412±0.031 5.83±0.21 6 0.0412 2.32 23.9 3\u202f% 0.931 4.82".replace("\u202f", " ").split()
    )
    assert max(len(line) for line in [header, *rows]) <= 80


def test_a_table_of_comparisons_fits_80_columns(terminal, tmp_path):
    drift = {"preference/chosen_drift": -11.25, "preference/rejected_drift": -104.25}
    with terminal.live:
        for number in range(2):
            terminal.stepped(Step(number, TEXT | drift, dict.fromkeys(drift, 2.125)))
        terminal.ended(tmp_path, "finished", "")
    lines = [line for line in seen(terminal) if "−104.2±2.1" in line]
    assert len(lines) >= 2
    assert max(map(len, seen(terminal)[:-1])) <= 80


def test_facts_and_checks_stay_clear_of_their_label(terminal):
    terminal.fact("reward     " + "word " * 20)
    terminal.fact("no label here")
    terminal.checked(CheckResult("padding", False, "[bold] is text"))
    first, second, third, check = seen(terminal)
    assert first.startswith("reward     word word")
    assert second.startswith("           word")
    assert third == "no label here"
    assert check == "check      failed  padding           [bold] is text"


def test_an_alarm_stands_above_the_steps_and_stays_clear_of_its_label(terminal):
    terminal.alarmed(replace(ALARM, advice="Lower the rate, or hold a target."))
    terminal.alarmed(OVER)
    first, second, third = seen(terminal)
    assert first == "critical   step 12: kl/spike since step 9: KL is 40 nats [sic]. Lower the rate,"
    assert second == "           or hold a target."
    assert third == "over       step 32: kl/spike: over since step 13: it is quiet."


def test_the_phase_has_a_bar_only_while_it_lasts(terminal):
    terminal.began(10, 55)
    bars = terminal._bars.tasks
    assert (bars[0].description, bars[0].completed, bars[0].total, bars[1].visible) == ("training", 10, 55, False)
    terminal.progress("held-out", 3, 36)
    assert (bars[1].description, bars[1].completed, bars[1].total, bars[1].visible) == ("held-out", 3, 36, True)
    terminal.progress("held-out", 36, 36)
    assert not bars[1].visible
    terminal.stepped(a_step(10))
    assert (bars[0].completed, bars[0].fields["count"]) == (11, "11/55")
