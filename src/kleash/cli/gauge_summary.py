"""What `kleash gauge` prints: the verdict first, then the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kleash.gauge.naming import short_names
from kleash.gauge.records import Direction, Estimate, Gauge
from kleash.report.wording import number, percent, with_interval

NAMES = {"reverse": "tuned ‖ reference", "forward": "reference ‖ tuned"}
SHOWN_TOKENS = 6


def print_summary(console: Console, gauges: Sequence[Gauge]) -> None:
    """Print one gauge with its tables, or the verdicts of several and a table that compares them."""
    if len(gauges) == 1:
        _print_one(console, gauges[0])
    else:
        _print_several(console, gauges)
    console.print()


def kl_table(gauge: Gauge) -> Table | None:
    """Return both directions, and below them the drift of rounding alone as a scale."""
    measured = [one for one in (gauge.reverse, gauge.forward) if one is not None]
    if not measured:
        return None
    table = _table("KL in nats", "per sequence", "per token", "length")
    for one in measured:
        table.add_row(NAMES[one.name], said(one.per_sequence.mean), said(one.per_token), number(one.length.value))
    scale = {} if gauge.scale is None else {"bf16": gauge.scale.bf16_reverse, "4-bit": gauge.scale.int4_reverse}
    for name, found in scale.items():
        if found is not None:
            table.add_row(Text(f"{name} rounding", "dim"), Text(said(found), "dim"))
    return table


def category_table(gauge: Gauge) -> Table | None:
    """Return the KL per sequence of each category of prompts; None where there is one category alone."""
    leading = gauge.reverse or gauge.forward
    if leading is None or len(leading.by_category) < 2:
        return None
    table = _table("prompts", *(NAMES[one.name] for one in (gauge.reverse, gauge.forward) if one is not None))
    for category in leading.by_category:
        found = [one.by_category.get(category) for one in (gauge.reverse, gauge.forward) if one is not None]
        table.add_row(category, *(said(one) if one else number(None) for one in found))
    return table


def corpus_table(gauge: Gauge) -> Table | None:
    """Return both models on given text."""
    corpus = gauge.corpus
    if corpus is None:
        return None
    table = _table(f"{number(corpus.tokens)} tokens of given text", "value")
    for name, value in (
        ("tuned ‖ reference, nats per token", said(corpus.reverse_per_token.mean)),
        ("reference ‖ tuned, nats per token", said(corpus.forward_per_token.mean)),
        ("perplexity, reference", said(corpus.reference_perplexity)),
        ("perplexity, tuned", said(corpus.tuned_perplexity)),
        ("same most likely token", said(corpus.top1_agreement)),
        ("probability of the true token, change", said(corpus.probability_change.mean)),
    ):
        table.add_row(name, value)
    return table


def score_table(gauge: Gauge) -> Table | None:
    """Return the task scores of both models."""
    if not gauge.scores:
        return None
    table = _table("score", "reference", "tuned", "difference")
    for one in gauge.scores:
        table.add_row(one.name, said(one.reference), said(one.tuned), said(one.difference))
    return table


def worst_tokens(direction: Direction) -> Text:
    """Return the tokens that pay most of the KL, each with its share."""
    shown = direction.worst_tokens[:SHOWN_TOKENS]
    pieces = ", ".join(f"{one.token!r} {percent(one.share)}" for one in shown)
    return Text.assemble((f"most of {NAMES[direction.name]} is at  ", "dim"), pieces)


def comparison(gauges: Sequence[Gauge]) -> Table:
    """Return a row a model: both directions per sequence."""
    table = _table("KL in nats per sequence", *NAMES.values())
    for name, gauge in zip(short_names([gauge.tuned.name for gauge in gauges]), gauges, strict=True):
        found = [one and one.per_sequence.mean for one in (gauge.reverse, gauge.forward)]
        table.add_row(name, *(said(one) if one else number(None) for one in found))
    return table


def said(estimate: Estimate) -> str:
    """Return an estimate with its 95 % interval."""
    return with_interval(estimate.value, estimate.low, estimate.high)


def _print_one(console: Console, gauge: Gauge) -> None:
    console.print()
    console.print(Text(gauge.verdict, "bold"), soft_wrap=True)
    _print_notes(console, gauge.notes)
    for table in (kl_table(gauge), category_table(gauge), corpus_table(gauge), score_table(gauge)):
        if table is not None:
            console.print()
            console.print(table)
    if gauge.reverse is not None and gauge.reverse.per_token.value > 0:
        console.print()
        console.print(worst_tokens(gauge.reverse), soft_wrap=True)


def _print_several(console: Console, gauges: Sequence[Gauge]) -> None:
    for gauge in gauges:
        console.print()
        console.print(Text(gauge.tuned.name, "bold"), soft_wrap=True)
        console.print(gauge.verdict, soft_wrap=True)
    console.print()
    _print_notes(console, list(dict.fromkeys(note for gauge in gauges for note in gauge.notes)))
    console.print()
    console.print(comparison(gauges))


def _print_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes:
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(titles[0])
    for title in titles[1:]:
        table.add_column(title, justify="right")
    return table
