"""A judge behind an OpenAI-compatible endpoint: `POST {base_url}/chat/completions`, in both orders.

What may pass by itself is tried again, after a wait that doubles each time with jitter: a time-out, a cut connection,
a body that is no chat completion, 408, 429 and 5xx; `Retry-After` is honoured, by every request under way. Any other
status fails at once with the server's message. The key goes into one header and nowhere else.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from kleash.errors import ConfigError, ModelError
from kleash.rewards.judge import (
    UNPRICED,
    Answer,
    Prices,
    Question,
    Usage,
    Verdict,
    combine,
    parse,
    verdict_request,
)

if TYPE_CHECKING:
    import httpx

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds between tries: the first, doubled up to the longest, then half of it to all of it by chance."""
PASSES_BY_ITSELF = frozenset({408, 409, 425, 429})
REFUSES_EVERYTHING = frozenset({401, 403, 404})
"""A wrong key, address or model name: what fails one question fails them all."""
MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class Endpoint:
    """Where a judge is asked, and how.

    Attributes:
        base_url: such as ``http://localhost:8000/v1``.
        model: the model's name there.
        max_tokens: of a reply.
        temperature: of a reply.
        retries: how often a request is sent again.
        timeout: seconds that one request may take.
        requests_per_minute: at most, over all that are under way; None: no limit.
        concurrency: questions under way at once.
    """

    base_url: str
    model: str
    max_tokens: int = 16
    temperature: float = 0.0
    retries: int = 5
    timeout: float = 60.0
    requests_per_minute: float | None = None
    concurrency: int = 4

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.username is not None or url.password is not None:
            raise ConfigError(
                f"base_url for {url.hostname} holds a name or password, and an address is written into logs. Put the"
                " key into the environment variable that api_key_env names."
            )
        if url.scheme not in ("http", "https") or not url.hostname or not _port_is_sound(url):
            raise ConfigError(
                f"base_url = '{self.base_url}' is no address of an endpoint. Write one such as"
                " http://localhost:8000/v1, without /chat/completions."
            )


class _Reply(NamedTuple):
    """What one try came to: either a text, or a failure and whether another try may help."""

    text: str | None = None
    usage: Usage | None = None
    failure: str = ""
    may_pass: bool = False


class _Pace:
    """Lets requests go one after another, `interval` seconds apart, and none before a time the server named."""

    def __init__(self, interval: float, sleep: Callable[[float], object]) -> None:
        self._interval = interval
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self) -> None:
        """Return when the next request may go."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._interval
        if start > now:
            self._sleep(start - now)

    def hold(self, seconds: float) -> None:
        """Let no request go before `seconds` have passed."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


class HttpJudge:
    """Implements `kleash.rewards.judge.Judge` over HTTP."""

    def __init__(
        self,
        endpoint: Endpoint,
        rubric: str,
        *,
        api_key: str | None = None,
        prices: Prices = UNPRICED,
        sleep: Callable[[float], object] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Keep what is needed; nothing is sent yet.

        Args:
            endpoint: where and how to ask.
            rubric: what "better" means, in words.
            api_key: sent as a bearer token; None sends no Authorization header.
            prices: of a million tokens.
            sleep: waits so many seconds; by default a wait that ends when nobody wants the answer any more.
            jitter: draws from [0, 1).

        Raises:
            ConfigError: httpx is not installed.
        """
        self._httpx = _import_httpx(endpoint)
        self.prices = prices
        self._endpoint = endpoint
        self._rubric = rubric
        self._key = api_key
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._jitter = jitter
        per_minute = endpoint.requests_per_minute
        self._pace = _Pace(0.0 if per_minute is None else 60.0 / per_minute, self._sleep)

    def judge(self, questions: Sequence[Question]) -> Generator[tuple[int, Verdict], None, None]:
        """Ask every question in both orders, `concurrency` questions at a time, and yield verdicts as they come.

        No more than `concurrency` questions are ever ahead of the caller: as many answers are lost when it is killed.
        Closed before its end, it waits for the requests under way and sends no more.

        Raises:
            ModelError: the endpoint refuses every request: a wrong key, address or model name.
        """
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._stopping.clear()
        with self._httpx.Client(headers=headers, timeout=self._endpoint.timeout) as client:
            pool = ThreadPoolExecutor(self._endpoint.concurrency, thread_name_prefix="kleash-judge")
            try:
                yield from self._as_they_come(pool, client, questions)
            finally:
                self._stopping.set()
                pool.shutdown(cancel_futures=True)

    def _as_they_come(
        self, pool: ThreadPoolExecutor, client: httpx.Client, questions: Sequence[Question]
    ) -> Generator[tuple[int, Verdict], None, None]:
        waiting = iter(enumerate(questions))
        asked: dict[Future[Verdict], int] = {}

        def ask_next(count: int) -> None:
            for i, question in islice(waiting, count):
                asked[pool.submit(self._both_orders, client, question)] = i

        ask_next(self._endpoint.concurrency)
        while asked:
            done = next(as_completed(asked))
            yield asked.pop(done), done.result()
            ask_next(1)

    def _both_orders(self, client: httpx.Client, question: Question) -> Verdict:
        return combine(self._ask(client, question), self._ask(client, question.exchanged()))

    def _ask(self, client: httpx.Client, question: Question) -> Answer:
        """One question in the order as it stands, tried until it is answered, refused or out of retries."""
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": verdict_request(question, self._rubric)}],
            "max_tokens": self._endpoint.max_tokens,
            "temperature": self._endpoint.temperature,
        }
        reply = _Reply()
        for tries in range(self._endpoint.retries + 1):
            if tries:
                self._sleep(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)) * (1 + self._jitter()) / 2)
            self._pace.wait()
            if self._stopping.is_set():
                return Answer(None, None, "it was no longer wanted", retries=tries)
            reply = self._send(client, json.dumps(body))
            if reply.text is not None:
                return Answer(reply.text, parse(reply.text), usage=reply.usage, retries=tries)
            if not reply.may_pass:
                return Answer(None, None, reply.failure, retries=tries)
        return Answer(None, None, f"{reply.failure} (retries: {tries})", retries=tries)

    def _send(self, client: httpx.Client, body: str) -> _Reply:
        try:
            response = client.post(f"{self._endpoint.base_url.rstrip('/')}/chat/completions", content=body)
        except self._httpx.RequestError as error:
            return _Reply(failure=f"{type(error).__name__}: {self._without_key(str(error))}", may_pass=True)
        content = self._without_key(response.text)
        if response.status_code == 200:
            return _read(content)
        said = (_error_message(content) or response.reason_phrase).rstrip(".")
        failure = f"{self._endpoint.base_url} answered {response.status_code}: {said[:MESSAGE_LENGTH]}"
        if response.status_code in REFUSES_EVERYTHING:
            raise ModelError(
                f"Judge '{self._endpoint.model}': {failure}. Every question would end so: check base_url, the model's"
                " name and the environment variable that holds the key."
            )
        self._pace.hold(_retry_after(response.headers.get("retry-after", "")))
        may_pass = response.status_code in PASSES_BY_ITSELF or response.status_code >= 500
        return _Reply(failure=failure, may_pass=may_pass)

    def _without_key(self, text: str) -> str:
        return text if self._key is None else text.replace(self._key, "[key]")


def _import_httpx(endpoint: Endpoint) -> ModuleType:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"A judge at base_url = '{endpoint.base_url}' is asked with httpx, which is not installed. Install it"
            " with `pip install 'kleash[judge]'`, or leave base_url out for a local model."
        ) from error
    return httpx


def key_from_environment(variable: str) -> str | None:
    """Read an endpoint's key; None where the variable is unset or empty.

    Raises:
        ConfigError: it cannot stand in a header. The message does not show it.
    """
    key = os.environ.get(variable, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigError(
            f"The key in the environment variable {variable} holds a space or a character that is not plain ASCII, so"
            " it cannot be sent in a header. Set it anew, without quotes or line breaks."
        )
    return key or None


def _port_is_sound(url: SplitResult) -> bool:
    """Whether a port is a number, where one is given."""
    try:
        return url.port is None or url.port > 0
    except ValueError:
        return False


def _read(content: str) -> _Reply:
    """The text and the tokens of a chat completion."""
    try:
        body = json.loads(content)
        text = body["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return _Reply(failure=f"the reply is no chat completion: {content[:MESSAGE_LENGTH]!r}", may_pass=True)
    return _Reply("" if text is None else str(text), _usage(body.get("usage")))


def _usage(reported: Any) -> Usage | None:
    """The tokens that a server reports, if it does."""
    if not isinstance(reported, dict):
        return None
    sent, received = reported.get("prompt_tokens"), reported.get("completion_tokens")
    return Usage(sent, received) if isinstance(sent, int) and isinstance(received, int) else None


def _error_message(content: str) -> str:
    """What a server says went wrong: OpenAI's `error.message`, else its text as it is."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return content.strip()


def _retry_after(header: str) -> float:
    """Seconds that a server asks to wait: a number or a date; 0 where it asks for nothing that can be read."""
    if re.fullmatch(r"\d+(\.\d+)?", header.strip()):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
