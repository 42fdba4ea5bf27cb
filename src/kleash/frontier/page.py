"""The page of a frontier: what to take, reward over drift for each method, gold against proxy, and every point."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.frontier.analysis import Frontier, Strand
from kleash.frontier.charts import against_chart, drift_chart, heights_of, residual_chart
from kleash.frontier.points import Point
from kleash.frontier.words import caveats, peak_sentences, strand_sentences, strand_title
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, folded, page, prose
from kleash.report.tables import table
from kleash.report.wording import number, with_error

HEADERS = ("source", "method", "at", "KL", "gold", "proxy", "checkpoint", "alarms", "")


def render(frontier: Frontier) -> str:
    """Return the page."""
    sections = [
        Section("Reward over drift", _drift(frontier)),
        *_against(frontier),
        Section("What the curves say", _fits(frontier)),
        Section("Points", _points(frontier)),
        Section("How it is measured", _method(frontier)),
    ]
    return page("Frontier · Kleash", _header(frontier), sections)


def _header(frontier: Frontier) -> Html:
    sources = len(dict.fromkeys(point.source for point in frontier.points))
    facts = [f"{sources} runs and files", f"{len(frontier.points)} points", f"by {frontier.choice.by} reward"]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    title = Html(f'<div class="run"><h1>Frontier</h1>{said}</div>')
    first, *rest = frontier.choice.sentences()
    first = " ".join([first, *peak_sentences(frontier)])
    return join(
        [
            title,
            Html(f'<p class="headline">{escape(first)}</p>'),
            *(Html(f'<p class="aside">{escape(sentence)}</p>') for sentence in rest),
        ]
    )


def _drift(frontier: Frontier) -> Html:
    """Return a chart for each method and reward; those of one reward have one axis of rewards."""
    text = prose(
        "KL(policy ‖ start), nats per sequence, on an axis spaced by its root. Whiskers are 95 %; a hollow point lies",
        "under an alarm; the ring is what was chosen. The front is what can be had up to a KL: no other point is as",
        "good for as little, beyond noise.",
    )
    charts = []
    for strand in frontier.strands:
        alike = [point for one in frontier.strands if _same(one, strand) for point in one.points]
        charts.append(drift_chart(strand, heights_of(alike, strand.by), frontier.choice.chosen))
    warning = [prose(sentence) for sentence in caveats(frontier)[:1]] if len(frontier.methods) > 1 else []
    return join([text, *warning, columns(charts)])


def _same(one: Strand, other: Strand) -> bool:
    return (one.by, one.reward) == (other.by, other.reward)


def _against(frontier: Frontier) -> list[Section]:
    """Return gold over proxy for each method that has both."""
    charts = []
    for strand in frontier.strands:
        if strand.by == "proxy" and any(point.gold for point in strand.points):
            charts.append(against_chart(strand.method, strand.points, f"Proxy: {strand.reward}."))
    if not charts:
        return []
    text = prose(
        "Each line is a run in the order of its steps. Where it bends down, the proxy rises and gold falls: the reward",
        "is being exploited.",
    )
    return [Section("Gold against proxy", join([text, columns(charts)]))]


def _fits(frontier: Frontier) -> Html:
    rows = [(strand_title(strand), " ".join(strand_sentences(strand))) for strand in frontier.strands]
    caption = "Rewards are counted from the start as fitted; R in units of the reward, d in roots of nats."
    charts = [residual_chart(strand, strand.fit) for strand in frontier.strands if strand.fit]
    residuals = folded("Residuals of the fits", columns(charts)) if charts else Html()
    return join([table(["curve", "what it says"], rows, caption=caption), residuals])


def _points(frontier: Frontier) -> Html:
    on_front = {point for strand in frontier.strands if strand.by == frontier.choice.by for point in strand.front}
    rows = [_row(point, frontier, point in on_front) for point in frontier.points]
    caption = "Mean ± standard error over held-out prompts; KL in nats per sequence."
    return table(HEADERS, rows, caption=caption, numeric=("KL", "gold", "proxy"))


def _row(point: Point, frontier: Frontier, on_front: bool) -> Sequence[str]:
    choice = frontier.choice
    marks = [
        name
        for name, holds in (
            ("chosen", point == choice.chosen),
            ("runner-up", point == choice.runner_up),
            ("front", on_front),
        )
        if holds
    ]
    rewards = [number(None) if one is None else with_error(one.value, one.stderr) for one in (point.gold, point.proxy)]
    return [
        point.source.name,
        point.source.method,
        point.where,
        with_error(point.kl.value, point.kl.stderr),
        *rewards,
        "on disk" if point.checkpoint else number(None),
        ", ".join(point.alarms),
        ", ".join(marks),
    ]


def _method(frontier: Frontier) -> Html:
    estimators = dict.fromkeys((point.source.method, point.source.estimator) for point in frontier.points)
    rewards = dict.fromkeys((strand.by, strand.reward) for strand in frontier.strands)
    rows = [(f"KL of {method}", f"{estimator}; nats per sequence") for method, estimator in estimators]
    rows += [(f"{by} reward", reward) for by, reward in rewards]
    return join([table(["number", "what it is"], rows, caption="Sources of the numbers."), _notes(frontier)])


def _notes(frontier: Frontier) -> Html:
    return Html(f"<ul>{join(Html(f'<li>{escape(one)}</li>') for one in caveats(frontier))}</ul>")
