"""A real PostgreSQL server on a temporary folder and a free port, for as long as a `with` block lasts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
"""The user that the server runs as where the tests run as root, which PostgreSQL refuses."""
USER = "kleash"
START_SECONDS = 30.0


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server and yield the SQLAlchemy URL of an empty database; skip where PostgreSQL is not installed."""
    with postgres_process() as (url, _):
        yield url


@contextmanager
def postgres_process() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same with the server's process, for a test that ends it."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    folder = Path(tempfile.mkdtemp(prefix="kleash-pg-", dir="/tmp"))  # short: a socket's path has 107 bytes at most
    folder.chmod(0o777)
    data, port = folder / "data", _free_port()
    try:
        _run(programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"],
                stdout=log,
                stderr=log,
                **_plain_user(),
            )
        try:
            _wait(server, port, folder / "log")
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres", server
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=START_SECONDS)
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """Return the folder with initdb and postgres."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if config := shutil.which("pg_config"):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        folders.insert(0, Path(found))
    folders += [Path(program).parent for program in [shutil.which("postgres")] if program]
    return next(
        (folder for folder in folders if all((folder / name).exists() for name in ("initdb", "postgres"))), None
    )


def _plain_user() -> dict[str, object]:
    """How to start a process as a user that PostgreSQL accepts."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **_plain_user())
    assert done.returncode == 0, done.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return once the server lets clients in: it listens a moment before that."""
    import psycopg

    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user=USER, dbname="postgres").close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise AssertionError(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")
