"""The page of a sweep: which value to take, the values side by side, and the way to every run."""

from __future__ import annotations

import math
from pathlib import Path

from scipy import stats

from kleash.frontier.points import NORMAL_95, Mean
from kleash.report.charts import Tone
from kleash.report.intervals import Interval, interval_rows
from kleash.report.markup import Html, escape, join
from kleash.report.page import Section, columns, page, prose
from kleash.report.tables import table
from kleash.report.wording import number, with_error
from kleash.runs.schema import REPORT
from kleash.sweep.recommend import Recommendation, Value

UNIT = "nats per sequence"


def render(found: Recommendation, name: str, frontier: str) -> str:
    """Return the page.

    Args:
        found: what the sweep has found.
        name: of the sweep.
        frontier: the address of the frontier page, from this one.
    """
    sections = [
        Section("Values", _values(found)),
        Section("Runs", _runs(found)),
        Section("Reward over drift", _frontier(frontier)),
    ]
    return page(f"{name} · Kleash sweep", _header(found, name), sections)


def numbers(found: Recommendation) -> tuple[list[str], list[list[str]]]:
    """Return titles and a row for each value, the best first; means over seeds where there are several."""
    titles = ["value", f"held-out {found.by}", "spread over seeds", f"KL, {UNIT}", "steps", "seeds", ""]
    rows = []
    for value in found.values:
        mark = "take" if value is found.best else "" if value.qualifies else "does not qualify"
        rows.append([*_row(value), mark])
    return titles, rows


def _row(value: Value) -> list[str]:
    seeds = f"{len(value.chosen)} of {len(value.chosen) + len(value.failures)}"
    if not value.chosen:
        return [value.label, *(number(None),) * 4, seeds]
    reward, kl = value.reward, value.kl
    steps = ", ".join(str(point.at) for point in value.chosen)
    return [
        value.label,
        with_error(reward.value, reward.stderr),
        number(value.spread),
        with_error(kl.value, kl.stderr),
        steps,
        seeds,
    ]


def _header(found: Recommendation, name: str) -> Html:
    facts = [f"{len(found.values)} values", f"by held-out {found.by}"]
    said = join(Html(f'<span class="fact">{escape(fact)}</span>') for fact in facts)
    first, *rest = found.sentences()
    return join(
        [
            Html(f'<div class="run"><h1>{escape(name)}</h1>{said}</div>'),
            Html(f'<p class="headline">{escape(first)}</p>'),
            *(Html(f'<p class="aside">{escape(sentence)}</p>') for sentence in rest),
        ]
    )


def _values(found: Recommendation) -> Html:
    text = prose(
        "Of each run the best checkpoint that qualifies: within the limit, under no alarm, on disk. Intervals are",
        "95 %, by Student's t over seeds where there are several, else over held-out prompts.",
    )
    able = [value for value in found.values if value.chosen]
    rewards = [_interval(value, value.reward) for value in able]
    drifts = [_interval(value, value.kl) for value in able]
    tones: tuple[Tone, Tone] = ("reward", "drift")
    charts = [
        interval_rows(f"Held-out {found.by} reward", rewards, unit="reward", tone=tones[0]),
        interval_rows("KL from the start", drifts, unit=UNIT, tone=tones[1]),
    ]
    titles, rows = numbers(found)
    lines = [[_unbroken(escape(label)), *rest, _unbroken(escape(mark))] for label, *rest, mark in rows]
    return join([text, columns(charts), table(titles, lines, caption="The best value first.", numeric=titles[1:4])])


def _interval(value: Value, mean: Mean) -> Interval:
    repeats = len(value.chosen)
    width = float(stats.t.ppf(0.975, repeats - 1)) if repeats > 1 else NORMAL_95
    arm = math.nan if mean.stderr is None else width * mean.stderr
    return Interval(value.label, mean.value, mean.value - arm, mean.value + arm, f"{repeats} runs")


def _runs(found: Recommendation) -> Html:
    titles = ["run", "checkpoint taken", found.by, f"KL, {UNIT}"]
    rows = []
    for value in found.values:
        for point in value.chosen:
            folder, reward = Path(point.source.name).name, point.reward(found.by)
            link = _unbroken(Html(f'<a href="{escape(folder)}/{REPORT}">{escape(folder)}</a>'))
            said = number(None) if reward is None else with_error(reward.value, reward.stderr)
            rows.append([link, point.where, said, with_error(point.kl.value, point.kl.stderr)])
    return table(titles, rows, caption="± is one standard error over held-out prompts.", numeric=titles[2:])


def _unbroken(content: Html) -> Html:
    """Keep a name on one line, however narrow the window is."""
    return Html(f'<span class="rule">{content}</span>')


def _frontier(address: str) -> Html:
    return Html(
        f'<p class="prose">Every held-out evaluation of every run: <a href="{escape(address)}">the frontier</a>.</p>'
    )
