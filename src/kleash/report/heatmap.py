"""Text whose tokens are coloured by how far they drifted: one scale on every page, in nats.

The scale is fixed and logarithmic, so that two replies, two runs and two pages can be compared by eye.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from kleash.report.markup import Html, escape, join
from kleash.report.wording import number

EDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # nats; below the first there is no colour
VISIBLE = {" ": "·", "\n": "↵\n", "\r": "␍", "\t": "⇥\t"}


def shade(kl: float) -> str:
    """Return the CSS class of a token's KL in nats: k0 (no colour) to k6, or `broken` if not finite."""
    return f"k{bisect.bisect_right(EDGES, kl)}" if math.isfinite(kl) else "broken"


def token_heatmap(tokens: Sequence[str], token_kl: Sequence[float], note: str = "") -> Html:
    """Return the text with each token coloured and its KL in nats in the tooltip.

    Args:
        tokens: the tokens as text, in order.
        token_kl: KL(policy ‖ reference) at each, nats.
        note: what the text is, for those who cannot see the colours.

    Raises:
        ValueError: another number of tokens than of values.
    """
    spans = [_token(token, kl) for token, kl in zip(tokens, token_kl, strict=True)]
    if not spans:
        return Html('<p class="heat empty">(no tokens)</p>')
    worst = max(range(len(tokens)), key=lambda at: token_kl[at] if math.isfinite(token_kl[at]) else math.inf)
    words = (
        f"{note} {len(tokens)} tokens, KL {number(math.fsum(token_kl))} nats in all, "
        f"most at “{tokens[worst].strip()}” with {number(token_kl[worst])}."
    ).strip()
    return Html(f'<p class="heat">{join(spans)}</p><p class="spoken">{escape(words)}</p>')


def legend() -> Html:
    """Return the scale: one swatch a shade, with the nats it begins at."""
    starts = ["0", *(f"{edge:g}" for edge in EDGES)]
    steps = join(Html(f'<span class="k{at}">{start}</span>') for at, start in enumerate(starts))
    label = "KL of each token, in nats, from none to 3 and more"
    return Html(
        f'<p class="scale" role="img" aria-label="{label}"><span class="what">KL per token</span>{steps}'
        '<span class="what">nats and more</span></p>'
    )


def _token(token: str, kl: float) -> Html:
    tip = escape(f"{number(kl)} nats · {token!r}")
    return Html(f'<span class="{shade(kl)}" title="{tip}">{_visible(token)}</span>')


def _visible(token: str) -> Html:
    """Show line breaks always, and blanks where a token is nothing else."""
    blank = not token.strip()
    return join(
        Html(f"<i>{VISIBLE[letter]}</i>") if letter in VISIBLE and (blank or letter != " ") else escape(letter)
        for letter in token or "∅"
    )
