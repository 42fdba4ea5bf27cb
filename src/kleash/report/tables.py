"""Tables: headers that are headers, numbers on the right, everything escaped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from kleash.report.markup import Html, escape, join


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    numeric: Collection[str] = (),
) -> Html:
    """Return a table that scrolls sideways where it is wider than the page.

    Args:
        columns: the headers.
        rows: one text a column; a cell that is `Html` is put in as it is.
        caption: what the table holds.
        numeric: the columns set flush right.
    """
    kinds = ["number" if column in numeric else "text" for column in columns]
    head = join(
        Html(f'<th scope="col" class="{kind}">{escape(column)}</th>')
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = join(
        Html(
            "<tr>"
            + join(Html(f'<td class="{kind}">{_cell(cell)}</td>') for cell, kind in zip(row, kinds, strict=True))
            + "</tr>"
        )
        for row in rows
    )
    return Html(
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def settings_table(settings: Mapping[str, object], *, caption: str) -> Html:
    """Return nested settings as dotted names, in the order given: the names that the command line takes."""
    rows = [(Html(f"<code>{escape(name)}</code>"), value) for name, value in flatten(settings)]
    return table(["setting", "value"], rows, caption=caption)


def flatten(settings: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return (dotted name, value as text) of every leaf."""
    leaves: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            leaves += flatten(value, f"{prefix}{name}.")
        else:
            leaves.append((prefix + name, value if isinstance(value, str) else _plain(value)))
    return leaves


def _plain(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _cell(cell: str) -> Html:
    return cell if isinstance(cell, Html) else escape(cell)
