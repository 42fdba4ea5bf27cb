"""`kleash watch`: its arguments, and the runs in the terminal. The page itself is tested where it is made."""

import math
import re
import shutil
import signal
import subprocess
import sys
from types import ModuleType

import pytest

from kleash.cli import watch, watch_plain
from kleash.cli.arguments import parser
from kleash.cli.main import main
from kleash.errors import KleashError
from kleash.runs.records import Event, Step
from kleash.runs.writer import RunWriter


def make_run(path, *, alarm=False):
    with RunWriter.create(path, {"training": {"steps": 8}, "monitor": {}}, {}) as writer:
        for step in range(4):
            metrics = {"reward/proxy": 0.5 * step, "kl/exact_per_sequence": 2.0, "control/beta": 0.0625}
            writer.write_step(Step(step, metrics | {"time/total": 1.0}, {"reward/proxy": 0.125}))
        if alarm:
            writer.write_event(Event(3, "warning", "kl/odd", "KL is [odd].", began=2))
    return path


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs" / "calm")
    return tmp_path / "runs"


def rows(text):
    """The cells of each line; two blanks or more stand between them."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_one_run_is_shown_with_its_numbers_and_how_they_went(runs, capsys):
    assert main(["watch", str(runs), "--once"]) == 0
    assert rows(capsys.readouterr().out) == [
        ["run", "status", "steps", "reward", "KL", "beta", "health"],
        ["calm", "running", "4 of 8", "1.50", "2 nats per sequence", "0.0625", "ok"],
        [""],
        ["metric", "last", "unit", "how it went"],
        ["Reward", "1.50 ± 0.12", "reward", "▁▃▆█"],
        ["KL to the reference", "2", "nats per sequence", "▁▁▁▁"],
        ["beta", "0.0625", "reward per nat", "▁▁▁▁"],
    ]


def test_a_number_that_training_does_not_measure_says_where_it_comes_from(tmp_path, capsys):
    with RunWriter.create(tmp_path / "runs" / "dpo", {"monitor": {}}, {}) as writer:
        writer.write_step(Step(0, {"eval/reward/proxy": 0.5, "eval/kl/exact_per_sequence": 2.0}))
        writer.write_step(Step(1, {"loss/preference": 1.0}))
    assert main(["watch", str(tmp_path / "runs"), "--once"]) == 0
    _, line, *_ = rows(capsys.readouterr().out)
    assert line[3:5] == ["0.500 (held out, step 0)", "2 nats per sequence (held out, step 0)"]


def test_several_runs_are_a_list_with_their_alarms_under_it(runs, capsys):
    make_run(runs / "odd", alarm=True)
    (runs / "torn").mkdir()
    (runs / "torn" / "run.db").write_bytes(b"no database" * 1000)
    assert main(["watch", str(runs), "--once"]) == 0
    found = capsys.readouterr().out
    assert [line[:1] + line[-1:] for line in rows(found)[:4]] == [
        ["run", "health"],
        ["calm", "ok"],
        ["odd", "warning"],
        ["torn", "unreadable"],
    ]
    assert "odd: warning, kl/odd, since step 2. KL is [odd]." in found
    assert re.search(r"torn: .*run\.db cannot be read as a run", found)


def test_an_empty_folder_says_that_it_waits(tmp_path, capsys):
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert capsys.readouterr().out == "There are no runs here yet. One that begins is shown by itself.\n"


def test_a_path_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "absent"), "--once"]) == 2
    assert re.search(r"There is no .*absent\. Give a run's folder", capsys.readouterr().err)


def test_without_a_terminal_each_change_is_a_line(runs, monkeypatch):
    monkeypatch.setattr(watch_plain, "LOOK_SECONDS", 0.0)
    calm = "calm running, step 4 of 8, reward 1.50, KL 2 nats per sequence, beta 0.0625, no open alarm"
    with watch_plain._opened([runs]) as (_, listed):
        lines = watch_plain.changes(listed)
        assert next(lines).partition(" ")[2] == calm
        make_run(runs / "odd", alarm=True)
        assert next(lines).endswith("beta 0.0625, warning kl/odd")
        shutil.rmtree(runs / "calm")
        assert re.search(r"calm: .*calm is gone: the run was deleted or moved", next(lines))


def test_ctrl_c_leaves_the_terminal_in_order(runs):
    process = subprocess.Popen(
        [sys.executable, "-m", "kleash", "watch", str(runs), "--plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "calm running, step 4 of 8" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 4, ""),
        ([1.0], 4, "▁"),
        ([0.0, 7.0], 4, "▁█"),
        ([0.0, 2.0, 6.0, 8.0], 2, "▁█"),
        ([0.0, math.nan, 7.0], 4, "▁×█"),
        ([math.inf, math.nan], 4, "××"),
    ],
)
def test_a_sparkline_has_a_bar_for_as_many_values_as_it_takes(values, width, expected):
    assert watch_plain.sparkline(values, width) == expected


def test_arguments_are_those_of_the_function(tmp_path):
    found = vars(parser().parse_args(["watch", "a", "b", "--port", "0", "--token", "auto"]))
    assert found.pop("call") == "watch:run"
    assert [str(path) for path in found.pop("runs")] == ["a", "b"]
    assert found == {"host": "127.0.0.1", "port": 0, "token": "auto", "plain": False, "once": False}
    assert vars(parser().parse_args(["watch"]))["port"] == 8477


def test_the_page_is_served_where_it_is_told(monkeypatch, tmp_path):
    called = []
    page = ModuleType("kleash.web.watch")
    page.serve = lambda runs, **where: called.append(([str(path) for path in runs], where))
    monkeypatch.setitem(sys.modules, "kleash.web.watch", page)
    watch.run()
    watch.run([tmp_path], "0.0.0.0", 80, "secret")
    assert called == [
        (["runs"], {"host": "127.0.0.1", "port": 8477, "token": None}),
        ([str(tmp_path)], {"host": "0.0.0.0", "port": 80, "token": "secret"}),
    ]


def test_what_is_not_installed_is_named_with_the_way_around(monkeypatch):
    monkeypatch.delitem(sys.modules, "kleash.web.watch", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(KleashError, match=r"needs fastapi, .* pip install 'kleash\[watch\]'.*kleash watch --plain"):
        watch.run()


def test_the_terminal_needs_no_web_server(runs):
    code = (
        f"import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = sys.modules['torch'] = None\n"
        f"from kleash.cli.main import main; sys.exit(main(['watch', {str(runs)!r}, '--once']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
