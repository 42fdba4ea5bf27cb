"""The shell of a page: one file that opens offline, runs no script and asks no server for anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from kleash.report.markup import Html, escape, join

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of a page, with its own heading and a place in the contents."""

    title: str
    body: Html

    @property
    def anchor(self) -> str:
        """The part of the address that leads here."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page(title: str, header: Html, sections: Sequence[Section]) -> str:
    """Return a whole page.

    Args:
        title: of the window.
        header: what stands above the first section, its `h1` included.
        sections: the parts, in order; the contents list them.
    """
    contents = join(Html(f'<a href="#{section.anchor}">{escape(section.title)}</a>') for section in sections)
    parts = join(
        Html(f'<section id="{section.anchor}"><h2>{escape(section.title)}</h2>{section.body}</section>')
        for section in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n"
        f'<header>{header}</header>\n<nav aria-label="Contents">{contents}</nav>\n<main>{parts}</main>\n'
        "</body>\n</html>\n"
    )


def style() -> str:
    """Return the stylesheet that every page carries inside."""
    return files("kleash.report").joinpath("style.css").read_text(encoding="utf-8")


def columns(pieces: Sequence[Html], count: int = 2) -> Html:
    """Return pieces side by side, and one under the other where the window is narrow."""
    return Html(f'<div class="columns of-{count}">{join(pieces)}</div>')


def prose(*sentences: str) -> Html:
    """Return a paragraph of text."""
    return Html(f'<p class="prose">{escape(" ".join(sentences))}</p>')


def folded(summary: str, body: Html) -> Html:
    """Return a part that opens on a click."""
    return Html(f"<details><summary>{escape(summary)}</summary>{body}</details>")
