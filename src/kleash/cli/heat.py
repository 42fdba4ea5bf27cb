"""Tokens coloured by how far they drifted, on the scale of the report; numbers where there are no colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from kleash.report.heatmap import EDGES, shade
from kleash.report.wording import number

STYLES = {
    "k0": "",
    "k1": "#ffffff on #3a3a3a",
    "k2": "#ffffff on #5f5f00",
    "k3": "#ffffff on #875f00",
    "k4": "#000000 on #ffaf00",
    "k5": "#000000 on #ff5f00",
    "k6": "bold #ffffff on #d70000",
    "broken": "bold #ffffff on #8700af",
}
"""By the report's shade. Each sets its own text colour, for terminals with light and with dark grounds."""


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
