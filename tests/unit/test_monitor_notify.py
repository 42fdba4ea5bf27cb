"""What others get of an alarm, and that nothing on their side holds up or fails a run."""

import json
import shlex
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kleash.monitor import notify
from kleash.monitor.notify import Notifier, masked, masked_settings, payload
from kleash.runs.records import Cause, Event

ALARM = Event(
    12,
    "critical",
    "kl/spike",
    "KL is 40 nats.",
    {"kl": 40.0, "ratio": float("inf"), "before": None},
    9,
    (Cause("a rate that is too high", "optim/learning_rate"),),
    "Lower it.",
)
SENT = {
    "run": "runs/one",
    "step": 12,
    "severity": "critical",
    "name": "kl/spike",
    "message": "KL is 40 nats.",
    "values": {"kl": 40.0, "ratio": "inf", "before": None},
    "began": 9,
    "causes": [{"text": "a rate that is too high", "check": "optim/learning_rate"}],
    "advice": "Lower it.",
}


def notifier(lowest="warning", webhook=None, command=None):
    return Notifier("runs/one", lowest=lowest, webhook=webhook, command=command)


@pytest.fixture
def server():
    """Keeps what is posted; answers with `status`, a number that a test may change."""
    got = []

    class Keeping(BaseHTTPRequestHandler):
        status = 200

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(Keeping.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Keeping)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    listening.got, listening.keeping = got, Keeping
    listening.url = f"http://127.0.0.1:{listening.server_port}/hook"
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_an_event_as_others_get_it():
    assert payload(ALARM, "runs/one") == SENT


def test_the_webhook_gets_every_alarm_that_is_severe_enough_in_order(server):
    telling = notifier(webhook=server.url)
    for severity in ("info", "warning", "critical"):
        telling.send(Event(1, severity, severity, ""))
    telling.send(ALARM)
    telling.close()
    assert [body["name"] for _, _, body in server.got] == ["warning", "critical", "kl/spike"]
    assert server.got[-1] == ("/hook", "application/json", SENT)
    assert telling.problems() == []


def test_only_critical_ones_where_the_settings_say_so(server):
    telling = notifier(lowest="critical", webhook=server.url)
    telling.send(Event(1, "warning", "w", ""))
    telling.send(Event(1, "critical", "c", ""))
    telling.close()
    assert [body["name"] for _, _, body in server.got] == ["c"]


def test_a_webhook_that_refuses_is_told_once(server):
    server.keeping.status = 500
    telling = notifier(webhook=server.url)
    telling.send(ALARM)
    telling.send(ALARM)
    telling.close()
    assert len(server.got) == 2
    (problem,) = telling.problems()
    assert problem == (
        f"the webhook {masked(server.url)} did not take an alarm (HTTP Error 500: Internal Server Error). The run goes "
        "on; further failures are not told"
    )
    assert telling.problems() == []


def test_nobody_listening_is_a_problem_and_no_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    telling = notifier(webhook=f"http://127.0.0.1:{port}/")
    telling.send(ALARM)
    telling.close()
    (problem,) = telling.problems()
    assert "did not take an alarm (<urlopen error" in problem


def test_a_webhook_that_never_answers_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(notify, "LAST_SECONDS", 0.2)
    monkeypatch.setattr(notify, "WEBHOOK_SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        telling = notifier(webhook=f"http://127.0.0.1:{silent.getsockname()[1]}/")
        start = time.monotonic()
        telling.send(ALARM)
        telling.send(ALARM)
        assert time.monotonic() - start < 0.1
        telling.close()
        assert time.monotonic() - start < 0.9
        (problem,) = telling.problems()
        assert "did not end within 0.2 s of the end of the run; what it had to say is lost" in problem
        telling._ways[0]._thread.join(5)


def python(body):
    """A command line that runs some Python."""
    return shlex.join([sys.executable, "-c", body])


def test_the_command_gets_the_alarm_on_its_input_and_in_its_environment(tmp_path):
    out = tmp_path / "out.json"
    body = (
        "import json, os, sys\n"
        "about = {k: v for k, v in os.environ.items() if k.startswith('KLEASH_EVENT_')}\n"
        f"open({str(out)!r}, 'w').write(json.dumps([json.load(sys.stdin), about]))"
    )
    telling = notifier(command=python(body))
    telling.send(ALARM)
    telling.close()
    given, about = json.loads(out.read_text())
    assert given == SENT
    assert about == {
        "KLEASH_EVENT_SEVERITY": "critical",
        "KLEASH_EVENT_NAME": "kl/spike",
        "KLEASH_EVENT_STEP": "12",
        "KLEASH_EVENT_RUN": "runs/one",
    }
    assert telling.problems() == []


def test_no_shell_reads_the_command(tmp_path):
    telling = notifier(command=f"touch '{tmp_path}/a; touch {tmp_path}/b'")
    telling.send(ALARM)
    telling.close()
    (problem,) = telling.problems()
    assert "ended with code 1 (touch: cannot touch" in problem
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_fails_is_told_once_with_its_last_words():
    command = python("import sys; print('first', file=sys.stderr); sys.exit('no such room')")
    telling = notifier(command=command)
    telling.send(ALARM)
    telling.send(ALARM)
    telling.close()
    (problem,) = telling.problems()
    assert problem == (
        f"the command {command!r} ended with code 1 (no such room). The run goes on; further failures are not told"
    )


def test_a_command_that_does_not_exist():
    telling = notifier(command="no-such-program --at all")
    telling.send(ALARM)
    telling.close()
    (problem,) = telling.problems()
    assert "cannot be run ([Errno 2] No such file or directory: 'no-such-program')" in problem


def is_alive(pid_file):
    """Whether the process that wrote its id runs; a zombie does not."""
    status = Path(f"/proc/{pid_file.read_text()}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def hanging(tmp_path):
    """A command that starts a child and waits for ever, and the files with the ids of both."""
    pids = tmp_path / "parent", tmp_path / "child"
    body = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids[1])!r}, 'w').write(str(child.pid))\n"
        f"open({str(pids[0])!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    return python(body), pids


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def written(pids):
    return all(pid.exists() and pid.read_text() for pid in pids)


def test_a_command_that_takes_too_long_is_ended_with_its_children(hanging, monkeypatch):
    command, pids = hanging
    monkeypatch.setattr(notify, "COMMAND_SECONDS", 5.0)
    telling = notifier(command=command)
    telling.send(ALARM)
    wait_for(lambda: written(pids))
    telling.close()
    (problem,) = telling.problems()
    assert "ran for more than 5 s and was ended" in problem
    wait_for(lambda: not any(map(is_alive, pids)))


def test_no_command_is_left_behind_at_the_end_of_a_run(hanging, monkeypatch):
    command, pids = hanging
    monkeypatch.setattr(notify, "LAST_SECONDS", 0.2)
    telling = notifier(command=command)
    telling.send(ALARM)
    telling.send(ALARM)
    wait_for(lambda: written(pids))
    telling.close()
    (problem,) = telling.problems()
    assert "did not end within 0.2 s of the end of the run" in problem
    wait_for(lambda: not any(map(is_alive, pids)))
    telling._ways[0]._thread.join(5)
    assert not telling._ways[0]._thread.is_alive()


def test_what_a_command_leaves_running_ends_with_it(tmp_path):
    pid = tmp_path / "pid"
    telling = notifier(command=f"sh -c 'sleep 600 & echo $! > {pid}'")
    telling.send(ALARM)
    wait_for(lambda: pid.exists() and pid.read_text())
    wait_for(lambda: not is_alive(tmp_path / "pid"))
    telling.close()
    assert telling.problems() == []


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://hooks.example.org/services/S3CRET?key=S3CRET#S3CRET", "https://hooks.example.org/…"),
        ("http://ann:S3CRET@127.0.0.1:8080/", "http://127.0.0.1:8080/…"),
    ],
)
def test_of_an_address_scheme_and_host_are_told(address, shown):
    assert masked(address) == shown


def test_a_failure_does_not_tell_the_address():
    telling = notifier(webhook="http://127.0.0.1:9/S3 CRET")
    telling.send(ALARM)
    telling.close()
    (problem,) = telling.problems()
    assert problem.startswith("the webhook http://127.0.0.1:9/… did not take an alarm (InvalidURL)")


def test_settings_for_others_have_the_address_masked_and_are_else_as_they_were():
    settings = {"name": "a", "monitor": {"webhook": "https://example.org/S3CRET", "notify": "warning"}}
    assert masked_settings(settings) == {
        "name": "a",
        "monitor": {"webhook": "https://example.org/…", "notify": "warning"},
    }
    assert settings["monitor"]["webhook"] == "https://example.org/S3CRET"
    for plain in ({}, {"monitor": {"webhook": None}}, {"callback": {"ladder": []}}):
        assert masked_settings(plain) == plain


def test_a_run_without_alarms_starts_no_thread():
    before = threading.active_count()
    telling = notifier(webhook="http://127.0.0.1:1/", command="true")
    assert threading.active_count() == before
    telling.close()
    assert telling.problems() == []
