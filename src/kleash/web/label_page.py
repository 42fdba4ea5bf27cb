"""The page where people compare two completions of a prompt, and the requests that it makes.

An annotator sees a completion on the left and one on the right, never which of them is the pair's first. Each comes
with a mark, and a vote gives back the mark of the better one: it means the completion that was read, whatever side it
stood on, and may be sent twice without counting twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from kleash.data.prompts import Message
from kleash.errors import DataError
from kleash.labels.records import Agreement, Choice, Pair, Progress, Task
from kleash.labels.store import LabelStore
from kleash.web import shell
from kleash.web.guard import LOOPBACK_HOSTS

DEFAULT_PORT = 8765

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]
Note = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


class Voter(BaseModel):
    """Who sends a request."""

    model_config = ConfigDict(extra="forbid")

    annotator: Name


class VoteSent(Voter):
    """A vote as the page sends it.

    Attributes:
        pair: the pair that was shown.
        choice: the mark of the better completion, a tie or a skip.
        strength: 2 for clearly better, 1 for better; None with a tie or a skip.
        seconds: time from showing the pair to the vote.
    """

    pair: int
    choice: str
    strength: Literal[1, 2] | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class FlagSent(Voter):
    """A pair that cannot be judged, and the reason where the annotator gave one."""

    pair: int
    note: Note | None = None


@dataclass(frozen=True)
class Turn:
    """One message of the prompt; a plain prompt is one turn of the role `prompt`."""

    role: str
    content: str


@dataclass(frozen=True)
class Side:
    """A completion as it is shown."""

    mark: str
    text: str


@dataclass(frozen=True)
class Shown:
    """A pair as it is shown."""

    pair: int
    prompt: list[Turn]
    left: Side
    right: Side


@dataclass(frozen=True)
class Screen:
    """What the page shows after a request; no task where the queue is empty.

    Attributes:
        task: the pair to judge.
        progress: the annotator's counts.
        undone: whether the task is a vote taken back.
    """

    task: Shown | None
    progress: Progress
    undone: bool = False


def create_app(
    store_location: str | Path, *, token: str | None, allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
) -> FastAPI:
    """Return the labelling page over a store, which is open until the app ends.

    Args:
        store_location: the path of an SQLite file or a database's URL, as `LabelStore.open` takes it.
        token: what a request must carry; None lets every local request in.
        allowed_hosts: the names and addresses under which the page may be asked; see `shell.new_app`.

    Raises:
        KleashError: the store cannot be opened.
    """
    store = LabelStore.open(store_location)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = shell.new_app("Kleash labels", token=token, allowed_hosts=allowed_hosts, lifespan=lifespan)
    _add_page(app)
    _add_reading(app, store)
    _add_writing(app, store)
    return app


def serve(
    store_location: str | Path, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT, token: str | None = None
) -> None:
    """Serve the labelling page until Ctrl-C or SIGTERM.

    Args:
        store_location: the path of an SQLite file or a database's URL.
        host: where to listen; anything but this machine's own loopback needs a token.
        port: where to listen; 0 takes any free one.
        token: what a browser must bring along once; ``auto`` makes a random one and prints it. None takes the
            environment variable KLEASH_TOKEN, where it is set.

    Raises:
        ConfigError: an address that cannot be used, or one open to others without a token.
        KleashError: the store cannot be opened.
    """
    secret = shell.chosen_token(token)
    shell.check_address(host, secret)
    app = create_app(store_location, token=secret, allowed_hosts=shell.hosts_of(host))
    shell.serve(app, host, port, secret, show_token=token == shell.AUTOMATIC)


def _add_page(app: FastAPI) -> None:
    shell.add_file(app, "/", "kleash.web", "static/label.html", "text/html")
    shell.add_file(app, "/static/label.css", "kleash.web", "static/label.css", "text/css")
    shell.add_file(app, "/static/label.js", "kleash.web", "static/label.js", "text/javascript")
    shell.add_file(app, "/static/icon.svg", "kleash.web", "static/icon.svg", "image/svg+xml")
    shell.add_file(app, "/static/style.css", "kleash.report", "style.css", "text/css")


def _add_reading(app: FastAPI, store: LabelStore) -> None:
    @app.get("/api/task")
    def task(annotator: Name) -> Screen:
        return _next(store, annotator)

    @app.get("/api/progress")
    def progress(annotator: Name) -> Progress:
        return store.progress(annotator)

    @app.get("/api/agreement")
    def agreement() -> Agreement:
        return store.agreement()


def _add_writing(app: FastAPI, store: LabelStore) -> None:
    @app.post("/api/vote")
    def vote(sent: VoteSent) -> Screen:
        choice = _choice(sent.annotator, sent.pair, sent.choice)
        store.vote(sent.annotator, sent.pair, choice, strength=sent.strength, seconds=sent.seconds)
        return _next(store, sent.annotator)

    @app.post("/api/flag")
    def flag(sent: FlagSent) -> Screen:
        store.flag(sent.annotator, sent.pair, sent.note or None)
        return _next(store, sent.annotator)

    @app.post("/api/undo")
    def undo(voter: Voter) -> Screen:
        task = store.undo(voter.annotator)
        if task is None:
            return _next(store, voter.annotator)
        return Screen(_shown(voter.annotator, task), store.progress(voter.annotator), undone=True)


def _next(store: LabelStore, annotator: str) -> Screen:
    task = store.next_task(annotator)
    return Screen(None if task is None else _shown(annotator, task), store.progress(annotator))


def _shown(annotator: str, task: Task) -> Shown:
    pair = task.pair
    number = _number(pair)
    first = Side(_mark(annotator, number, "first"), pair.first)
    second = Side(_mark(annotator, number, "second"), pair.second)
    left, right = (first, second) if task.first_on_left else (second, first)
    return Shown(number, _turns(pair.prompt), left, right)


def _number(pair: Pair) -> int:
    if pair.id is None:
        raise ValueError("A pair that a store hands out has a number.")
    return pair.id


def _mark(annotator: str, pair: int, choice: Choice) -> str:
    """Return what stands for a completion in the page: it does not tell the first from the second."""
    return hashlib.sha256(f"{pair}\n{choice}\n{annotator}".encode()).hexdigest()[:16]


def _choice(annotator: str, pair: int, sent: str) -> Choice:
    meanings: dict[str, Choice] = {
        "tie": "tie",
        "skip": "skip",
        _mark(annotator, pair, "first"): "first",
        _mark(annotator, pair, "second"): "second",
    }
    if sent not in meanings:
        raise DataError(
            f"The choice {sent!r} is neither a completion that {annotator} was shown in pair {pair}, nor 'tie' or"
            " 'skip'. Reload the page and choose again."
        )
    return meanings[sent]


def _turns(prompt: str | list[Message]) -> list[Turn]:
    if isinstance(prompt, str):
        return [Turn("prompt", prompt)]
    return [Turn(str(message["role"]), _text(message.get("content"))) for message in prompt]


def _text(content: object) -> str:
    """Return a message's content as text: one that is no text, such as a tool call's, as JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)
