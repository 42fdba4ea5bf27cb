"""The part of the page that shows text: the replies that drifted most, beside the reference's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kleash.gauge.page_drift import directions
from kleash.gauge.records import Direction, Gauge, Reply
from kleash.report import heatmap
from kleash.report.markup import Html, escape, join
from kleash.report.page import columns, folded, prose
from kleash.report.wording import number

OPEN_PAIRS, MOST_PAIRS = 4, 12


def replies(gauge: Gauge) -> Html:
    """Return the prompts that drifted most, with a reply of each model."""
    measured = directions(gauge)
    if not measured:
        return Html()
    leading = measured[0]
    frame = shared_frame(reply.prompt for reply in leading.replies)
    pairs = [
        _pair(gauge, worst.prompt_index, worst.category, shown_prompt(worst.prompt, frame))
        for worst in leading.worst_prompts[:MOST_PAIRS]
    ]
    if not pairs:
        return Html()
    text = prose(
        "The prompts with the largest KL, so not typical ones. A colour is the KL where the token was written:",
        "of tuned ‖ reference on the left, of reference ‖ tuned on the right. Point at a token to read it.",
        *(["What all prompts share, such as the chat template, is left out."] if any(frame) else []),
    )
    rest = pairs[OPEN_PAIRS:]
    more = folded(f"{len(rest)} more prompts", join(rest)) if rest else Html()
    return join([text, heatmap.legend(), *pairs[:OPEN_PAIRS], more])


def shared_frame(prompts: Iterable[str]) -> tuple[int, int]:
    """Return how many characters all prompts share at their beginning and at their end, up to a mark.

    A chat template puts the same words around every prompt. What is shared ends at a line break or a bracket, so
    that prompts which happen to begin alike keep their words.
    """
    different = sorted(set(prompts))
    if len(different) < 2:
        return 0, 0
    before = _shared_start(different)
    after = _shared_start([prompt[::-1] for prompt in different])[::-1]
    head = max((match.end() for match in re.finditer(r"[\n>\]]", before)), default=0)
    tail = re.search(r"[\n<\[]", after)
    return head, len(after) - tail.start() if tail else 0


def shown_prompt(prompt: str, frame: tuple[int, int]) -> str:
    """Return a prompt without what all prompts share; the whole where nothing would be left."""
    head, tail = frame
    return prompt[head : len(prompt) - tail].strip() or prompt


def largest(direction: Direction | None, prompt_index: int) -> Reply | None:
    """Return the reply to a prompt with the largest KL; None where the direction has none to it."""
    found: Sequence[Reply] = [one for one in direction.replies if one.prompt_index == prompt_index] if direction else ()
    return max(found, key=lambda one: one.kl, default=None)


def _shared_start(texts: Sequence[str]) -> str:
    """Return the beginning that the texts share: what the first and the last in order share, all others do."""
    first, last = min(texts), max(texts)
    return first[
        : next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    ]


def _pair(gauge: Gauge, prompt_index: int, category: str, prompt: str) -> Html:
    sides = [
        _side(name, largest(direction, prompt_index))
        for name, direction in (("Tuned", gauge.reverse), ("Reference", gauge.forward))
        if direction is not None
    ]
    said = f'<p class="prompt">{escape(prompt)}</p>'
    kind = f'<p class="kind">{escape(category)}</p>' if category else ""
    return Html(f'<article class="pair">{kind}{said}{columns(sides)}</article>')


def _side(name: str, reply: Reply | None) -> Html:
    if reply is None:
        return Html(f'<div class="side"><h4><b>{name}</b></h4><p class="heat empty">(not measured)</p></div>')
    facts = [f"KL {number(reply.kl)} nats", f"{len(reply.tokens)} tokens"]
    facts += [] if reply.stopped else ["goes on repeating itself" if reply.loops else "cut at the limit"]
    said = join(Html(f"<span>{escape(fact)}</span>") for fact in facts)
    text = heatmap.token_heatmap(reply.tokens, reply.token_kl, f"{name}:")
    return Html(f'<div class="side"><h4><b>{name}</b>{said}</h4>{text}</div>')
