"""Filling a label queue without people: by a judge, or by a reward function with as much noise as one asks for.

A vote is written as soon as it is there, and only pairs that this annotator has not voted on are taken. So a queue that
was interrupted, by whatever, is completed by running it again, and nothing that was written is asked twice.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

from kleash.errors import ConfigError, ModelError
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore
from kleash.rewards.function import Reward, Score, Text, evaluate
from kleash.rewards.judge import Choice, Judge, JudgeTally, Question, Verdict

Progress = Callable[[int, int], None]
"""Called with how many pairs are done and how many there are."""

FAILURES_IN_A_ROW = 20
"""So many questions without an answer, one after another, and the judge is taken to be gone."""
REWARD_BATCH = 64
"""Pairs that a reward function scores in one call."""
EXCHANGED: dict[Choice, Choice] = {"first": "second", "second": "first", "tie": "tie"}


@dataclass(frozen=True)
class ScoreTally:
    """Counts over pairs that a reward function voted on.

    Attributes:
        scored: pairs with a vote, ties included.
        ties: pairs with scores that are too close; noise leaves them alone.
        flipped: pairs where noise turned the vote round.
        unscored: pairs where the function gave a side no score; stored without a choice.
    """

    scored: int = 0
    ties: int = 0
    flipped: int = 0
    unscored: int = 0


def judge_queue(
    store: LabelStore,
    judge: Judge,
    annotator: str,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> JudgeTally:
    """Ask a judge about every pair that `annotator` has not voted on, and write its votes as they arrive.

    An unreadable verdict is stored with no choice and both replies, as JSON, in its note; so is, with the reason, a
    question that no asking will get an answer to, such as one that is too long. A question that failed otherwise is not
    stored: it is counted, stays in the queue and is asked again by the next call.

    Args:
        store: the queue.
        judge: who is asked, in both orders.
        annotator: the name that the votes are stored under; another judge or rubric needs another one.
        limit: ask about so many pairs at most; None: all.
        progress: called after each pair.

    Returns:
        Counts over this call.

    Raises:
        ModelError: the endpoint refuses everything, or 20 questions in a row got no answer. What was answered
            is stored.
    """
    pairs = _open_pairs(store, annotator, limit)
    tally = JudgeTally(prices=judge.prices)
    failed_in_a_row = 0
    questions = [Question(pair.prompt, pair.first, pair.second) for pair in pairs]
    with closing(judge.judge(questions)) as verdicts:
        for i, verdict in verdicts:
            tally = tally.plus(verdict)
            passing = verdict.failed and not verdict.permanent
            failed_in_a_row = failed_in_a_row + 1 if passing else 0
            if not passing:
                store.vote(annotator, _id(pairs[i]), verdict.choice, note=_note(verdict))
            if failed_in_a_row == FAILURES_IN_A_ROW:
                raise ModelError(
                    f"The judge gave no answer to {failed_in_a_row} questions in a row. The last: {verdict.reason} Mend"
                    " that and run the same again: what it answered before is stored, and only the rest is asked."
                )
            if progress is not None:
                progress(tally.asked, len(pairs))
    return tally


def score_queue(
    store: LabelStore,
    reward: Reward,
    annotator: str,
    *,
    tie_within: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    limit: int | None = None,
    progress: Progress | None = None,
) -> ScoreTally:
    """Vote for the completion that a reward function pays more, on every pair that `annotator` has not voted on.

    Scores at most `tie_within` apart are a tie, as people call answers that are too close. Any other vote is turned
    round with probability `noise`, decided by a hash of the seed and the pair's texts: the same pairs each time,
    whatever else is in the queue and however often it was interrupted.

    Args:
        store: the queue.
        reward: called with prompts and completions alone; a queue has no further columns.
        annotator: the name that the votes are stored under.
        tie_within: difference of rewards up to which neither is better; 0: equal scores alone.
        noise: probability of a wrong vote, from 0 to 1.
        seed: of the noise.
        limit: vote on so many pairs at most; None: all.
        progress: called after each pair.

    Returns:
        Counts over this call.

    Raises:
        ConfigError: noise that is no probability, or a negative `tie_within`.
        DataError: the reward raised, or returned something that is not a number or None each.
    """
    if not 0 <= noise <= 1:
        raise ConfigError(f"noise = {noise:g} is no probability of a wrong vote. Give a number from 0 to 1.")
    if not 0 <= tie_within < math.inf:
        raise ConfigError(f"tie_within = {tie_within:g} is no difference of rewards. Give a number of at least 0.")
    pairs = _open_pairs(store, annotator, limit)
    tally = ScoreTally()
    for start in range(0, len(pairs), REWARD_BATCH):
        batch = pairs[start : start + REWARD_BATCH]
        for done, (pair, scores) in enumerate(zip(batch, _scores(reward, batch), strict=True), start + 1):
            choice = _choice(*scores, tie_within)
            flipped = choice in ("first", "second") and _uniform(seed, pair) < noise
            if choice is None:
                store.vote(annotator, _id(pair), None, note=f"{reward.name} gave no score: {scores}")
            else:
                store.vote(annotator, _id(pair), EXCHANGED[choice] if flipped else choice)
            tally = replace(
                tally,
                scored=tally.scored + (choice is not None),
                ties=tally.ties + (choice == "tie"),
                flipped=tally.flipped + flipped,
                unscored=tally.unscored + (choice is None),
            )
            if progress is not None:
                progress(done, len(pairs))
    return tally


def _open_pairs(store: LabelStore, annotator: str, limit: int | None) -> list[Pair]:
    voted = {vote.pair_id for vote in store.votes() if vote.annotator == annotator}
    return list(islice((pair for pair in store.pairs() if pair.id not in voted), limit))


def _id(pair: Pair) -> int:
    assert pair.id is not None
    return pair.id


def _note(verdict: Verdict) -> str | None:
    """Both replies as they came, where they could not be read; the reason, where there is none."""
    if verdict.choice is not None:
        return None
    if verdict.failed:
        return verdict.reason
    return json.dumps({"forward": verdict.forward.text, "backward": verdict.backward.text})


def _scores(reward: Reward, pairs: Sequence[Pair]) -> list[tuple[Score, Score]]:
    """The scores of both completions of each pair, from one call."""
    prompts: list[Text] = [pair.prompt for pair in pairs for _ in range(2)]
    completions = [_completion(pair, text) for pair in pairs for text in (pair.first, pair.second)]
    scores = evaluate(reward, prompts, completions, {})
    return list(zip(scores[::2], scores[1::2], strict=True))


def _completion(pair: Pair, text: str) -> Text:
    return text if isinstance(pair.prompt, str) else [{"role": "assistant", "content": text}]


def _choice(first: Score, second: Score, tie_within: float) -> Choice | None:
    if first is None or second is None:
        return None
    return "tie" if abs(first - second) <= tie_within else "first" if first > second else "second"


def _uniform(seed: int, pair: Pair) -> float:
    """A number from [0, 1) that the seed and the pair's texts fix, whichever of them is first."""
    content = json.dumps([seed, pair.prompt, sorted((pair.first, pair.second))], sort_keys=True)
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8]) / 2**64
