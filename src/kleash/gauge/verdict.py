"""The drift in one sentence, by stated rules, and never more certain than its intervals.

1. Nothing moved: every token of every reply has a KL of exactly 0.
2. No further than bfloat16 rounding: the upper end is not above that of the rounding.
3. Otherwise the mean of the reverse KL ± half its 95 % interval. A category is named where its interval lies above the
   overall one: "mostly" if it holds over half of all nats.
4. The forgetting direction is called smaller or larger only where the two intervals are apart.
5. More or less than 4-bit rounding: the same. "Small" and "large" drift mean less and more than that.
6. A score is up or down where the interval of its difference leaves 0 out. Small drift with a score up and none down
   is what one wants; large drift with only one score, and that up, is said to be a gain on one narrow thing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kleash.gauge.records import Corpus, Direction, Estimate, Scale, Score
from kleash.report.wording import number, with_error


def verdict(
    reverse: Direction | None,
    forward: Direction | None,
    corpus: Corpus | None,
    scale: Scale | None,
    scores: Sequence[Score],
    *,
    partial: bool,
) -> str:
    """Say what was found; see the rules above."""
    parts = _of_replies(reverse, forward, scale, scores) if reverse else []
    if not reverse and forward:
        parts = [f"forgetting direction {_nats(forward.per_sequence.mean)} per reply; the other was not measured"]
    if corpus and not parts:
        parts = [_of_corpus(corpus)]
    sentence = "; ".join(parts)
    prefix = "Interrupted, so only on what was finished: " if partial else ""
    return f"{prefix}{sentence if partial else sentence[:1].upper() + sentence[1:]}."


def _of_replies(
    reverse: Direction, forward: Direction | None, scale: Scale | None, scores: Sequence[Score]
) -> list[str]:
    moved = reverse.per_sequence.mean
    both = [direction for direction in (reverse, forward) if direction is not None]
    if not any(any(reply.token_kl) for direction in both for reply in direction.replies):
        replies = sum(len(direction.replies) for direction in both)
        return [f"not moved: the KL is exactly 0 at every token of {replies} replies", *_of_scores(scores, None)]
    bf16 = scale.bf16_reverse if scale else None
    if bf16 and moved.high <= bf16.high:
        return [
            f"moved {_nats(moved)} per reply, no further than rounding its weights to bfloat16 ({_nats(bf16)})",
            *_of_scores(scores, "small"),
        ]
    parts = [f"moved {_nats(moved)} per reply{_where(reverse)}"]
    if forward:
        parts.append(_forgetting(moved, forward.per_sequence.mean))
    int4 = scale.int4_reverse if scale else None
    size = _apart(moved, int4) if int4 else None
    if int4:
        words = {"small": "less than", "large": "more than", None: "about as much as"}[size]
        parts.append(f"{words} rounding its weights to 4 bits ({_nats(int4)})")
    return parts + _of_scores(scores, size)


def _where(direction: Direction) -> str:
    if len(direction.by_category) < 2:
        return ""
    whole = direction.per_sequence.mean
    name, top = next(iter(direction.by_category.items()))
    if not top.low > whole.high:
        return ""
    mostly = top.value * top.count > 0.5 * whole.value * whole.count
    return f", mostly in {name} prompts" if mostly else f", most of all in {name} prompts"


def _forgetting(moved: Estimate, forward: Estimate) -> str:
    size = _apart(forward, moved)
    if size is None or not (forward.value > 0 and moved.value > 0):
        return f"forgetting direction about as large ({_nats(forward)})"
    ratio = moved.value / forward.value
    word = "smaller" if size == "small" else "larger"
    return f"forgetting direction {max(ratio, 1 / ratio):.2g} times {word} ({_nats(forward)})"


def _of_scores(scores: Sequence[Score], size: str | None) -> list[str]:
    if not scores:
        return []
    up = [score.name for score in scores if score.difference.low > 0]
    down = [score.name for score in scores if score.difference.high < 0]
    if up and down:
        return [f"scores up on {', '.join(up)}, down on {', '.join(down)}"]
    if down:
        return [f"scores down on {', '.join(down)}"]
    if not up:
        return ["no clear change in scores"]
    if size == "large" and len(scores) == 1:
        return [f"{up[0]} is up: a large drift for a gain on one narrow thing, so score others too"]
    wanted = ": a small drift with better scores is what one wants" if size == "small" else ""
    return [f"scores up on {', '.join(up)}{wanted}"]


def _of_corpus(corpus: Corpus) -> str:
    return (
        f"on the given text {_nats(corpus.reverse_per_token.mean)} per token (tuned to reference) and "
        f"{_nats(corpus.forward_per_token.mean)} (reference to tuned), the same first choice at "
        f"{corpus.top1_agreement.value:.1%} of tokens, perplexity {number(corpus.reference_perplexity.value)} to "
        f"{number(corpus.tuned_perplexity.value)}"
    )


def _apart(one: Estimate, other: Estimate) -> str | None:
    """`small` where `one` lies below `other`, `large` where it lies above, None where their intervals meet."""
    if one.high < other.low:
        return "small"
    return "large" if one.low > other.high else None


def _nats(estimate: Estimate) -> str:
    if math.isnan(estimate.low):
        return f"{number(estimate.value)} nats (one prompt or text, so no interval)"
    return f"{with_error(estimate.value, estimate.half_width)} nats"
