"""The live page of runs: the list, one run, several side by side; and the questions that it asks. It writes nothing.

Every answer is JSON, or server-sent events for what changes; a question that cannot be answered gets
`{"problem": sentence}`: 404 for a run that is not there, 409 for one that cannot be read, 422 for a question that makes
no sense.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from kleash.errors import KleashError
from kleash.runs.encoding import dump
from kleash.runs.reader import RunReader
from kleash.runs.records import Split
from kleash.runs.samples import SampleQuery, Sort
from kleash.web import shell, watch_views
from kleash.web.guard import LOOPBACK_HOSTS
from kleash.web.watch_library import Entry, Library, RunNotFound
from kleash.web.watch_list import RunList
from kleash.web.watch_series import series
from kleash.web.watch_stream import stream

DEFAULT_PORT = 8477
SAMPLES_OF_A_PROMPT = 200

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

Number = Annotated[float | None, Query(allow_inf_nan=False)]
Whole = Annotated[int | None, Query(ge=-(2**62), le=2**62)]
Place = Annotated[int, Query(ge=0, le=2**62)]
Keys = Annotated[str, Query(min_length=1, max_length=4000)]


def create_app(
    runs: Sequence[Path], imports: Path, *, token: str | None, allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
) -> FastAPI:
    """Return the page's app.

    Args:
        runs: run directories, folders that hold runs, other trainers' logs.
        imports: an empty folder that other trainers' logs are read into.
        token: what a request must carry; None lets every local request in.
        allowed_hosts: what a Host header may give.

    Raises:
        RunDirError: one of `runs` does not exist.
    """
    library = Library(runs, imports)
    app = shell.new_app("Kleash watch", token=token, allowed_hosts=allowed_hosts)
    app.add_exception_handler(KleashError, _problem)
    app.add_exception_handler(RequestValidationError, _wrong_question)
    app.add_exception_handler(404, _no_such_page)
    _add_page(app)
    _add_list(app, library)
    _add_run(app, library)
    _add_samples(app, library)
    return app


def serve(runs: Sequence[Path], *, host: str = "127.0.0.1", port: int = DEFAULT_PORT, token: str | None = None) -> None:
    """Serve the page until Ctrl-C or SIGTERM.

    Args:
        runs: run directories, folders that hold runs, other trainers' logs.
        host: where to listen; anything but this machine's own loopback needs a token.
        port: where to listen; 0 takes any free one.
        token: what a browser must bring along once; ``auto`` makes a random one and prints it. None takes the
            environment variable KLEASH_TOKEN, where it is set.

    Raises:
        ConfigError: an address that cannot be used, or one open to others without a token.
        RunDirError: one of `runs` does not exist.
    """
    secret = shell.chosen_token(token)
    shell.check_address(host, secret)
    with tempfile.TemporaryDirectory(prefix="kleash-watch-") as imports:
        app = create_app(runs, Path(imports), token=secret, allowed_hosts=shell.hosts_of(host))
        shell.serve(app, host, port, secret, show_token=token == shell.AUTOMATIC)


def _add_page(app: FastAPI) -> None:
    shell.add_file(app, "/", "kleash.web", "static/watch.html", "text/html")
    shell.add_file(app, "/static/style.css", "kleash.report", "style.css", "text/css")
    for name in _files(files("kleash.web").joinpath("static"), PurePosixPath("static")):
        if name.suffix in MEDIA_TYPES:
            shell.add_file(app, f"/{name}", "kleash.web", str(name), MEDIA_TYPES[name.suffix])


def _files(folder: Traversable, name: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the name of every file in a folder of the package, and in those inside it."""
    for child in folder.iterdir():
        if child.is_dir():
            yield from _files(child, name / child.name)
        else:
            yield name / child.name


def _add_list(app: FastAPI, library: Library) -> None:
    listed = RunList(library)

    @app.get("/api/runs")
    def runs() -> Response:
        return _json({"runs": listed.summaries()})

    @app.get("/api/stream")
    async def changes() -> Response:
        return stream(lambda: {"runs": listed.marks()}, _stopping(app))

    @app.get("/api/runs/{run_id}/stream")
    async def changes_of_run(run_id: str) -> Response:
        entry = library.entry(run_id)
        return stream(lambda: listed.mark(entry), _stopping(app))

    @app.get("/api/compare")
    def compare(runs: Keys) -> Response:
        settings = []
        for run_id in runs.split(","):
            with library.open(library.entry(run_id)) as reader:
                settings.append(reader.config)
        return _json({"settings": watch_views.settings_diff(settings)})


def _add_run(app: FastAPI, library: Library) -> None:
    @app.get("/api/runs/{run_id}")
    def run(run_id: str) -> Response:
        return _answer(library, run_id, watch_views.detail)

    @app.get("/api/runs/{run_id}/series")
    def numbers(
        run_id: str, keys: Keys, after: Whole = None, points: Annotated[int, Query(ge=4, le=20_000)] = 2000
    ) -> Response:
        last = -1 if after is None else after
        return _answer(library, run_id, lambda _, reader: series(reader, keys.split(","), last, points))


def _add_samples(app: FastAPI, library: Library) -> None:
    @app.get("/api/runs/{run_id}/samples")
    def samples(
        run_id: str,
        split: Split | None = None,
        sort: Sort = "step",
        order: Annotated[str, Query(pattern="^(asc|desc)$")] = "asc",
        search: Annotated[str, Query(max_length=1000)] = "",
        min_kl: Number = None,
        max_kl: Number = None,
        min_reward: Number = None,
        max_reward: Number = None,
        first_step: Whole = None,
        last_step: Whole = None,
        offset: Place = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> Response:
        query = SampleQuery(
            split=split,
            sort=sort,
            descending=order == "desc",
            search=search,
            min_kl=min_kl,
            max_kl=max_kl,
            min_reward=min_reward,
            max_reward=max_reward,
            first_step=first_step,
            last_step=last_step,
            offset=offset,
            limit=limit,
        )
        return _answer(library, run_id, lambda _, reader: watch_views.found_samples(reader.find_samples(query)))

    @app.get("/api/runs/{run_id}/sample")
    def sample(run_id: str, split: Split, step: Place, prompt_index: Place, sample_index: Place) -> Response:
        def find(entry: Entry, reader: RunReader) -> Any:
            found = reader.find_sample(split, step, prompt_index, sample_index)
            if found is None:
                raise RunNotFound(
                    f"{entry.path} has no {split} sample {prompt_index}.{sample_index} of step {step}. It may have been"
                    " dropped when the run was resumed: reload the page."
                )
            return watch_views.whole_sample(found)

        return _answer(library, run_id, find)

    @app.get("/api/runs/{run_id}/prompt")
    def prompt(run_id: str, split: Split, prompt_index: Place) -> Response:
        def find(_: Entry, reader: RunReader) -> Any:
            found = reader.find_prompt(split, prompt_index, SAMPLES_OF_A_PROMPT)
            return {"samples": [watch_views.sample_numbers(sample) for sample in found]}

        return _answer(library, run_id, find)


def _answer(library: Library, run_id: str, view: Callable[[Entry, RunReader], Any]) -> Response:
    """Answer with a view of a run."""
    entry = library.entry(run_id)
    with library.open(entry) as reader:
        return _json(view(entry, reader))


def _json(value: object, status: int = 200) -> Response:
    return Response(dump(value), status, media_type="application/json")


def _stopping(app: FastAPI) -> Callable[[], bool]:
    """Return what tells whether the app's server has been told to end."""
    return lambda: bool(app.state.server.should_exit)


async def _problem(_: Request, error: Exception) -> Response:
    return _json({"problem": str(error)}, 404 if isinstance(error, RunNotFound) else 409)


async def _no_such_page(request: Request, _: Exception) -> Response:
    return _json({"problem": f"There is no {request.url.path} here. Go back to the list of runs."}, 404)


async def _wrong_question(_: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    fields = "; ".join(f"{'.'.join(str(part) for part in item['loc'][1:])}: {item['msg']}" for item in problems)
    return _json({"problem": f"The question cannot be read. {fields}."}, 422)
