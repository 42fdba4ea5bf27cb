"""What a label store holds: pairs of completions, votes on them, and what is counted over both.

A vote is about the pair's *first* and *second* completion. Which of the two an annotator saw on the left is in
`Task` alone, so that votes of different annotators can be compared.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, get_args

from kleash.data.prompts import Message
from kleash.errors import DataError

Choice = Literal["first", "second", "tie", "skip"]
Statistic = Literal["Cohen's kappa", "Krippendorff's alpha"]

CHOICES: tuple[Choice, ...] = get_args(Choice)
ANSWERS: tuple[Choice, ...] = ("first", "second", "tie")
"""The choices that say something about the pair; `skip` says only that it was seen."""


@dataclass(frozen=True)
class Pair:
    """Two completions of one prompt.

    Attributes:
        prompt: plain text, or chat messages, the last one not the assistant's.
        first: one completion.
        second: another one, which differs from the first.
        source: where the pair comes from, such as a model, a run or a file; or None.
        id: its number in the store; None as long as it is in none.

    Raises:
        DataError: the two completions are the same text.
    """

    prompt: str | list[Message]
    first: str
    second: str
    source: str | None = None
    id: int | None = None

    def __post_init__(self) -> None:
        if self.first == self.second:
            raise DataError(
                f"The pair for the prompt {str(self.prompt)[:60]!r} has the same completion on both sides"
                f" ({self.first[:60]!r}), so there is nothing to compare. Leave such pairs out."
            )

    @property
    def key(self) -> str:
        """What is compared, whatever the order of the completions: equal for two pairs that are the same question."""
        content = json.dumps([self.prompt, sorted((self.first, self.second))], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def first_on_left(self, viewer: str) -> bool:
        """Whether this viewer is shown the first completion on the left: by a hash, so the same each time."""
        return hashlib.sha256(f"{self.key}\n{viewer}".encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Vote:
    """What one annotator said about one pair.

    Attributes:
        pair_id: the pair's number in the store.
        annotator: who voted: a person's name, or a judge's.
        choice: the better completion, a tie or a skip. None: the pair was flagged and no choice made, or a judge
            answered something that could not be read, which is then in `note`.
        flagged: whether the annotator marked the pair as broken or unsuitable.
        strength: how much clearer a larger number is; None where it was not said.
        note: the annotator's remark, or a judge's answer as it came.
        seconds: time from showing the pair to the vote.
        created_at: when it was cast, UTC, ISO 8601.
    """

    pair_id: int
    annotator: str
    choice: Choice | None
    flagged: bool
    strength: float | None
    note: str | None
    seconds: float | None
    created_at: str


@dataclass(frozen=True)
class Answer:
    """A vote that is not in a store yet, or on its way to another tool; the attributes are those of `Vote`."""

    annotator: str
    choice: Choice | None
    flagged: bool = False
    strength: float | None = None
    note: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Labelled:
    """A pair with what was said about it."""

    pair: Pair
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Task:
    """What an annotator is shown.

    Attributes:
        pair: the two completions.
        first_on_left: whether the first one stands on the left: the same each time for this pair and annotator,
            and left as often as right over many pairs.
    """

    pair: Pair
    first_on_left: bool


@dataclass(frozen=True)
class Progress:
    """How far one annotator, or all of them together, have come: numbers of pairs.

    Attributes:
        done: pairs with an answer: first, second or tie.
        skipped: pairs that were skipped.
        flagged: pairs that were flagged, whether they have an answer or not.
        remaining: pairs without a vote of any kind.
        total: all pairs of the store.
        by_annotator: answers of each annotator, by name.
    """

    done: int
    skipped: int
    flagged: int
    remaining: int
    total: int
    by_annotator: dict[str, int]


@dataclass(frozen=True)
class Agreement:
    """How far annotators agree beyond chance on the pairs that at least two of them answered.

    Attributes:
        kappa: 1 is perfect agreement, 0 what chance gives, below 0 less than that; None where it is undefined:
            no pair with two answers, or all answers alike.
        pairs: pairs with at least two answers.
        low: lower end of the 95 % interval, by a bootstrap over pairs; None where there is none.
        high: upper end.
        raw: the share of pairs of answers to the same completions that agree; None without any.
        statistic: what `kappa` is: Cohen's for two annotators, Krippendorff's nominal alpha for more.
    """

    kappa: float | None
    pairs: int
    low: float | None
    high: float | None
    raw: float | None
    statistic: Statistic = "Cohen's kappa"
