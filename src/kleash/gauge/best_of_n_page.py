"""The page of a best-of-n measurement: what choosing among n samples gains, what it costs, and what is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kleash.gauge.best_of_n import BestOfN, Choice, Example, Mean, Size
from kleash.gauge.naming import short_name
from kleash.gauge.page_replies import shared_frame, shown_prompt
from kleash.report.charts import Tone
from kleash.report.intervals import Curve, Interval, interval_curves
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, folded, page, prose
from kleash.report.tables import settings_table, table
from kleash.report.wording import number, percent, with_error

OPEN_EXAMPLES = 4
NORMAL_95 = 1.96
"""Standard errors in an arm of a 95 % interval."""
ASIDE = (
    "Every estimate is unbiased: the mean over all sets of n among the samples. ± is one standard error over prompts, "
    "and intervals are 95 %. The same samples serve every n, so that neighbouring points move together."
)


def render(found: BestOfN) -> str:
    """Return the page."""
    sections = [
        Section("What it gains", _gains(found)),
        Section("How often it wins, and what it costs", _odds_and_costs(found)),
        Section("Numbers", _numbers(found)),
        Section("What is chosen", _examples(found.examples)),
        Section("Settings", folded("Settings", settings_table(found.settings, caption="What the samples come from."))),
    ]
    return page(f"{short_name(found.model)} · best of n", _header(found), sections)


def headline(found: BestOfN) -> str:
    """Return the result in a sentence: the largest n against the smallest."""
    first, last = found.sizes[0], found.sizes[-1]
    least = "of a single sample" if first.n == 1 else f"of the best of {first.n}"
    before = "" if first.n == last.n else f", up from {_said(first.proxy)} {least}"
    return (
        f"Best of {last.n}: reward {_said(last.proxy)}{before}, for at most {number(last.kl_bound)} nats per sequence."
    )


def notes(found: BestOfN) -> list[str]:
    """Return what a reader must know before comparing the numbers."""
    said = []
    if found.tied_share > 0:
        said.append(
            f"{percent(found.tied_share)} of the samples share their reward with another of the same prompt; where "
            "draws tie, the KL is below the bound"
        )
    if found.unscored:
        said.append(f"{number(found.unscored)} samples got no score and are left out")
    fewest = min(size.proxy_win_rate.prompts for size in found.sizes)
    if fewest < found.prompts:
        said.append(f"{number(found.prompts - fewest)} prompts have too few scored samples for the largest n")
    if found.sizes[0].proxy.stderr is None:
        said.append("one prompt has no standard error")
    return said


def numbers(found: BestOfN) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the table of all sizes."""
    with_gold = found.sizes[0].gold is not None
    gold_titles = ["gold", "gold win rate"] if with_gold else []
    rows = []
    for size in found.sizes:
        gold = [_said(size.gold), _said(size.gold_win_rate)] if with_gold else []
        row = [_said(size.proxy), _said(size.proxy_win_rate), *gold, number(size.kl_bound), _said(size.kl)]
        rows.append([str(size.n), *row])
    return ["n", "reward", "win rate", *gold_titles, "KL at most", "KL with sampled ties"], rows


def _header(found: BestOfN) -> Html:
    facts = [f"{number(found.prompts)} prompts", f"{number(found.samples)} samples of each"]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    title = Html(f'<div class="run"><h1>Best of n: {escape(short_name(found.model))}</h1>{said}</div>')
    sentences = " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes(found))
    asides = join(Html(f'<p class="aside">{escape(text)}</p>') for text in (ASIDE, sentences) if text)
    return join([title, Html(f'<p class="headline">{escape(headline(found))}</p>'), asides])


def _gains(found: BestOfN) -> Html:
    """Return rewards against n and against the root of the KL bound."""
    text = prose(
        "The reward of the chosen sample, by which it is chosen (the proxy), and where there is one, its gold reward.",
        "If gold bends down while the reward rises, the choice exploits the reward.",
    )
    scores: list[tuple[str, Tone, Callable[[Size], Mean | None]]] = [
        ("Reward", "reward", lambda size: size.proxy),
        ("Gold reward", "drift", lambda size: size.gold),
    ]
    charts = []
    for name, tone, of in scores:
        by_n, by_root = _curve(found, name, tone, of, _by_n), _curve(found, name, tone, of, _by_root)
        if by_n.points:
            charts.append(_chart(f"{name} of the best of n", by_n, "n"))
            charts.append(_chart(f"{name} over √(KL bound)", by_root, "√nats"))
    return join([text, columns(charts)])


def _odds_and_costs(found: BestOfN) -> Html:
    """Return win rates beside the KL."""
    text = prose(
        "A win is a chosen sample above one fresh sample of the same prompt; a tie counts half.",
        "The KL is at most log n − (n − 1)/n, reached where draws never tie. The other line puts sampled rewards in",
        "place of the base's own: those that several samples of a prompt share count as levels, the others as",
        "continuous. It is a plug-in estimate, not an unbiased one.",
    )
    return join([text, columns([_win_rates(found), _kl(found)])])


def _kl(found: BestOfN) -> Html:
    bound = [(float(size.n), Interval(f"n = {size.n}", size.kl_bound, math.nan, math.nan)) for size in found.sizes]
    curves = [
        Curve("at most", bound, "quiet"),
        _curve(found, "with sampled ties", "drift", lambda size: size.kl, _by_n),
    ]
    return interval_curves("KL(best-of-n ‖ base)", curves, unit="nats per sequence", axis="n")


def _win_rates(found: BestOfN) -> Html:
    """Return win rates under n / (n + 1), which no choice exceeds by its own reward."""
    ceiling = [
        (float(size.n), Interval(f"n = {size.n}", size.n / (size.n + 1), math.nan, math.nan)) for size in found.sizes
    ]
    curves = [
        Curve("at most", ceiling, "quiet"),
        _curve(found, "by reward", "reward", lambda size: size.proxy_win_rate, _by_n),
        _curve(found, "by gold", "drift", lambda size: size.gold_win_rate, _by_n),
    ]
    return interval_curves(
        "Win rate against one sample",
        [curve for curve in curves if curve.points],
        unit="share",
        axis="n",
        include=(0.0, 1.0),
    )


def _numbers(found: BestOfN) -> Html:
    headers, rows = numbers(found)
    caption = "Value ± standard error over prompts; KL in nats per sequence; win rates against one fresh sample."
    return table(headers, rows, caption=caption, numeric=headers)


def _examples(examples: Sequence[Example]) -> Html:
    """Return the first prompts with what each n chooses."""
    frame = shared_frame(example.prompt for example in examples)
    text = prose(
        "The first prompts in their order, none picked. At each n: the best among the first n samples drawn; an n that",
        "chooses what the one before it chose is not repeated.",
    )
    drawn = [_example(example, shown_prompt(example.prompt, frame)) for example in examples]
    rest = drawn[OPEN_EXAMPLES:]
    more = folded(f"{len(rest)} more prompts", join(rest)) if rest else Html()
    return join([text, *drawn[:OPEN_EXAMPLES], more])


def _example(example: Example, prompt: str) -> Html:
    previous: list[Choice | None] = [None, *example.choices]
    shown = [
        _choice(one)
        for one, before in zip(example.choices, previous, strict=False)
        if before is None or (one.completion, one.proxy) != (before.completion, before.proxy)
    ]
    return Html(f'<article class="pair"><p class="prompt">{escape(prompt)}</p>{columns(shown)}</article>')


def _choice(choice: Choice) -> Html:
    facts = [f"reward {number(choice.proxy)}"]
    facts += [f"gold {number(choice.gold)}"] if choice.gold is not None else []
    said = join(Html(f"<span>{escape(fact)}</span>") for fact in facts)
    text = escape(choice.completion) if choice.completion else Html("(nothing)")
    return Html(f'<div class="side"><h4><b>Best of {choice.n}</b>{said}</h4><p class="heat">{text}</p></div>')


def _chart(title: str, curve: Curve, axis: str) -> Html:
    lowest = min(one.ends[0] for _, one in curve.points)
    highest = max(one.ends[1] for _, one in curve.points)
    near = (0.0,) if lowest <= 0 <= highest else ()
    return interval_curves(title, [curve], unit="reward", axis=axis, include=near)


def _curve(
    found: BestOfN, label: str, tone: Tone, of: Callable[[Size], Mean | None], where: Callable[[Size], float]
) -> Curve:
    """Return one number of every size as a line; without points where it was not measured."""
    means = [(size, of(size)) for size in found.sizes]
    return Curve(label, [(where(size), _interval(size, mean)) for size, mean in means if mean is not None], tone)


def _by_n(size: Size) -> float:
    return float(size.n)


def _by_root(size: Size) -> float:
    return math.sqrt(size.kl_bound)


def _interval(size: Size, mean: Mean) -> Interval:
    arm = math.nan if mean.stderr is None else NORMAL_95 * mean.stderr
    note = f"KL at most {number(size.kl_bound)} nats, {number(mean.prompts)} prompts"
    return Interval(f"n = {size.n}", mean.value, mean.value - arm, mean.value + arm, note)


def _said(mean: Mean | None) -> str:
    return number(None) if mean is None else with_error(mean.value, mean.stderr)
