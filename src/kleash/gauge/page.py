"""The page of a gauge: one file that opens offline and says how far a model has moved, and where.

Wherever two things stand side by side, the left is about replies of the tuned model (reverse KL) and the right about
replies of the reference (forward KL).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict

from kleash.gauge.naming import short_name, short_names
from kleash.gauge.page_comparison import corpus, curve, scores
from kleash.gauge.page_drift import along_the_reply, by_category, by_class, how_far, percentage, tokens, writing
from kleash.gauge.page_replies import replies
from kleash.gauge.records import Estimate, Gauge
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, folded, page, prose
from kleash.report.tables import settings_table
from kleash.report.wording import number

AMOUNT = re.compile(r"[\d.,e+-]+ ± [\d.,e+-]+ nats")
ASIDE = (
    "Every KL is exact over the vocabulary at each position, in nats. Intervals are 95 %, by a bootstrap over prompts: "
    "how far other prompts of the same kinds would move the number, not what prompts of other kinds would show."
)


def render(gauges: Sequence[Gauge]) -> str:
    """Return the page of one model, or of several measured against the same reference.

    Args:
        gauges: at least one; several are compared first, then each has a section of its own.
    """
    first = gauges[0]
    if len(gauges) == 1:
        header = join([_header(first), _summary(first)])
        return page(f"{short_name(first.tuned.name)} · Kleash gauge", header, [*_sections(first), _settings(first)])
    names = short_names([gauge.tuned.name for gauge in gauges])
    header = join([_header(first, f"{len(gauges)} models"), _verdicts(gauges, names)])
    each = [Section(name, _folded(gauge)) for name, gauge in zip(names, gauges, strict=True)]
    return page("Kleash gauge", header, [Section("Side by side", curve(gauges, names)), *each])


def _header(gauge: Gauge, tuned: str = "") -> Html:
    chip = '<span class="chip warning">partial</span>' if gauge.partial else ""
    facts = [
        f"against {gauge.reference.name}",
        f"{gauge.tuned.dtype}, {gauge.tuned.parameters / 1e6:,.0f} million parameters",
    ]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    return Html(f'<div class="run"><h1>{escape(tuned or gauge.tuned.name)}</h1>{chip}{said}</div>')


def _summary(gauge: Gauge) -> Html:
    return join([_headline(gauge.verdict), _aside(gauge.notes), _tiles(gauge)])


def _verdicts(gauges: Sequence[Gauge], names: Sequence[str]) -> Html:
    """Return the verdict on the model that moved furthest; the others' stand in their sections."""
    moved = [gauge.reverse.per_sequence.mean.value if gauge.reverse else 0.0 for gauge in gauges]
    at = max(range(len(gauges)), key=moved.__getitem__)
    which = Html(f'<p class="aside">Moved furthest: {escape(names[at])}</p>')
    return join([which, _headline(gauges[at].verdict), _aside(gauges[at].notes)])


def _headline(verdict: str) -> Html:
    """Return the verdict with its first number in the colour of drift."""
    found = AMOUNT.search(verdict)
    start, end = found.span() if found else (0, 0)
    amount = f'<b class="drift">{escape(verdict[start:end])}</b>' if found else ""
    return Html(f'<p class="headline">{escape(verdict[:start])}{amount}{escape(verdict[end:])}</p>')


def _aside(notes: Sequence[str]) -> Html:
    """Return how to read the numbers, and what was noted on the way."""
    sentences = " ".join(f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in notes)
    return join(Html(f'<p class="aside">{escape(text)}</p>') for text in (ASIDE, sentences) if text)


def _tiles(gauge: Gauge) -> Html:
    reverse, forward = gauge.reverse, gauge.forward
    tiles = []
    if reverse:
        tiles.append(_tile("KL(tuned ‖ reference)", reverse.per_sequence.mean, "nats per sequence"))
        tiles.append(_tile("KL(tuned ‖ reference)", reverse.per_token, "nats per token"))
    if forward:
        tiles.append(_tile("KL(reference ‖ tuned)", forward.per_sequence.mean, "nats per sequence"))
    if gauge.corpus:
        tiles.append(_tile("Same first choice", gauge.corpus.top1_agreement, "of given tokens", percentage))
    if gauge.scale and gauge.scale.bf16_reverse:
        tiles.append(_tile("bf16 rounding alone", gauge.scale.bf16_reverse, "nats per sequence"))
    if gauge.scale and gauge.scale.int4_reverse:
        tiles.append(_tile("4-bit rounding alone", gauge.scale.int4_reverse, "nats per sequence"))
    return Html(f'<dl class="tiles">{join(tiles)}</dl>')


def _tile(name: str, estimate: Estimate, unit: str, say: Callable[[float], str] = number) -> Html:
    ends = f"{say(estimate.low)} to {say(estimate.high)}"
    return Html(
        f"<div><dt>{escape(name)}</dt><dd>{escape(say(estimate.value))}</dd>"
        f'<dd class="small">{escape(ends)}<br>{escape(unit)}</dd></div>'
    )


def _sections(gauge: Gauge) -> list[Section]:
    """Return what was measured, in reading order."""
    parts = [
        ("How far", how_far),
        ("By category", by_category),
        ("Along the reply", along_the_reply),
        ("By kind of token", by_class),
        ("Tokens that drift most", tokens),
        ("Replies that drift most", replies),
        ("How both write", writing),
        ("Given text", corpus),
        ("Scores", scores),
    ]
    drawn = [(title, part(gauge)) for title, part in parts]
    return [Section(title, body) for title, body in drawn if body]


def _settings(gauge: Gauge) -> Section:
    settings = settings_table(gauge.settings, caption="The settings of this measurement.")
    models = {"reference": asdict(gauge.reference), "tuned": asdict(gauge.tuned)}
    facts = settings_table(models, caption="Which weights the numbers were measured on.")
    return Section("Settings", join([folded("Settings", settings), folded("Models", facts)]))


def _folded(gauge: Gauge) -> Html:
    """Return everything about one of several models, each part behind a click."""
    parts = [folded(part.title, Html(f'<div class="inside">{part.body}</div>')) for part in _sections(gauge)]
    return join([prose(gauge.verdict), _tiles(gauge), *parts, _settings(gauge).body])
