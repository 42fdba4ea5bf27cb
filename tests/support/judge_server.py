"""A local server that speaks OpenAI's chat completions, and does on demand what real ones do on bad days."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = re.compile(r"<answer ([AB]) (\w+)>\n(.*?)\n</answer \1 \2>", re.DOTALL)


@dataclass(frozen=True)
class Act:
    """What the server does with a request.

    Attributes:
        content: the text of the completion.
        status: 200 for a completion.
        body: sent as it is instead of a completion.
        headers: sent besides.
        delay: seconds before anything is sent.
        cut: close the connection and send nothing.
        usage: tokens that are reported; None reports none.
    """

    content: str | None = "A"
    status: int = 200
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False
    usage: tuple[int, int] | None = (100, 2)


@dataclass(frozen=True)
class Request:
    """One request as it came.

    Attributes:
        body: its JSON.
        headers: with names in small letters.
        path: of the address.
        time: of arrival, monotonic seconds.
        tries: how often the same message came before.
    """

    body: dict
    headers: Mapping[str, str]
    path: str
    time: float
    tries: int

    @property
    def message(self) -> str:
        return self.body["messages"][-1]["content"]

    @property
    def answers(self) -> tuple[str, str]:
        """The texts shown as A and as B."""
        found = {letter: text for letter, _, text in ANSWER.findall(self.message)}
        return found["A"], found["B"]


@dataclass
class JudgeServer:
    """Where it listens, and what it was asked, in order of arrival."""

    base_url: str
    requests: list[Request]


@contextmanager
def judge_server(act: Callable[[Request], Act]) -> Iterator[JudgeServer]:
    """Serve on a free port of this machine until the block ends; `act` decides on each request."""
    requests: list[Request] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                tries = sum(request.body == body for request in requests)
                request = Request(body, headers, self.path, time.monotonic(), tries)
                requests.append(request)
            self._do(act(request))

        def _do(self, act: Act) -> None:
            time.sleep(act.delay)
            if act.cut:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            content = (act.body if act.body is not None else _completion(act)).encode()
            try:
                self.send_response(act.status)
                for name, value in act.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):  # whoever asked waits no longer
                return

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # with the usual 5, a busy moment costs a second

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield JudgeServer(f"http://127.0.0.1:{server.server_port}/v1", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _completion(act: Act) -> str:
    usage = None if act.usage is None else dict(zip(("prompt_tokens", "completion_tokens"), act.usage, strict=True))
    message = {"role": "assistant", "content": act.content}
    return json.dumps({"object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": usage})
