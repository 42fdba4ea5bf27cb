"""The page of a plan, and its words: what each beta would reach, what that costs, and what it would favour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from kleash.gauge.forecast import Favoured, Forecast
from kleash.gauge.naming import short_name
from kleash.gauge.page_replies import shared_frame, shown_prompt
from kleash.gauge.records import Estimate
from kleash.gauge.tilting import Prediction
from kleash.report.charts import Tone
from kleash.report.intervals import Curve, Interval, interval_curves
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, folded, page, prose
from kleash.report.tables import settings_table, table
from kleash.report.wording import number, with_interval

NOT_CLAIMED = "not claimed"
WHAT_IT_IS = (
    "This is the optimum for the given reward and a model that can write anything. A trained run lies below it: less "
    "reward for its KL.",
    "A hole in the reward that no sample of the reference shows cannot be predicted.",
)
HOW = (
    "Samples of the reference, each weighted by exp(reward / beta) within its prompt. Intervals are 95 % over prompts "
    "and grow where few samples carry the weight. The same samples serve every beta, so that neighbouring rows move "
    "together."
)

MARGIN = 0.04
"""Share of a chart's width to the left of KL 0."""

Column = tuple[str, Callable[[Prediction], Estimate | None]]


def render(found: Forecast) -> str:
    """Return the page."""
    sections = [
        Section("Reward against KL", _charts(found)),
        Section("Numbers", _numbers(found)),
        Section("What each beta would favour", _favoured(found)),
        Section("Settings", folded("Settings", settings_table(found.settings, caption="What the samples come from."))),
    ]
    return page(f"{short_name(found.model)} · plan", _header(found), sections)


def headline(found: Forecast) -> str:
    """Return the suggestion in a sentence."""
    said = found.suggestion.reason
    return said if found.suggestion.beta is None else f"Start with {said}"


def paste(found: Forecast) -> list[str]:
    """Return the lines for run.toml; none without a suggestion."""
    beta, kl = found.suggestion.beta, found.suggestion.kl
    if beta is None or kl is None:
        return []
    return ["[algorithm.kl]", f"beta = {beta:g}  # or, to hold the KL itself: target_nats_per_sequence = {kl:.3g}"]


def notes(found: Forecast) -> list[str]:
    """Return what a reader must know before using the numbers, and why what is missing is."""
    said = list(found.notes)
    if found.unscored:
        said.append(f"{number(found.unscored)} samples got no score and are left out")
    if found.left_out:
        said.append(f"{number(found.left_out)} prompts have too few scored samples and are left out")
    silent = [point for point in found.points if point.predicted is None]
    said += [f"nothing is claimed at beta {point.beta:g}: {point.reason}" for point in silent]
    if silent:
        said.append("more samples of each prompt reach further; more prompts make intervals shorter")
    return said


def numbers(found: Forecast) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the short table: KL in nats per sequence and per token."""
    chosen: list[Column] = [
        ("KL", lambda one: one.kl),
        ("KL per token", lambda one: one.kl_per_token),
        ("reward", lambda one: one.reward),
    ]
    gold: list[Column] = [("gold", lambda one: one.gold)] if found.start.gold else []
    return _rows(found, [*chosen, *gold])


def _all_numbers(found: Forecast) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the long table."""
    with_gold = found.start.gold is not None
    chosen: list[Column] = [
        ("KL", lambda one: one.kl),
        ("KL per token", lambda one: one.kl_per_token),
        ("reward", lambda one: one.reward),
        *([("gold", lambda one: one.gold)] if with_gold else []),
        ("length", lambda one: one.length),
        *([("gold per nat", lambda one: one.gold_per_nat)] if with_gold else []),
    ]
    return _rows(found, chosen)


def _rows(found: Forecast, chosen: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for point in found.points:
        told = point.predicted
        values = [NOT_CLAIMED, *["–"] * (len(chosen) - 1)] if told is None else [_said(of(told)) for _, of in chosen]
        law = number(point.small_kl)
        rows.append([f"{point.beta:g}", *values, law, number(round(point.effective_size))])
    return ["beta", *(title for title, _ in chosen), "small-KL law", "effective samples"], rows


def _header(found: Forecast) -> Html:
    facts = [f"{number(found.prompts)} prompts", f"{number(found.samples)} samples of each"]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    title = Html(f'<div class="run"><h1>Plan: {escape(short_name(found.model))}</h1>{said}</div>')
    lines = escape("\n".join(paste(found)))
    pasted = Html(f'<pre class="aside"><code>{lines}</code></pre>') if lines else Html()
    sentences = " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes(found))
    texts = (" ".join(WHAT_IT_IS), HOW, sentences)
    asides = join(Html(f'<p class="aside">{escape(text)}</p>') for text in texts if text)
    return join([title, Html(f'<p class="headline">{escape(headline(found))}</p>'), pasted, asides])


def _charts(found: Forecast) -> Html:
    """Return reward, gold and length over the KL that reaches them."""
    text = prose(
        "Each point is a beta; the first is the reference itself. If gold bends down while the reward rises, the",
        "reward is being exploited. If length moves with the reward, see whether the reward pays for length.",
    )
    drawn: list[tuple[str, str, Tone, Estimate | None, Callable[[Prediction], Estimate | None]]] = [
        ("Reward", "reward", "reward", found.start.reward, lambda one: one.reward),
        ("Gold reward", "reward", "drift", found.start.gold, lambda one: one.gold),
        ("Length", "tokens", "quiet", found.start.length, lambda one: one.length),
    ]
    charts = [
        _chart(f"{name} over KL", unit, Curve(name, _points(found, start, of), tone))
        for name, unit, tone, start, of in drawn
        if start is not None
    ]
    return join([text, columns(charts)])


def _points(
    found: Forecast, start: Estimate, of: Callable[[Prediction], Estimate | None]
) -> list[tuple[float, Interval]]:
    points = [(0.0, _interval("reference", start, "KL 0"))]
    for point in found.points:
        value = of(point.predicted) if point.predicted else None
        if point.predicted and value:
            kl = point.predicted.kl
            points.append((kl.value, _interval(f"beta {point.beta:g}", value, f"KL {_said(kl)} nats per sequence")))
    return points


def _chart(title: str, unit: str, curve: Curve) -> Html:
    lowest = min(one.ends[0] for _, one in curve.points)
    highest = max(one.ends[1] for _, one in curve.points)
    near = (0.0,) if lowest <= 0 <= highest else ()
    longest = max(x for x, _ in curve.points) or 1.0
    across = (-MARGIN * longest, longest)
    return interval_curves(title, [curve], unit=unit, axis="nats", across=across, include=near)


def _numbers(found: Forecast) -> Html:
    headers, rows = _all_numbers(found)
    start = found.start
    facts = [f"reward {_said(start.reward)}", f"length {_said(start.length)} tokens"]
    facts += [f"gold {_said(start.gold)}"] if start.gold else []
    text = prose(
        f"The reference has {', '.join(facts)}. One more nat of KL gains beta of the reward that is optimised; gold",
        "per nat is what it gains of gold. The small-KL law, Var(reward) / (2 beta²), is there to hold the KL against",
        "while it is well below 1.",
    )
    caption = "KL in nats per sequence and per token, length in tokens; 95 % intervals over prompts."
    return join([text, table(headers, rows, caption=caption, numeric=headers)])


def _favoured(found: Forecast) -> Html:
    """Return what each beta would write more often, the longest leash first: there hacking shows."""
    text = prose(
        "The samples whose weight grows most, at most one of a prompt, the smallest beta first. Read them as the first",
        "look at how the reward will be hacked: this is what training makes likely. Times: how many times as likely as",
        "under the reference, no more than the samples of a prompt. They are shown where no number is claimed, too.",
    )
    frame = shared_frame(sample.prompt for sample in found.favoured)
    groups = [(beta, list(samples)) for beta, samples in groupby(found.favoured, key=lambda sample: sample.beta)]
    drawn = [_group(beta, samples, frame) for beta, samples in reversed(groups)]
    more = folded("Larger betas", join(drawn[2:])) if drawn[2:] else Html()
    return join([text, *drawn[:2], more])


def _group(beta: float, samples: Sequence[Favoured], frame: tuple[int, int]) -> Html:
    shown = columns([_sample(sample, shown_prompt(sample.prompt, frame)) for sample in samples])
    return Html(f'<article class="pair"><p class="prompt">beta {beta:g}</p>{shown}</article>')


def _sample(sample: Favoured, prompt: str) -> Html:
    facts = [f"reward {number(sample.reward)}"]
    facts += [f"gold {number(sample.gold)}"] if sample.gold is not None else []
    said = join(Html(f"<span>{escape(fact)}</span>") for fact in facts)
    text = escape(sample.completion) if sample.completion else Html("(nothing)")
    return Html(
        f'<div class="side"><h4><b>{number(sample.factor)} times</b>{said}</h4>'
        f'<p class="heat"><i>{escape(prompt)}</i>{text}</p></div>'
    )


def _interval(name: str, estimate: Estimate, note: str) -> Interval:
    return Interval(name, estimate.value, estimate.low, estimate.high, note)


def _said(estimate: Estimate | None) -> str:
    if estimate is None or math.isnan(estimate.value):
        return number(None)
    return with_interval(estimate.value, estimate.low, estimate.high)
