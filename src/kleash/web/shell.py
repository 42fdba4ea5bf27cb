"""How a page is served, and to whom: one security shell for every page.

A page listens on the loopback interface unless it has a token; `guard.py` says which requests it then answers. All
that a page needs comes from files of the package.

Not here: encryption. Outside a trusted network, put the page behind an SSH tunnel or a proxy with TLS.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from urllib.parse import urlencode

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Lifespan

from kleash.errors import ConfigError, KleashError
from kleash.web.guard import ANY_ADDRESS, LOOPBACK_HOSTS, Guard, ip_address

TOKEN_VARIABLE = "KLEASH_TOKEN"
AUTOMATIC = "auto"

USABLE_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")


def new_app(
    title: str,
    *,
    token: str | None,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    lifespan: Lifespan[FastAPI] | None = None,
) -> FastAPI:
    """Return an app without routes, inside the shell; the user's mistakes come out as sentences.

    Args:
        title: of the app.
        token: what a request must carry; None lets every local request in.
        allowed_hosts: names and addresses that a Host header may give, without a port; `ANY_ADDRESS` among them
            stands for every numeric address.
        lifespan: what to do when the app starts and ends.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.add_middleware(Guard, token=token, allowed_hosts=tuple(allowed_hosts))
    app.add_exception_handler(KleashError, _explain)
    app.add_exception_handler(RequestValidationError, _explain_fields)
    return app


def chosen_token(given: str | None) -> str | None:
    """Return the token to use: the one given, a random one for ``auto``, else that of the environment.

    Args:
        given: what the command line or the caller said; None where nothing was said.

    Raises:
        ConfigError: it is shorter than 16 characters, or has characters that an address cannot carry.
    """
    token, origin = (given, "--token") if given is not None else (os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE)
    if token is None:
        return None
    if token == AUTOMATIC and origin == TOKEN_VARIABLE:
        raise ConfigError(
            f"{TOKEN_VARIABLE} = '{AUTOMATIC}' would make a token that nobody is shown. Give the token itself there, or"
            f" use --token {AUTOMATIC}, which prints it."
        )
    if token == AUTOMATIC:
        return secrets.token_urlsafe(24)
    if not USABLE_TOKEN.fullmatch(token):
        raise ConfigError(
            f"The token from {origin} cannot be used: it needs at least 16 characters, each a letter, a digit or one"
            f" of '.', '_', '~', '-', and this one has {len(token)}. Give another one, or --token {AUTOMATIC} for a"
            " random one."
        )
    return token


def hosts_of(host: str) -> tuple[str, ...]:
    """Return the names and addresses under which a server that listens on `host` may be asked."""
    if _is_loopback(host):
        return LOOPBACK_HOSTS if host in LOOPBACK_HOSTS else (*LOOPBACK_HOSTS, host)
    if _is_wildcard(host):
        return (*LOOPBACK_HOSTS, socket.gethostname().lower(), ANY_ADDRESS)
    return (*LOOPBACK_HOSTS, host.lower())


def check_address(host: str, token: str | None) -> None:
    """Refuse an address that others can reach where no token keeps them out.

    Raises:
        ConfigError: `host` is not this machine's own loopback, and there is no token.
    """
    if token is None and not _is_loopback(host):
        raise ConfigError(
            f"host = {host!r} can be reached from other machines, and without a token anyone there could read and"
            f" write. Give --token {AUTOMATIC} for a random token that is printed, --token TOKEN or the environment"
            f" variable {TOKEN_VARIABLE} for your own, or listen on 127.0.0.1."
        )


def serve(app: FastAPI, host: str, port: int, token: str | None, *, show_token: bool = False) -> None:
    """Serve an app until Ctrl-C or SIGTERM, and then return.

    An endless answer has to end then: `app.state.server.should_exit` tells it.

    Args:
        app: made by `new_app` with the same token.
        host: where to listen.
        port: where to listen; 0 takes any free one. The address is printed.
        token: the app's token.
        show_token: print the address with the token, for one that was made up just now.

    Raises:
        ConfigError: the address is open to others and has no token, does not exist, or the port is taken.
    """
    check_address(host, token)
    listening = listen(host, port)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=3
    )
    server = app.state.server = uvicorn.Server(config)
    address = _address(host, listening.getsockname()[1])
    link = f"{address}?{urlencode({'token': token})}" if token and show_token else address
    print(f"{app.title}: {link}", flush=True)
    if token and not show_token:
        print("Open it once with ?token=TOKEN behind it.", flush=True)
    if not _is_loopback(host):
        print("The connection is not encrypted: use it in a network you trust, or behind a TLS proxy.", flush=True)
    print("Ctrl-C ends it.", flush=True)
    with listening, _stopping(server):
        server.run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, or say what is wrong with the address.

    Raises:
        ConfigError: the port is no port, is taken, or may not be used; or the address is not this machine's.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"port = {port} is no port. Give a number from 1 to 65535, or 0 for any free one.")
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port = {port} on {host} is taken by another program. End that one, or take the next free port:"
                f" --port {_next_free(host, port)}."
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"port = {port} on {host} is reserved for the system's own services. Give one from 1024 on."
            ) from error
        raise ConfigError(
            f"host = {host!r} is no address of this machine ({error.strerror}). Give 127.0.0.1 for this machine"
            " alone, 0.0.0.0 for every address it has, or one of those."
        ) from error


def add_file(app: FastAPI, path: str, package: str, name: str, media_type: str) -> None:
    """Answer `path` with a file that lies in a package, read once.

    Args:
        app: where the route goes.
        path: the address, such as ``/static/label.js``.
        package: whose file it is.
        name: the file, relative to the package.
        media_type: what the file is, such as ``text/css``.
    """
    content = files(package).joinpath(name).read_text(encoding="utf-8")

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type)

    app.add_route(path, answer, methods=["GET"])


async def _explain(_: Request, error: Exception) -> Response:
    """Answer with the error's text: 400 for what was asked, 503 for what may work later, such as a database."""
    return PlainTextResponse(str(error), 400 if isinstance(error, ValueError) else 503)


async def _explain_fields(_: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    fields = "; ".join(f"{'.'.join(str(part) for part in item['loc'][1:])}: {item['msg']}" for item in problems)
    return PlainTextResponse(f"The request cannot be read. {fields}.", 422)


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_wildcard(host: str) -> bool:
    address = ip_address(host)
    return address is not None and address.is_unspecified


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this option lets two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def _next_free(host: str, port: int) -> int:
    """Return the first port above `port` that can be bound, and 0, which takes any, where none of the next 100 can."""
    for candidate in range(port + 1, min(port + 101, 65536)):
        try:
            _bind(host, candidate).close()
        except OSError:
            continue
        return candidate
    return 0


def _address(host: str, port: int) -> str:
    """Return the address to open in a browser."""
    name = socket.gethostname() if _is_wildcard(host) else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


@contextmanager
def _stopping(server: uvicorn.Server) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the server and nothing else, also where they come before it has started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        server.should_exit = True

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
