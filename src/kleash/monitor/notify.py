"""Sends alarms elsewhere: to a web address, or to a command. Never holds up a run, and never fails one.

Each way has a thread of its own that sends one event after another. What goes wrong is kept in words, once for each
way, for the run to mention. The webhook's address may hold a secret, and is never told whole.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kleash.runs.encoding import dump, store
from kleash.runs.records import SEVERITIES, Event, Severity

WEBHOOK_SECONDS = 10.0
COMMAND_SECONDS = 60.0
LAST_SECONDS = 10.0
"""How long the end of a run waits for what is still being sent."""


class Notifier:
    """Sends the events of one run that are severe enough. `close` it at the end of the run.

    Args:
        run: the run's folder, as text.
        lowest: the lowest severity that is sent.
        webhook: an http or https address that gets each event as JSON, by POST.
        command: a command line that is run for each event, with the event as JSON on standard input and
            `KLEASH_EVENT_SEVERITY`, `_NAME`, `_STEP` and `_RUN` in the environment. No shell reads it. What it
            leaves running is ended with it.
    """

    def __init__(self, run: str, *, lowest: Severity, webhook: str | None, command: str | None) -> None:
        self._run, self._lowest = run, lowest
        self._ways: list[_Way] = []
        if webhook is not None:
            self._ways.append(_Way(f"the webhook {masked(webhook)}", _Webhook(webhook)))
        if command is not None:
            self._ways.append(_Way(f"the command {command!r}", _Command(command)))

    def send(self, event: Event) -> None:
        """Send an event if it is severe enough; returns at once."""
        if SEVERITIES.index(event.severity) >= SEVERITIES.index(self._lowest):
            for way in self._ways:
                way.put(event, self._run)

    def problems(self) -> list[str]:
        """Return what went wrong since the last call, in words; each way says so once in its life."""
        return [problem for way in self._ways for problem in way.problems()]

    def close(self) -> None:
        """Wait a moment for what is being sent, then drop the rest and end a command that still runs."""
        for way in self._ways:
            way.finish()
        for way in self._ways:
            way.close()


def masked(address: str) -> str:
    """Return a web address without what may be a secret in it: scheme and host, "https://hooks.example.org/…"."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def masked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings, nested, with the address of its webhook masked: for what others may see."""
    monitor = settings.get("monitor")
    if not isinstance(monitor, Mapping) or not isinstance(monitor.get("webhook"), str):
        return dict(settings)
    return {**settings, "monitor": {**monitor, "webhook": masked(monitor["webhook"])}}


def payload(event: Event, run: str) -> dict[str, Any]:
    """Return an event as others get it: plain JSON types; numbers that are not finite are text."""
    return {
        "run": run,
        "step": event.step,
        "severity": event.severity,
        "name": event.name,
        "message": event.message,
        "values": {name: store(value) for name, value in event.values.items()},
        "began": event.began,
        "causes": [{"text": cause.text, "check": cause.check} for cause in event.causes],
        "advice": event.advice,
    }


class _Way:
    """A queue with a thread that empties it, from the first event on; `send` returns what went wrong, or None."""

    def __init__(self, name: str, send: _Webhook | _Command) -> None:
        self._name, self._send = name, send
        self._waiting: queue.SimpleQueue[tuple[Event, str] | None] = queue.SimpleQueue()
        self._told = False
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"kleash {name}", daemon=True)

    def put(self, event: Event, run: str) -> None:
        if not self._thread.ident:
            self._thread.start()
        self._waiting.put((event, run))

    def problems(self) -> list[str]:
        return [self._problems.get() for _ in range(self._problems.qsize())]

    def finish(self) -> None:
        self._waiting.put(None)

    def close(self) -> None:
        if not self._thread.ident:
            return
        self._thread.join(LAST_SECONDS)
        if self._thread.is_alive():
            self._mention(f"did not end within {LAST_SECONDS:g} s of the end of the run; what it had to say is lost")
            self._send.abandon()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            problem = self._send(*item)
            if problem is not None:
                self._mention(problem)

    def _mention(self, problem: str) -> None:
        if not self._told:
            self._told = True
            self._problems.put(f"{self._name} {problem}. The run goes on; further failures are not told")


class _Webhook:
    """POSTs events to an address."""

    def __init__(self, address: str) -> None:
        self._address, self._abandoned = address, False

    def __call__(self, event: Event, run: str) -> str | None:
        if self._abandoned:
            return None
        body = dump(payload(event, run)).encode()
        try:
            request = urllib.request.Request(self._address, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS):
                return None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) if isinstance(error, OSError) else type(error).__name__  # others quote the address
            return f"did not take an alarm ({why})"

    def abandon(self) -> None:
        """Send no other; the connection that is open ends with its time limit."""
        self._abandoned = True


class _Command:
    """Runs a command for each event, in a process group of its own."""

    def __init__(self, line: str) -> None:
        self._words = shlex.split(line)
        self._running: subprocess.Popen[bytes] | None = None
        self._abandoned = False
        self._lock = threading.Lock()

    def __call__(self, event: Event, run: str) -> str | None:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            given.write(dump(payload(event, run)).encode())
            given.seek(0)
            try:
                process = self._start(event, run, given, said)
            except OSError as error:
                return f"cannot be run ({error})"
            if process is None:
                return None
            try:
                code = process.wait(COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                return f"ran for more than {COMMAND_SECONDS:g} s and was ended"
            finally:
                self._running = None
                _end(process)
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines()
            return f"ended with code {code}" + (f" ({words[-1]})" if words else "") if code else None

    def abandon(self) -> None:
        """End the command that runs, and start no other."""
        with self._lock:
            self._abandoned = True
            if self._running is not None:
                _end(self._running)

    def _start(self, event: Event, run: str, given: Any, said: Any) -> subprocess.Popen[bytes] | None:
        """Start it, unless the run has ended in the meantime."""
        about = {"SEVERITY": event.severity, "NAME": event.name, "STEP": str(event.step), "RUN": run}
        environment = os.environ | {f"KLEASH_EVENT_{name}": value for name, value in about.items()}
        with self._lock:
            if self._abandoned:
                return None
            self._running = subprocess.Popen(
                self._words,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
            return self._running


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, or what it has left behind in its group, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
