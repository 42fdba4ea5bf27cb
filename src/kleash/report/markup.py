"""The line between text and HTML: what is `Html` has been escaped, what is `str` has not.

Every piece of a page takes text as `str`, escapes it here, and returns `Html`; mypy keeps the two apart.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

# Control characters may not stand in HTML, so each is shown as its Unicode picture; blanks stay.
PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"} | {127: "\u2421"}


class Html(str):
    """A piece of HTML that is safe to put on a page."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Return text as HTML that shows exactly that text, in an element or in a quoted attribute."""
    return Html(html.escape(text.translate(PICTURES), quote=True))


def join(pieces: Iterable[Html]) -> Html:
    """Return the pieces one after the other."""
    return Html("".join(pieces))
