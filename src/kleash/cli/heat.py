"""Tokens coloured by how far they drifted, on the scale of the report; numbers where there are no colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from kleash.report.heatmap import EDGES, shade
from kleash.report.wording import number

STYLES = {
    "k0": "",
    "k1": "on #3a2f14",
    "k2": "on #5c4514",
    "k3": "on #855a12",
    "k4": "on #a85a1a",
    "k5": "white on #b5402c",
    "k6": "bold white on #a3123a",
    "broken": "bold white on #7a00b8",
}
"""By the report's shade; the dark end of the scale keeps light text legible, the bright end sets its own."""


def coloured(tokens: Sequence[str], token_kl: Sequence[float]) -> Text:
    """Return the text with each token on the colour of its KL.

    Args:
        tokens: the tokens as text, in order.
        token_kl: KL(policy ‖ reference) at each, nats.
    """
    text = Text()
    for token, kl in zip(tokens, token_kl, strict=True):
        text.append(token.replace("\n", "↵"), STYLES[shade(kl)])
    return text


def numbered(tokens: Sequence[str], token_kl: Sequence[float]) -> str:
    """Return each token as Python would quote it with its KL in nats, for output without colours."""
    return "  ".join(f"{token!r} {number(kl)}" for token, kl in zip(tokens, token_kl, strict=True))


def legend() -> Text:
    """Return the scale: a swatch a shade, with the nats that it begins at."""
    text = Text("nats per token ")
    for at, edge in enumerate((0.0, *EDGES)):
        text.append(f" {edge:g} ", STYLES[f"k{at}"])
    return text.append(" and more")
