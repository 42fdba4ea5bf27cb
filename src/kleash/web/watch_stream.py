"""Server-sent events: what has changed in a run, or in the list of runs, as soon as it is written.

A stream asks once a second and sends only what differs from what it sent last. It ends when the browser goes and when
the server is told to stop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from kleash.runs.encoding import dump

ASK_SECONDS = 1.0
LOOK_SECONDS = 0.2
"""Between two looks at whether the server is stopping."""

HEARTBEAT_SECONDS = 15.0


def stream(ask: Callable[[], object], stopping: Callable[[], bool]) -> StreamingResponse:
    """Return an endless answer of events.

    Args:
        ask: returns what to tell, ready for JSON; called in a thread, about once a second.
        stopping: whether the server is to end.
    """
    return StreamingResponse(_events(ask, stopping), media_type="text/event-stream")


async def _events(ask: Callable[[], object], stopping: Callable[[], bool]) -> AsyncIterator[str]:
    told, sent = "", time.monotonic()
    while not stopping():
        news = dump(await run_in_threadpool(ask))
        now = time.monotonic()
        if news != told:
            told, sent = news, now
            yield f"data: {news}\n\n"
        elif now - sent >= HEARTBEAT_SECONDS:
            sent = now
            yield ": still here\n\n"
        await _pause(now + ASK_SECONDS, stopping)


async def _pause(until: float, stopping: Callable[[], bool]) -> None:
    while not stopping() and (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, LOOK_SECONDS))
