"""Snippets that people rated, and the votes drawn from single ratings: which of two texts is the more positive one?

The archive holds two files a domain, tab separated, one line a snippet: `STEM_GroundTruth.txt` with id, mean rating
and text, and `STEM_anonDataRatings.txt` with id, mean rating, standard deviation and every single rating, from -4
(extremely negative) to 4 (extremely positive). The ratings are anonymous: the n-th one of two snippets need not be
the same person's.

Reference: Hutto and Gilbert 2014, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis".
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kleash.errors import DataError

LOWEST, HIGHEST = -4, 4
SAME_MEAN = 1e-3
"""Means that the two files give for one snippet, to 9 digits, agree to this."""


@dataclass(frozen=True)
class Domain:
    """One of the archive's four collections.

    Attributes:
        name: its name in our files.
        stem: the beginning of its two files' names.
        rows: how many snippets the archive's own page counts.
        held_out: how many snippets are only tested on; even, for they are paired.
    """

    name: str
    stem: str
    rows: int
    held_out: int


DOMAINS = (
    Domain("movies", "movieReviewSnippets", rows=10_605, held_out=3_000),
    Domain("products", "amazonReviewSnippets", rows=3_708, held_out=1_600),
    Domain("editorials", "nytEditorialSnippets", rows=5_190, held_out=1_600),
    Domain("tweets", "tweets", rows=4_200, held_out=1_600),
)


@dataclass(frozen=True)
class Snippet:
    """A sentence or two, with every single rating it got."""

    domain: str
    id: str
    text: str
    ratings: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean of all its ratings."""
        return sum(self.ratings) / len(self.ratings)

    def mean_without(self, rating: int) -> float:
        """The mean of the other raters' ratings, where one rater gave `rating`."""
        return (sum(self.ratings) - rating) / (len(self.ratings) - 1)


@dataclass(frozen=True)
class Vote:
    """Two snippets and one rater's word on each: the higher single rating is chosen."""

    chosen: Snippet
    rejected: Snippet
    chosen_rating: int
    rejected_rating: int

    @property
    def strength(self) -> int:
        """How far apart the two ratings are, in steps of the scale: 1 to 8."""
        return self.chosen_rating - self.rejected_rating


@dataclass(frozen=True)
class Parsed:
    """A domain's usable snippets, and how many were left out."""

    snippets: list[Snippet]
    mismatched: int
    repeated: int


def parse(domain: Domain, texts: str, ratings: str) -> Parsed:
    """Join a domain's two files by id.

    A snippet is left out where the files disagree about its mean rating, for its single ratings may then be another
    text's, or where an earlier one has the same text but for case, so that no text is on both sides of a split.

    Args:
        domain: which one it is, with the number of rows it must have.
        texts: content of `STEM_GroundTruth.txt`.
        ratings: content of `STEM_anonDataRatings.txt`.

    Raises:
        DataError: a line that cannot be read, or a number of rows other than the archive's own page says.
    """
    rated = {
        row[0]: (_number(row[1], where), _single_ratings(row[3], where))
        for where, row in _rows(f"{domain.stem}_anonDataRatings.txt", ratings, columns=4, expected=domain.rows)
    }
    snippets: dict[str, Snippet] = {}
    mismatched = repeated = 0
    for where, row in _rows(f"{domain.stem}_GroundTruth.txt", texts, columns=3, expected=domain.rows):
        if row[0] not in rated:
            raise DataError(f"{where}: snippet {row[0]} has no line in {domain.stem}_anonDataRatings.txt.")
        mean, single = rated[row[0]]
        text = " ".join(row[2].split())
        if abs(_number(row[1], where) - mean) > SAME_MEAN:
            mismatched += 1
        elif text.casefold() in snippets:
            repeated += 1
        else:
            snippets[text.casefold()] = Snippet(domain.name, row[0], text, single)
    return Parsed(list(snippets.values()), mismatched, repeated)


def split(snippets: Sequence[Snippet], held_out: int, seed: str) -> tuple[list[Snippet], list[Snippet]]:
    """Shuffle and cut: (those to train on, `held_out` others).

    Raises:
        DataError: more are to be held out than there are.
    """
    if held_out > len(snippets):
        raise DataError(f"{held_out} snippets cannot be held out of {len(snippets)}: lower held_out.")
    shuffled = list(snippets)
    random.Random(seed).shuffle(shuffled)
    return shuffled[held_out:], shuffled[:held_out]


def draw_votes(snippets: Sequence[Snippet], passes: int, seed: str) -> list[Vote]:
    """Pair the snippets at random, `passes` times, and let one random rater speak for each; ties are left out.

    Within a pass no snippet is in two pairs, so one pass gives independent comparisons, while each pair is a uniform
    draw. Nothing is filtered by how far the means are apart.

    Args:
        snippets: what to pair; of an odd number, one sits out each pass.
        passes: how many times; each pass pairs afresh and draws fresh raters.
        seed: of the pairs and raters.
    """
    generator = random.Random(seed)
    votes = []
    for _ in range(passes):
        shuffled = generator.sample(snippets, len(snippets))
        for first, second in zip(shuffled[::2], shuffled[1::2], strict=False):
            ratings = generator.choice(first.ratings), generator.choice(second.ratings)
            if ratings[0] > ratings[1]:
                votes.append(Vote(first, second, *ratings))
            elif ratings[0] < ratings[1]:
                votes.append(Vote(second, first, *ratings[::-1]))
    return votes


def _rows(file: str, content: str, *, columns: int, expected: int) -> list[tuple[str, list[str]]]:
    """Each line's place and columns. Only CR LF and LF end a line: texts may hold other line separators."""
    lines = [line.removesuffix("\r") for line in content.removeprefix("\ufeff").split("\n")]
    rows = [(f"{file}:{number}", line.split("\t")) for number, line in enumerate(lines, start=1) if line]
    for where, row in rows:
        if len(row) != columns:
            raise DataError(f"{where} has {len(row)} columns between tabs, expected {columns}: this is another format.")
    if len(rows) != expected:
        raise DataError(f"{file} has {len(rows)} snippets, expected {expected}: the file is incomplete or another one.")
    return rows


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}: the mean rating is {text!r}, which is no number.") from None


def _single_ratings(text: str, where: str) -> tuple[int, ...]:
    try:
        ratings = json.loads(text)
    except json.JSONDecodeError:
        ratings = None
    if not isinstance(ratings, list) or len(ratings) < 2 or not all(_is_rating(rating) for rating in ratings):
        raise DataError(
            f"{where}: the single ratings are {text!r}, expected a list of two or more whole numbers "
            f"from {LOWEST} to {HIGHEST}."
        )
    return tuple(ratings)


def _is_rating(value: object) -> bool:
    return type(value) is int and LOWEST <= value <= HIGHEST
