"""What the measured paths say: expectations, tables and the picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from kleash.report.wording import number, with_interval
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, Mark, Panel, Point, svg
from recipes.evidence.recipe import Expectation, Measured, Section

FREE, PRICED, BEST_OF_N, PEOPLE = "beta 0", "beta 0.05", "best-of-n", "people"
"""What a path is of; the last is the first, measured by the second gold."""
CHOSEN_OF = 16
"""The n that is compared with RL at the same KL."""
CERTAIN = 2.0
"""Standard errors from 0 at which a difference counts."""
GOOD_FIT = 0.05
"""p value of chi squared from which a form is not refuted."""

Json = dict[str, Any]


def section(measured: Measured) -> Section:
    """Say which of the published findings came out."""
    return Section(
        expectations=[*turning(measured), *_order(measured), *comparing(measured["differences"]), *forms(measured)],
        parts=[
            "Held-out openers, the three seeds of a size pooled by `kleash.frontier`; intervals are 95 %. A proxy's "
            "accuracy is that on comparisons without noise; the second gold's, on people's held-out votes, is "
            f"{number(measured['accuracy_of_people'])}. Proxies and the second gold are counted from the start, in sd "
            "of single samples there.",
            _table(measured),
            "What Gao's forms say of gold, with the same intervals:",
            _fits(measured),
            "The first held-out opener of the first seed, without a penalty, as continued at the start, where gold was "
            "best, and after the last step:",
            _texts(measured["texts"]),
        ],
        picture=_picture(measured),
        caption="Gold, proxy and a second gold over the root of KL, for RL and best-of-n; a line for each seed",
    )


def turning(measured: Measured) -> list[Expectation]:
    """Does gold turn over, by the curve without a form, and does the proxy go on?"""
    found = [
        Expectation(
            f"RL without a penalty, {count} comparisons: gold turns over",
            "its end below its best",
            _turned(strand(measured, FREE, count, "gold")["smooth"]),
            strand(measured, FREE, count, "gold")["smooth"]["turns_over"],
        )
        for count in _counts(measured)
    ]
    rises = [proxy_after_peak(path["points"]) for path in measured["paths"] if path["of"] == FREE]
    fewest = _counts(measured)[0]
    people = strand(measured, PEOPLE, fewest, "gold")["smooth"]
    return [
        *found,
        Expectation("from gold's best to the end the proxy rises, sd", "above 0", over_seeds(rises), is_above(rises)),
        Expectation(
            f"the second gold, of people's votes, turns over as well with {fewest} comparisons",
            "its end below its best",
            _turned(people),
            people["turns_over"],
        ),
    ]


def proxy_after_peak(points: Sequence[Json]) -> float:
    """Return how much the proxy rises from where gold was best to the last step."""
    best = max(points, key=lambda point: point["gold"])
    return float(points[-1]["proxy"] - best["proxy"])


def _order(measured: Measured) -> list[Expectation]:
    """Do more comparisons give a higher and a later peak?"""
    counts = _counts(measured)
    best = [_best(measured, count) for count in counts]
    places = [strand(measured, FREE, count, "gold")["smooth"]["best_kl"] for count in counts]
    order = " < ".join(map(str, counts))
    return [
        Expectation(
            "more comparisons give more gold at its best",
            order,
            "; ".join(map(over_seeds, best)),
            rising(list(map(fmean, best))),
        ),
        Expectation("and a later peak, nats per sequence", order, "; ".join(map(number, places)), rising(places)),
    ]


def comparing(differences: Sequence[Json]) -> list[Expectation]:
    """Compare RL with best-of-n, and RL with and without a penalty, at one KL; one number a size and seed."""
    chosen, gold, proxy = (
        [one[name] for one in differences] for name in ("gold_of_best_of_n", "gold_of_penalty", "proxy_of_penalty")
    )
    return [
        Expectation(
            f"best of {CHOSEN_OF} has more gold than RL at its KL", "above 0", over_seeds(chosen), is_above(chosen)
        ),
        Expectation("at one KL, a penalty buys more proxy, sd", "above 0", over_seeds(proxy), is_above(proxy)),
        Expectation("but no gold", "0 within two standard errors", over_seeds(gold), is_nothing(gold)),
    ]


def forms(measured: Measured) -> list[Expectation]:
    """Do the published forms describe gold?"""
    found = []
    for of, name, form in ((FREE, "RL", "d (α − β log d)"), (BEST_OF_N, "best-of-n", "d (α − β d)")):
        values = [strand(measured, of, count, "gold")["fit"]["p_value"] for count in _counts(measured)]
        said = ", ".join(f"{value:.2g}" for value in values)
        held = min(values) > GOOD_FIT
        found.append(Expectation(f"gold of {name} follows {form}", f"p above {GOOD_FIT} for every size", said, held))
    return found


def is_above(values: Sequence[float]) -> bool:
    """Return whether a mean is above 0 by more than `CERTAIN` standard errors."""
    return fmean(values) > CERTAIN * (standard_error(values) or 0.0)


def is_nothing(values: Sequence[float]) -> bool:
    """Return whether a mean is within `CERTAIN` standard errors of 0."""
    return abs(fmean(values)) <= CERTAIN * (standard_error(values) or 0.0)


def rising(values: Sequence[float]) -> bool:
    """Return whether each value is larger than the one before."""
    return all(low < high for low, high in pairwise(values))


def strand(measured: Measured, of: str, count: int, by: str) -> Json:
    """Return what the frontier says of paths, a size and a reward."""
    return next(one for one in measured["strands"] if (one["of"], one["count"], one["by"]) == (of, count, by))


def _counts(measured: Measured) -> list[int]:
    return sorted({path["count"] for path in measured["paths"]})


def _paths(measured: Measured, of: str, count: int) -> list[list[Json]]:
    return [path["points"] for path in measured["paths"] if (path["of"], path["count"]) == (of, count)]


def _best(measured: Measured, count: int) -> list[float]:
    """Gold of each seed where it was best; the best of many leans up, alike for every size."""
    return [max(point["gold"] for point in points) for points in _paths(measured, FREE, count)]


def _turned(smooth: Json) -> str:
    low, high = smooth["peak_kl"]["low"], smooth["peak_kl"]["high"]
    if not smooth["turns_over"]:
        return f"not seen to: best at {number(low)} nats or more"
    return f"best between {number(low)} and {number(high)} nats"


ROWS = {
    "accuracy of the proxy": lambda measured, count: over_seeds(
        [one["value"] for one in measured["accuracy"] if one["count"] == count]
    ),
    "gold at the start": lambda measured, count: _seeds(measured, FREE, count, "gold", 0),
    "RL, gold at its best": lambda measured, count: over_seeds(_best(measured, count)),
    "RL, gold after the last step": lambda measured, count: _seeds(measured, FREE, count, "gold", -1),
    "RL, KL after the last step": lambda measured, count: _seeds(measured, FREE, count, "kl", -1),
    "RL, proxy after the last step, sd": lambda measured, count: _seeds(measured, FREE, count, "proxy", -1),
    "RL at beta 0.05, gold after the last step": lambda measured, count: _seeds(measured, PRICED, count, "gold", -1),
    "RL at beta 0.05, KL after the last step": lambda measured, count: _seeds(measured, PRICED, count, "kl", -1),
    "RL at beta 0.05, proxy after the last step, sd": lambda measured, count: _seeds(
        measured, PRICED, count, "proxy", -1
    ),
    "best of 32, gold": lambda measured, count: _seeds(measured, BEST_OF_N, count, "gold", -1),
    "best of 32, KL": lambda measured, count: _seeds(measured, BEST_OF_N, count, "kl", -1),
    "best of 32, proxy, sd": lambda measured, count: _seeds(measured, BEST_OF_N, count, "proxy", -1),
    "second gold after the last step, sd": lambda measured, count: _seeds(measured, PEOPLE, count, "gold", -1),
}


def _seeds(measured: Measured, of: str, count: int, key: str, place: int) -> str:
    return over_seeds([points[place][key] for points in _paths(measured, of, count)])


def _table(measured: Measured) -> str:
    counts = _counts(measured)
    rows = [(name, *(cell(measured, count) for count in counts)) for name, cell in ROWS.items()]
    return table(("", *(f"{count} comparisons" for count in counts)), rows)


def _fits(measured: Measured) -> str:
    rows = []
    for of in (FREE, PRICED, BEST_OF_N):
        for count in _counts(measured):
            found = strand(measured, of, count, "gold")
            fit = found["fit"]
            numbers = [_interval(fit[key]) for key in ("alpha", "beta")]
            p = f"{fit['p_value']:.2g}"
            rows.append((of, str(count), *numbers, _place(fit["peak_kl"]), p, _turned(found["smooth"])))
    return table(("", "comparisons", "α", "β", "peak, nats per sequence", "p", "without a form"), rows)


def _interval(found: Json) -> str:
    return with_interval(found["value"], found["low"], found["high"])


def _place(found: Json) -> str:
    """Return where a form peaks; an end at infinity is None."""
    if found["low"] is None:
        return "none"
    if found["value"] is None or found["high"] is None:
        return f"{number(found['low'])} or more"
    return _interval(found)


def _texts(texts: Sequence[Json]) -> str:
    first = texts[0]["seed"]
    quotes = []
    for count in dict.fromkeys(one["count"] for one in texts):
        lines = [
            f"*step {one['step']}, {number(one['kl'])} nats:* {_plain(one['text'])}"
            for one in texts
            if (one["count"], one["seed"]) == (count, first)
        ]
        quotes.append("> " + "<br>\n> ".join([f"**{count} comparisons**", *lines]))
    return "\n\n".join(quotes)


def _plain(text: str) -> str:
    """Return a text as Markdown shows it: one line, no markup."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_<>[]|#" else letter for letter in text)
    return " ".join(escaped.split())


D = "d, √nats"


def _picture(measured: Measured) -> str:
    gold = [point["gold"] for path in measured["paths"] if path["of"] != PEOPLE for point in path["points"]]
    proxy = [point["proxy"] for path in measured["paths"] for point in path["points"]]
    panels = [
        _panel(measured, FREE, "gold", "RL, no penalty: gold", "VADER", gold),
        _panel(measured, FREE, "proxy", "RL, no penalty: proxy", "sd at the start", proxy),
        _panel(measured, PRICED, "gold", "RL, beta 0.05: gold", "VADER", gold),
        _panel(measured, PRICED, "proxy", "RL, beta 0.05: proxy", "sd at the start", proxy),
        _panel(measured, BEST_OF_N, "gold", "Best-of-n, n to 32: gold", "VADER", gold),
        _panel(measured, BEST_OF_N, "proxy", "Best-of-n, n to 32: proxy", "sd at the start", proxy),
        _panel(measured, PEOPLE, "gold", "RL, no penalty: people's votes", "sd at the start", ()),
        Panel("Gain in gold: RL and, dashed, best-of-n, seeds pooled", D, "VADER", _gains(measured)),
    ]
    legend = [(f"{count} comparisons", color) for count, color in _colors(measured).items()]
    return svg("Gold and proxy over drift, a line for each seed", legend, panels)


def _panel(measured: Measured, of: str, key: str, title: str, unit: str, include: Sequence[float]) -> Panel:
    marks = [
        Mark(_drawn(points, key), color)
        for count, color in _colors(measured).items()
        for points in _paths(measured, of, count)
    ]
    return Panel(title, D, unit, marks, [min(include), max(include)] if include else ())


def _gains(measured: Measured) -> list[Mark]:
    """Return the curves without a form, as far as best-of-n goes."""
    marks = []
    for count, color in _colors(measured).items():
        learned, chosen = (strand(measured, of, count, "gold")["smooth"] for of in (FREE, BEST_OF_N))
        reach = chosen["kl"][-1]
        for smooth, kind in ((learned, "line"), (chosen, "dashed")):
            places = [
                (math.sqrt(kl), reward - smooth["reward"][0])
                for kl, reward in zip(smooth["kl"], smooth["reward"], strict=True)
                if kl <= reach
            ]
            marks.append(Mark(places, color, kind))
    return marks


def _drawn(points: Sequence[Json], key: str) -> list[Point]:
    """Return a path by rising KL."""
    return sorted((math.sqrt(max(0.0, point["kl"])), point[key]) for point in points)


def _colors(measured: Measured) -> dict[int, str]:
    return dict(zip(_counts(measured), COLORS, strict=False))
