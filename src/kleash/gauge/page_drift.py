"""Parts of the page about the KL itself: its distribution, its scale, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kleash.gauge.records import Direction, Distribution, Estimate, Gauge
from kleash.report.charts import histogram
from kleash.report.intervals import Curve, Interval, interval_curves, interval_reach, interval_rows
from kleash.report.markup import Html, join
from kleash.report.page import columns, prose
from kleash.report.tables import table
from kleash.report.wording import number, percent, with_interval

NAMES = {"reverse": "KL(tuned ‖ reference)", "forward": "KL(reference ‖ tuned)"}
WRITERS = {"reverse": "tuned", "forward": "reference"}
SHOWN_TOKENS = 15


def directions(gauge: Gauge) -> list[Direction]:
    """Return the directions that were measured, reverse first."""
    return [one for one in (gauge.reverse, gauge.forward) if one is not None]


def said(estimate: Estimate) -> str:
    """Return an estimate with its interval."""
    return with_interval(estimate.value, estimate.low, estimate.high)


def percentage(share: float) -> str:
    """Return a share as a percentage in three digits."""
    return f"{number(100 * share)} %"


def how_far(gauge: Gauge) -> Html:
    """Return both distributions over replies, their quantiles, and the scale to read them on."""
    measured = directions(gauge)
    if not measured:
        return Html()
    charts = [
        histogram(
            f"{NAMES[one.name]}, {number(len(one.replies))} replies of the {WRITERS[one.name]} model",
            [reply.kl for reply in one.replies],
            unit="nats per sequence",
        )
        for one in measured
    ]
    text = prose(
        "The left is what the tuned model says and the reference would not.",
        "The right is what the reference says and the tuned model would not: what forgetting tracks.",
    )
    rows = [(NAMES[one.name], *quantiles(one.per_sequence), said(one.per_token)) for one in measured]
    quantile_table = table(
        ["direction", "mean", "median", "90 %", "95 %", "99 %", "99.9 %", "max", "per token"],
        rows,
        caption="Nats per sequence; the last column is nats per token, all replies together.",
        numeric={"mean", "median", "90 %", "95 %", "99 %", "99.9 %", "max", "per token"},
    )
    return join([text, columns(charts), spaced(quantile_table), _scale(gauge)])


def by_category(gauge: Gauge) -> Html:
    """Return the mean of each category of prompts."""
    return _rows(gauge, lambda one: one.by_category, "nats per sequence")


def by_class(gauge: Gauge) -> Html:
    """Return the mean of each class of tokens."""
    return _rows(gauge, lambda one: one.by_class, "nats per token")


def along_the_reply(gauge: Gauge) -> Html:
    """Return the KL per token over the position in the reply."""
    measured = [one for one in directions(gauge) if one.by_position]
    if not measured:
        return Html()
    highest = max(end for one in measured for _, bin in positions(one) for end in bin.ends)
    text = prose(
        "Nats per token at each place in the reply, over the replies that reach it.",
        "Drift at the start is in what the reply sets out to say; drift that grows is in how it goes on.",
    )
    charts = [
        interval_curves(
            NAMES[one.name],
            [Curve(NAMES[one.name], positions(one))],
            unit="nats per token",
            axis="token",
            include=(0.0, highest),
        )
        for one in measured
    ]
    return join([text, columns(charts)])


def positions(direction: Direction) -> list[tuple[float, Interval]]:
    """Return each bin of positions at its middle, counted from 1."""
    bins = zip(direction.position_edges, direction.position_edges[1:], direction.by_position, strict=False)
    return [
        (
            (first + 1 + end) / 2,
            interval(f"tokens {first + 1} to {end}" if end > first + 1 else f"token {end}", estimate),
        )
        for first, end, estimate in bins
    ]


def tokens(gauge: Gauge) -> Html:
    """Return the tokens that pay most of the KL."""
    headers = ["token", "kind", "times", "mean", "share"]
    tables = [
        table(
            headers,
            [
                (repr(one.token), one.token_class, number(one.count), number(one.mean_kl), percent(one.share))
                for one in direction.worst_tokens[:SHOWN_TOKENS]
            ],
            caption=f"{NAMES[direction.name]}: nats at each token, and its share of the whole.",
            numeric={"times", "mean", "share"},
        )
        for direction in directions(gauge)
        if direction.per_token.value > 0
    ]
    return columns(tables) if tables else Html()


def writing(gauge: Gauge) -> Html:
    """Return length, entropy and repetition of what both models write."""
    measured = directions(gauge)
    if not measured:
        return Html()
    lines: list[tuple[str, Callable[[Direction], str]]] = [
        ("length, tokens", lambda one: said(one.length)),
        ("its entropy, nats per token", lambda one: said(one.entropy)),
        ("the other model's entropy there", lambda one: said(one.other_entropy)),
        ("distinct pairs of tokens", lambda one: number(one.distinct_2)),
        ("repeated runs of four", lambda one: number(one.repeated_4gram)),
        ("cut at the length limit", lambda one: percent(one.cut_share)),
        ("cut while repeating themselves", lambda one: percent(one.loop_share)),
    ]
    headers = ["replies", *(f"of the {WRITERS[one.name]} model" for one in measured)]
    rows = [(name, *(say(one) for one in measured)) for name, say in lines]
    return table(
        headers, rows, caption="A reply that is cut has its KL up to the cut, not that of its end.", numeric=headers[1:]
    )


def quantiles(distribution: Distribution) -> list[str]:
    """Return mean with interval, median, 90, 95, 99, 99.9 % and maximum."""
    rest = ("median", "q90", "q95", "q99", "q999", "maximum")
    return [said(distribution.mean), *(number(getattr(distribution, name)) for name in rest)]


def spaced(piece: Html) -> Html:
    """Return a piece with air above it."""
    return Html(f'<div class="inside">{piece}</div>')


def interval(name: str, estimate: Estimate, unit: str = "tokens") -> Interval:
    """Return an estimate to draw."""
    note = f"{number(estimate.count)} {unit} from {number(estimate.prompts)} prompts"
    return Interval(name, estimate.value, estimate.low, estimate.high, note)


def _rows(gauge: Gauge, groups: Callable[[Direction], Mapping[str, Estimate]], unit: str) -> Html:
    """Return a chart a direction, on one horizontal axis and with the rows in one order."""
    measured = [one for one in directions(gauge) if groups(one)]
    if not measured:
        return Html()
    order = list(groups(measured[0])) + [name for one in measured[1:] for name in groups(one)]
    counted = "replies" if unit.endswith("sequence") else "tokens"
    rows = {
        one.name: [interval(name, groups(one)[name], counted) for name in dict.fromkeys(order) if name in groups(one)]
        for one in measured
    }
    reach = interval_reach([row for found in rows.values() for row in found])
    return columns([interval_rows(NAMES[name], found, unit=unit, reach=reach) for name, found in rows.items()])


def _scale(gauge: Gauge) -> Html:
    """Return how far rounding moves the reference, and how many times that the tuned model has moved."""
    if gauge.scale is None or gauge.reverse is None:
        return Html()
    moved = gauge.reverse.per_sequence.mean
    measured = {
        "bf16 rounding of the reference": gauge.scale.bf16_reverse,
        "4-bit rounding of the reference": gauge.scale.int4_reverse,
    }
    rows = [
        (name, said(found), number(moved.value / found.value) if found.value > 0 else number(None))
        for name, found in measured.items()
        if found is not None
    ]
    if not rows:
        return Html()
    headers = ["what", "nats per sequence", "the tuned model moved, times that"]
    caption = "A scale: how far the reference moves when its own weights are rounded, on the same prompts."
    return spaced(table(headers, rows, caption=caption, numeric=headers[1:]))
