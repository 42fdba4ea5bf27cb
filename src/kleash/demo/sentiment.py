"""A reward that pays for cheerful text: VADER's sentiment of the sentence as a reader sees it.

VADER adds up the valences of words in a lexicon. It is quick and needs no model, and it is easy to please: a
policy let off the leash learns to string kind words together. That makes it a good reward to show a leash
with.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kleash.errors import ConfigError


def positive(prompts: list[Any], completions: list[Any], **columns: list[Any]) -> list[float]:
    """Score each completion by VADER's compound sentiment.

    A plain completion is scored joined to its opener, for the two are one text. A chat reply is a text of its
    own and is scored alone.

    Returns:
        One score a completion, from -1 (most negative) to 1 (most positive); 0 is neutral.

    Raises:
        ConfigError: vaderSentiment is not installed.

    Reference: Hutto and Gilbert 2014, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis".
    """
    analyzer = _analyzer()
    texts = [_as_read(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
    return [float(analyzer.polarity_scores(text)["compound"]) for text in texts]


def _as_read(prompt: Any, completion: Any) -> str:
    if isinstance(completion, str):
        return f"{prompt}{completion}"
    return str(completion[-1]["content"])


@cache
def _analyzer() -> Any:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as exc:
        raise ConfigError(
            "The sentiment reward needs vaderSentiment, which is not installed: pip install 'kleash[demo]'."
        ) from exc
    return SentimentIntensityAnalyzer()
