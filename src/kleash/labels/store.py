"""Where pairs and votes are kept: one SQLite file for one machine, one PostgreSQL database for a team.

Many processes and threads may use a store at once, each process with a `LabelStore` of its own. A vote is one
transaction and unique for its pair and annotator. What a reader gets was read in one transaction that has ended:
nothing is locked while it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Row, and_, case, delete, exists, func, select
from sqlalchemy.dialects import postgresql, sqlite

from kleash.errors import DataError, near_match
from kleash.labels.agreement import agreement_of
from kleash.labels.database import PAIRS, POSTGRESQL, VOTES, Database
from kleash.labels.records import ANSWERS, CHOICES, Agreement, Choice, Pair, Progress, Task, Vote

BATCH = 500
"""Pairs in one statement."""


class LabelStore:
    """Pairs to compare and the votes on them. Made by `open`; a context manager that closes itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = postgresql.insert if database.dialect == POSTGRESQL else sqlite.insert

    @classmethod
    def open(cls, location: str | Path) -> Self:
        """Open a store, or make an empty one.

        Args:
            location: the path of an SQLite file, or a SQLAlchemy URL such as
                `postgresql+psycopg://name:password@host/database`.

        Raises:
            KleashError: it cannot be reached or made, is no label store, or has a version that is not known.
        """
        return cls(Database(location))

    @property
    def name(self) -> str:
        """The location as one may print it: without a password."""
        return self._database.name

    def add(self, pairs: Iterable[Pair]) -> int:
        """Add pairs behind those that are there, all of them or none.

        The same prompt with the same two completions, in either order, is added once.

        Returns:
            How many were added.

        Raises:
            KleashError: the database cannot be used.
        """
        rows = [
            {
                "key": pair.key,
                "prompt": pair.prompt,
                "first": pair.first,
                "second": pair.second,
                "source": pair.source,
            }
            for pair in pairs
        ]
        statement = self._insert(PAIRS).on_conflict_do_nothing(index_elements=["key"]).returning(PAIRS.c.id)
        with self._database.adding() as connection:
            return sum(
                len(connection.execute(statement, rows[start : start + BATCH]).all())
                for start in range(0, len(rows), BATCH)
            )

    def next_task(self, annotator: str) -> Task | None:
        """Return a pair that this annotator has not voted on: the one with the fewest votes, then the oldest.

        It is not set aside: until a vote arrives it is offered again, and to others as well.

        Returns:
            The task, or None when there is nothing left.

        Raises:
            DataError: a blank name.
        """
        _check_annotator(annotator)
        votes = select(func.count()).where(VOTES.c.pair_id == PAIRS.c.id).scalar_subquery()
        seen = exists().where(and_(VOTES.c.pair_id == PAIRS.c.id, VOTES.c.annotator == annotator))
        statement = select(PAIRS).where(~seen).order_by(votes, PAIRS.c.id).limit(1)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else _task(_pair(row), annotator)

    def vote(
        self,
        annotator: str,
        pair_id: int,
        choice: Choice | None,
        *,
        strength: float | None = None,
        flagged: bool = False,
        note: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Record what an annotator says about a pair; a second vote on the same pair replaces the first.

        Args:
            annotator: who votes.
            pair_id: the pair.
            choice: the better completion, a tie or a skip; None for an answer that could not be read.
            strength: how much better, above 0; None where it was not said. Only with `first` or `second`.
            flagged: whether the pair is broken or unsuitable.
            note: a remark, or the text of an answer that could not be read.
            seconds: time that the annotator took.

        Raises:
            DataError: a blank name, an unknown pair or choice, or a strength that does not fit the choice.
            KleashError: the database cannot be used; the vote is then not recorded.
        """
        _check_annotator(annotator)
        _check_choice(choice, strength)
        values = {"choice": choice, "flagged": flagged, "strength": strength, "note": note, "seconds": seconds}
        self._upsert(annotator, pair_id, values)

    def flag(self, annotator: str, pair_id: int, note: str | None = None) -> None:
        """Mark a pair as broken or unsuitable; a choice that the annotator made before is kept.

        Args:
            annotator: who marks it.
            pair_id: the pair.
            note: what is wrong with it; None keeps an earlier note.

        Raises:
            DataError: a blank name or an unknown pair.
            KleashError: the database cannot be used; nothing is then marked.
        """
        _check_annotator(annotator)
        remark = {} if note is None else {"note": note}
        self._upsert(annotator, pair_id, {"flagged": True, **remark})

    def undo(self, annotator: str) -> Task | None:
        """Take this annotator's newest vote back, with its flag and its note; a flag alone counts as one.

        Returns:
            Its task, to be voted on again; None when there is no vote to take back.

        Raises:
            DataError: a blank name.
        """
        _check_annotator(annotator)
        newest = (
            select(VOTES.c.id)
            .where(VOTES.c.annotator == annotator)
            .order_by(VOTES.c.created_at.desc(), VOTES.c.id.desc())
            .limit(1)
            .scalar_subquery()
        )
        with self._database.writing() as connection:
            pair_id = connection.execute(
                delete(VOTES).where(VOTES.c.id == newest).returning(VOTES.c.pair_id)
            ).scalar_one_or_none()
            if pair_id is None:
                return None
            row = connection.execute(select(PAIRS).where(PAIRS.c.id == pair_id)).one()
        return _task(_pair(row), annotator)

    def progress(self, annotator: str | None = None) -> Progress:
        """Count pairs by what this annotator, or anybody, has done with them.

        Args:
            annotator: whose votes are counted; None counts those of all. `by_annotator` always has everyone.
        """

        def pairs_where(condition: Any) -> Any:
            return func.count(case((condition, VOTES.c.pair_id)).distinct())

        answered = VOTES.c.choice.in_(ANSWERS)
        counts = select(
            pairs_where(answered),
            pairs_where(VOTES.c.choice == "skip"),
            pairs_where(VOTES.c.flagged),
            func.count(VOTES.c.pair_id.distinct()),
        )
        if annotator is not None:
            counts = counts.where(VOTES.c.annotator == annotator)
        names = select(VOTES.c.annotator, func.count()).where(answered).group_by(VOTES.c.annotator)
        with self._database.reading() as connection:
            done, skipped, flagged, seen = connection.execute(counts).one()
            total = connection.execute(select(func.count()).select_from(PAIRS)).scalar_one()
            by_annotator = {name: count for name, count in connection.execute(names.order_by(VOTES.c.annotator))}
        return Progress(done, skipped, flagged, total - seen, total, by_annotator)

    def agreement(self) -> Agreement:
        """Say how far the annotators agree, on the pairs that nobody flagged."""
        votes = _answers(self.votes(), flagged=False)
        return agreement_of((vote.pair_id, vote.annotator, choice) for vote, choice in votes)

    def votes(self) -> Iterator[Vote]:
        """Yield every vote, by pair and then by the time of an annotator's first vote on it."""
        columns = [column for column in VOTES.c if column.name != "id"]
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).order_by(VOTES.c.pair_id, VOTES.c.id)).all()
        for row in rows:
            yield Vote(**row._mapping)

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(PAIRS).order_by(PAIRS.c.id)).all()
        for row in rows:
            yield _pair(row)

    def comparisons(self, *, flagged: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the votes as rows of the comparisons format; skips and unreadable answers are left out.

        Args:
            flagged: include pairs that anybody flagged.

        Yields:
            A dict with prompt, chosen, rejected, strength, annotator and source: one a vote. A tie has strength 0 and
            the pair's first completion as chosen.
        """
        answers = list(_answers(self.votes(), flagged=flagged))
        pairs = {pair.id: pair for pair in self.pairs()}  # read last: it has the pair of every vote
        for vote, _ in answers:
            yield _comparison(pairs[vote.pair_id], vote)

    def close(self) -> None:
        """Close the store's connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _upsert(self, annotator: str, pair_id: int, values: dict[str, Any]) -> None:
        row = {"choice": None, **values, "pair_id": pair_id, "annotator": annotator, "created_at": _now()}
        changed = {**values, "created_at": row["created_at"]}
        statement = self._insert(VOTES).values(row)
        statement = statement.on_conflict_do_update(index_elements=["pair_id", "annotator"], set_=changed)
        with self._database.writing() as connection:
            if connection.execute(select(PAIRS.c.id).where(PAIRS.c.id == pair_id)).one_or_none() is None:
                raise DataError(f"There is no pair {pair_id} in {self.name}, so nobody can vote on it.")
            connection.execute(statement)


def _task(pair: Pair, annotator: str) -> Task:
    return Task(pair, pair.first_on_left(annotator))


def _pair(row: Row[Any]) -> Pair:
    return Pair(row.prompt, row.first, row.second, row.source, row.id)


def _answers(votes: Iterable[Vote], *, flagged: bool) -> Iterator[tuple[Vote, Choice]]:
    """Yield the votes for first, second or tie, with or without those on pairs that anybody flagged."""
    votes = list(votes)
    left_out = set() if flagged else {vote.pair_id for vote in votes if vote.flagged}
    for vote in votes:
        if vote.choice in ANSWERS and vote.pair_id not in left_out:
            yield vote, vote.choice


def _comparison(pair: Pair, vote: Vote) -> dict[str, Any]:
    chosen, rejected = (pair.second, pair.first) if vote.choice == "second" else (pair.first, pair.second)
    return {
        "prompt": pair.prompt,
        "chosen": chosen,
        "rejected": rejected,
        "strength": 0.0 if vote.choice == "tie" else vote.strength,
        "annotator": vote.annotator,
        "source": pair.source,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _check_annotator(annotator: str) -> None:
    if not annotator.strip() or not annotator.isprintable():
        raise DataError(
            f"The annotator's name is {annotator!r}: a vote needs the name of who casts it. Give one of letters,"
            " figures or other visible characters."
        )


def _check_choice(choice: Choice | None, strength: float | None) -> None:
    if choice is not None and choice not in CHOICES:
        raise DataError(f"'{choice}' is no choice.{near_match(choice, CHOICES)} There are: {', '.join(CHOICES)}.")
    if strength is None:
        return
    if choice not in ("first", "second"):
        raise DataError(
            f"The vote {choice!r} has the strength {strength}: only a vote for one of the two completions has one."
            " Leave it out."
        )
    if not 0 < strength < math.inf:
        raise DataError(
            f"The strength of a vote is {strength}: it is a finite number above 0. Vote tie where neither is better."
        )
