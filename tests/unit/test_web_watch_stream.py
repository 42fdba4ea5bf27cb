import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from kleash.runs.records import Event, Step
from kleash.runs.writer import RunWriter
from kleash.web import watch_stream


async def read(answer):
    return [part async for part in answer.body_iterator]


def test_a_stream_tells_what_changed_and_ends_when_the_server_does(monkeypatch):
    monkeypatch.setattr(watch_stream, "ASK_SECONDS", 0.0)
    news = iter([{"step": 1}, {"step": 1}, {"step": 2}, {"step": 2}])
    asked = []

    def ask():
        asked.append(1)
        return next(news)

    answer = watch_stream.stream(ask, lambda: len(asked) == 4)
    assert answer.media_type == "text/event-stream"
    assert asyncio.run(read(answer)) == ['data: {"step":1}\n\n', 'data: {"step":2}\n\n']


def test_a_silent_stream_shows_that_it_lives(monkeypatch):
    monkeypatch.setattr(watch_stream, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(watch_stream, "HEARTBEAT_SECONDS", 0.0)
    asked = []
    answer = watch_stream.stream(lambda: asked.append(1), lambda: len(asked) == 3)
    assert asyncio.run(read(answer)) == ["data: null\n\n", ": still here\n\n", ": still here\n\n"]


@contextmanager
def serving(*runs):
    """`kleash watch` in a process of its own: the process and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kleash", "watch", *map(str, runs), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"KLEASH_TOKEN": ""} if "KLEASH_TOKEN" in os.environ else None,
    )
    try:
        link = process.stdout.readline().strip().rpartition(" ")[2]
        yield process, int(link.rstrip("/").rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


@contextmanager
def listening(port, path):
    """An open stream: a function that returns its next event."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        lines = connection.makefile(encoding="utf-8")

        def following():
            line = next(line for line in lines if line.startswith("data: "))
            return json.loads(line.removeprefix("data: "))

        yield following


@pytest.fixture
def writer(tmp_path):
    with RunWriter.create(tmp_path / "runs" / "one", {}, {}) as writer:
        yield writer


def test_each_step_is_heard_at_once_and_ctrl_c_ends_a_server_with_open_streams(writer, tmp_path):
    with serving(tmp_path / "runs") as (process, port), listening(port, "/api/stream") as next_of_list:
        (first,) = next_of_list()["runs"]
        assert (first["last_step"], first["events"], first["status"]) == (-1, 0, "running")
        with listening(port, f"/api/runs/{first['id']}/stream") as next_of_run:
            assert next_of_run()["last_step"] == -1
            writer.write_step(Step(0, {"kl": 1.0}), events=[Event(0, "info", "begun", "It has begun.")])
            news = {"last_step": 0, "steps": 1, "events": 1, "checkpoints": 0, "samples": 0, "status": "running"}
            assert next_of_run() == news
            assert next_of_list() == {"runs": [{"id": first["id"], **news}]}
            RunWriter.create(tmp_path / "runs" / "two", {}, {}).close()
            assert len(next_of_list()["runs"]) == 2
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=15)
    assert (process.returncode, errors) == (0, "")
    assert time.monotonic() - start < 3
