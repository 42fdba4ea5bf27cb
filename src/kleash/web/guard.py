"""Which requests a Kleash page answers, and what its answers allow the browser to do.

Every request must name an address of this server in its Host header, which stops DNS rebinding, and carry the token
where there is one. A request that writes must come from the page itself and be JSON, which stops other sites. Every
answer carries a policy under which the browser runs no script, loads no style and asks no server but the page's own.
A refusal is one sentence of plain text.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = "any address"
"""Among the allowed hosts: every numeric address. DNS rebinding needs a name, so a number is no danger."""

READ_METHODS = ("GET", "HEAD")
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets a request through to the app, or refuses it; puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, token: str | None, allowed_hosts: tuple[str, ...]) -> None:
        self._app = app
        self._token = token
        self._allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"The shell guards HTTP requests alone, and this is one of type {scope['type']!r}.")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return the refusal or the sign-in that a request gets; None lets it through."""
        refusal = _wrong_host(request.headers, self._allowed_hosts)
        if refusal is None and self._token is not None:
            refusal = _sign_in(request, self._token)
        if refusal is None and request.method not in READ_METHODS:
            refusal = _foreign_write(request.headers)
        return refusal


def _wrong_host(headers: Headers, allowed_hosts: tuple[str, ...]) -> Response | None:
    given = headers.get("host", "")
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/\s]+))(?::\d+)?", given.lower())
    name = (match[1] or match[2]) if match else ""
    if name in allowed_hosts or (ANY_ADDRESS in allowed_hosts and ip_address(name) is not None):
        return None
    return PlainTextResponse(
        f"Host {given!r} is not an address of this server. Open the address that was printed when it started.", 400
    )


def _sign_in(request: Request, token: str) -> Response | None:
    """Return None for a request that carries the token or the cookie; `?token=` gets the cookie once."""
    name, value = _cookie(token)
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if (scheme.lower() == "bearer" and _same(bearer, token)) or _same(request.cookies.get(name, ""), value):
        in_address = request.method in READ_METHODS and "token" in request.query_params
        return _redirect_without_token(request) if in_address else None
    if request.method in READ_METHODS and _same(request.query_params.get("token", ""), token):
        answer = _redirect_without_token(request)
        answer.set_cookie(name, value, httponly=True, samesite="strict")
        return answer
    return PlainTextResponse(
        "This server asks for its token. Open its address with ?token=TOKEN behind it once, or send the header"
        " 'Authorization: Bearer TOKEN'. Whoever started the server has the token.",
        401,
        {"WWW-Authenticate": "Bearer"},
    )


def _redirect_without_token(request: Request) -> Response:
    """Send the browser to the same address without the token.

    A browser that came over a link on another site keeps a strict cookie back until this site itself sends it on,
    which a Refresh header does and a redirect does not.
    """
    rest = [(key, value) for key, value in parse_qsl(request.url.query, keep_blank_values=True) if key != "token"]
    target = "/" + quote(request.scope["path"].lstrip("/")) + (f"?{urlencode(rest)}" if rest else "")
    if request.headers.get("sec-fetch-site") == "cross-site":
        return PlainTextResponse("Opening the page.", headers={"Refresh": f"0; url={target}"})
    return RedirectResponse(target, status_code=303)


def _foreign_write(headers: Headers) -> Response | None:
    """Refuse a write from another site's page, and one that a plain form could send.

    A program that is no browser sends neither Origin nor Sec-Fetch-Site, and has no user's cookie either.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin" or (origin is not None and origin.partition("://")[2] != headers["host"]):
        return PlainTextResponse(
            f"This request comes from another site ({origin or site}), which may not write here. Use this server's"
            " own page.",
            403,
        )
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        return PlainTextResponse(f"Content-Type {kind!r} is not accepted. Send application/json.", 415)
    return None


def _cookie(token: str) -> tuple[str, str]:
    """Return the cookie's name and value: a digest, so that the browser does not keep the token itself.

    The name differs from token to token, since cookies of two servers on one machine share a jar.
    """
    digest = hmac.new(token.encode(), b"kleash page", hashlib.sha256).hexdigest()
    return f"kleash-{digest[:8]}", digest[8:]


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a numeric address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
