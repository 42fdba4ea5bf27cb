"""Calling a reward function, plain or async, and waiting no longer than its timeout.

A plain function with a timeout runs in a thread of its own, an async one on one event loop that lives as long
as the process, so that a client it keeps between calls stays usable. Both work inside a notebook, which has a
running loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any

from kleash.errors import DataError


def call(name: str, function: Callable[..., Any], arguments: Mapping[str, Any], timeout: float | None) -> Any:
    """Call `function(**arguments)` and return what it returns.

    Args:
        name: the reward's name, for error messages.
        function: plain or async.
        arguments: passed by keyword.
        timeout: seconds to wait; None waits for ever, and calls a plain function in the calling thread. A
            plain function that runs out of time cannot be stopped: its thread lives on until the function
            returns or the process ends.

    Raises:
        DataError: the function raised (its exception is the cause) or ran out of time.
    """
    started = time.monotonic()
    future = _start(function, arguments, timeout)
    try:
        return future.result(timeout)
    except Exception as exc:  # the user's code may raise anything
        if future.done() and future.exception() is exc:
            raise DataError(
                f"Reward '{name}' raised {type(exc).__name__}: {exc} ({_place(exc)}). Mend the function, or"
                " let it return None for what it cannot score."
            ) from exc
        future.cancel()
        elapsed = time.monotonic() - started
        raise DataError(
            f"Reward '{name}' had not answered after {elapsed:.1f} s; its timeout is {timeout:g} s. Raise the"
            " timeout, or let it return None in time for what it cannot score."
        ) from exc


def _start(function: Callable[..., Any], arguments: Mapping[str, Any], timeout: float | None) -> Future[Any]:
    if _is_async(function):
        return asyncio.run_coroutine_threadsafe(function(**arguments), _event_loop())
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function(**arguments))
        except BaseException as exc:
            if timeout is None and not isinstance(exc, Exception):
                raise
            future.set_exception(exc)

    if timeout is None:
        work()
    else:
        threading.Thread(target=work, name="kleash-reward", daemon=True).start()
    return future


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="kleash-reward-loop", daemon=True).start()
    return loop


def _place(exc: Exception) -> str:
    """The innermost line that raised, such as ``rewards.py, line 12, in score``."""
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
