"""Parts of the page beside the KL of replies: given text, scores, and several models in one picture."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.gauge.naming import checkpoint_steps
from kleash.gauge.page_drift import NAMES, directions, interval, percentage, quantiles, said, spaced
from kleash.gauge.records import Direction, Distribution, Gauge
from kleash.report.charts import Tone
from kleash.report.intervals import Curve, Interval, interval_curves, interval_reach, interval_rows
from kleash.report.markup import Html, join
from kleash.report.page import columns, prose
from kleash.report.tables import table
from kleash.report.wording import number

QUANTILES = ["mean", "median", "90 %", "95 %", "99 %", "99.9 %", "max"]


def corpus(gauge: Gauge) -> Html:
    """Return both models on text that neither wrote."""
    found = gauge.corpus
    if found is None:
        return Html()
    text = prose(
        f"{number(found.tokens)} tokens of {number(found.texts)} given texts, read by both models.",
        "Neither wrote them, so this is no KL of either model's replies: it says what became of the",
        "predictions on this text.",
    )
    share = found.top1_agreement
    rows = [
        ("perplexity of the reference", said(found.reference_perplexity)),
        ("perplexity of the tuned model", said(found.tuned_perplexity)),
        (
            "tokens where both prefer the same next token",
            "{} [{}, {}]".format(*(percentage(one) for one in (share.value, share.low, share.high))),
        ),
    ]
    summary = table(["both models", "value"], rows, caption="With 95 % intervals over texts.", numeric={"value"})
    distributions: list[tuple[str, Distribution]] = [
        ("KL(tuned ‖ reference), nats per token", found.reverse_per_token),
        ("KL(reference ‖ tuned), nats per token", found.forward_per_token),
        ("probability of the true token, tuned − reference", found.probability_change),
    ]
    spread = table(
        ["at each token", *QUANTILES],
        [(name, *quantiles(one)) for name, one in distributions],
        caption="Over all tokens of the text.",
        numeric=QUANTILES,
    )
    return join([text, summary, spaced(spread)])


def scores(gauge: Gauge) -> Html:
    """Return the task scores of both models beside each other."""
    if not gauge.scores:
        return Html()
    headers = ["score", "reference", "tuned", "difference"]
    rows = [(one.name, said(one.reference), said(one.tuned), said(one.difference)) for one in gauge.scores]
    caption = "A difference whose interval holds 0 is no difference that these prompts can show."
    return table(headers, rows, caption=caption, numeric=headers[1:])


def curve(gauges: Sequence[Gauge], names: Sequence[str]) -> Html:
    """Return several models compared: over the steps of their run where all are its checkpoints, else as rows."""
    steps = checkpoint_steps([gauge.tuned.name for gauge in gauges])
    pictures = _curves(gauges, steps) if steps else _rows(gauges, names)
    headers = ["model", NAMES["reverse"], NAMES["forward"], "reverse, per token", "tuned length"]
    rows = [
        (name, *_both(gauge), said(gauge.reverse.per_token), said(gauge.reverse.length))
        if gauge.reverse
        else (name, *_both(gauge), number(None), number(None))
        for name, gauge in zip(names, gauges, strict=True)
    ]
    caption = "Nats per sequence with 95 % intervals; length in tokens."
    return join([pictures, spaced(table(headers, rows, caption=caption, numeric=headers[1:]))])


def _curves(gauges: Sequence[Gauge], steps: Sequence[int]) -> Html:
    ordered = sorted(zip(steps, gauges, strict=True), key=lambda pair: pair[0])
    tones: list[tuple[str, Tone]] = [("reverse", "drift"), ("forward", "quiet")]
    both = [
        Curve(NAMES[name], [(step, _mean(one, f"step {step}")) for step, one in _of(ordered, name)], tone)
        for name, tone in tones
    ]
    per_token = [
        Curve(NAMES[name], [(step, interval(f"step {step}", one.per_token)) for step, one in _of(ordered, name)], tone)
        for name, tone in tones
    ]
    return columns(
        [
            interval_curves("Per sequence", _some(both), unit="nats per sequence", axis="step"),
            interval_curves("Per token", _some(per_token), unit="nats per token", axis="step"),
        ]
    )


def _rows(gauges: Sequence[Gauge], names: Sequence[str]) -> Html:
    found = {
        direction: [
            _mean(one, name)
            for name, gauge in zip(names, gauges, strict=True)
            for one in directions(gauge)
            if one.name == direction
        ]
        for direction in NAMES
    }
    drawn = {direction: rows for direction, rows in found.items() if rows}
    reach = interval_reach([row for rows in drawn.values() for row in rows])
    return columns(
        [
            interval_rows(NAMES[direction], rows, unit="nats per sequence", reach=reach)
            for direction, rows in drawn.items()
        ]
    )


def _of(ordered: Sequence[tuple[int, Gauge]], name: str) -> list[tuple[int, Direction]]:
    return [(step, one) for step, gauge in ordered for one in directions(gauge) if one.name == name]


def _some(curves: Sequence[Curve]) -> list[Curve]:
    return [one for one in curves if one.points]


def _mean(direction: Direction, name: str) -> Interval:
    return interval(name, direction.per_sequence.mean, "replies")


def _both(gauge: Gauge) -> list[str]:
    return [said(one.per_sequence.mean) if one else number(None) for one in (gauge.reverse, gauge.forward)]
