"""The page of a dial, and its words: what each scale of an adapter drifts, and what reward it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kleash.gauge.dial_search import Dial, Point
from kleash.gauge.naming import short_name
from kleash.gauge.records import Estimate
from kleash.report.charts import Tone
from kleash.report.intervals import Curve, Interval, interval_curves
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, folded, page, prose
from kleash.report.tables import settings_table, table
from kleash.report.wording import number, with_interval

WHAT_IT_IS = (
    "Scale s keeps s times what training changed in the weights: 0 is where training started, 1 is the checkpoint. The "
    "KL is KL(policy ‖ reference), exact over the vocabulary. Intervals are 95 % over prompts; the same prompts and "
    "random numbers serve every scale, so that neighbouring rows move together."
)
MARGIN = 0.04
"""Share of a chart's width to the left of 0."""

Of = Callable[[Point], Estimate | None]
COLUMNS: tuple[tuple[str, Of], ...] = (
    ("KL", lambda point: point.kl),
    ("KL per token", lambda point: point.kl_per_token),
    ("reward", lambda point: point.reward),
    ("gold", lambda point: point.gold),
    ("length", lambda point: point.length),
)


def render(dial: Dial) -> str:
    """Return the page."""
    facts = [f"step {dial.step}", f"{number(dial.prompts)} prompts", f"{number(dial.samples)} replies to each"]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    title = Html(f'<div class="run"><h1>Dial: {escape(short_name(dial.run))}</h1>{said}</div>')
    first = Html(f'<p class="headline">{escape(headline(dial))}</p>')
    asides = join(Html(f'<p class="aside">{escape(text)}</p>') for text in (WHAT_IT_IS, " ".join(notes(dial))) if text)
    titles, cells = rows(dial)
    numbers = table(titles, cells, caption="KL in nats, length in tokens; 95 % intervals.", numeric=titles)
    settings = folded("Settings", settings_table(dial.settings, caption="Where prompts and replies come from."))
    sections = [
        Section("Over the scale", _charts(dial)),
        Section("Numbers", numbers),
        Section("Settings", settings),
    ]
    return page(f"{short_name(dial.run)} · dial", join([title, first, asides]), sections)


def headline(dial: Dial) -> str:
    """Return the result in a sentence."""
    last = dial.points[-1]
    if dial.scale is None or dial.limit is None:
        return f"At scale {last.scale:g}: KL {said(last.kl)} nats per sequence{_rewarded(last)}."
    chosen, limit = dial.at(dial.scale), f"the limit of {dial.limit:g}"
    if dial.scale == 1:
        kl = f"KL {said(chosen.kl)}{_rewarded(chosen)}"
        return f"The whole adapter lies within {limit} nats per sequence and is exported as it was trained: {kl}."
    whole = f"; at scale 1 KL {said(last.kl)}{_rewarded(last)}" if last.scale == 1 else ""
    kl = f"KL {said(chosen.kl)} nats per sequence, within {limit}"
    return f"Scale {dial.scale:g}: {kl}{_rewarded(chosen)}{whole}."


def notes(dial: Dial) -> list[str]:
    """Return what a reader must know, as sentences."""
    return [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in dial.notes]


def short_rows(dial: Dial) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of a table for a terminal: KL, reward and gold."""
    return _rows(dial, [column for column in COLUMNS if column[0] in ("KL", "reward", "gold")])


def rows(dial: Dial) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the whole table."""
    return _rows(dial, COLUMNS)


def _rows(dial: Dial, columns: Sequence[tuple[str, Of]]) -> tuple[list[str], list[list[str]]]:
    """A row for each scale; columns that were measured nowhere are left out."""
    chosen = [(title, of) for title, of in columns if any(of(point) is not None for point in dial.points)]
    cells = [[f"{point.scale:g}", *(said(of(point)) for _, of in chosen)] for point in dial.points]
    return ["scale", *(title for title, _ in chosen)], cells


def said(estimate: Estimate | None) -> str:
    """Return an estimate with its interval."""
    return number(None) if estimate is None else with_interval(estimate.value, estimate.low, estimate.high)


def _rewarded(point: Point) -> str:
    gold = "" if point.gold is None else f", gold {said(point.gold)}"
    return ("" if point.reward is None else f", reward {said(point.reward)}") + gold


def _charts(dial: Dial) -> Html:
    text = prose(
        "Near 0 the KL grows as the square of the scale and the reward as the scale itself: the first part of the dial",
        "is the cheapest.",
    )
    drawn: list[tuple[str, str, Tone, Of]] = [
        ("KL(policy ‖ reference)", "nats per sequence", "drift", lambda point: point.kl),
        ("Reward", "reward", "reward", lambda point: point.reward),
        ("Gold reward", "reward", "reward", lambda point: point.gold),
    ]
    charts = [_over_scale(dial, *one) for one in drawn] + [_over_kl(dial, *one) for one in drawn[1:]]
    return join([text, columns([chart for chart in charts if chart])])


def _over_scale(dial: Dial, name: str, unit: str, tone: Tone, of: Of) -> Html:
    return _chart(f"{name} over the scale", name, unit, tone, "scale", _points(dial, of, lambda point: point.scale))


def _over_kl(dial: Dial, name: str, unit: str, tone: Tone, of: Of) -> Html:
    return _chart(f"{name} over the KL", name, unit, tone, "nats", _points(dial, of, lambda point: point.kl.value))


def _chart(title: str, name: str, unit: str, tone: Tone, axis: str, points: Sequence[tuple[float, Interval]]) -> Html:
    if not points:
        return Html()
    longest = max(x for x, _ in points) or 1.0
    lowest, highest = (pick(end for _, one in points for end in one.ends) for pick in (min, max))
    near = (0.0,) if lowest <= 0 <= highest or unit.startswith("nats") else ()
    return interval_curves(
        title, [Curve(name, points, tone)], unit=unit, axis=axis, across=(-MARGIN * longest, longest), include=near
    )


def _points(dial: Dial, of: Of, where: Callable[[Point], float]) -> list[tuple[float, Interval]]:
    found = [(point, of(point)) for point in dial.points]
    return [
        (where(point), Interval(f"scale {point.scale:g}", value.value, value.low, value.high, f"KL {said(point.kl)}"))
        for point, value in found
        if value is not None
    ]
