"""Print docs/metrics.md, the table of every number a run records: `python docs/metrics_page.py`."""

from __future__ import annotations

from itertools import groupby

from kleash.metrics import METRICS, Metric

INTRODUCTION = """\
# Metrics

Every number that a run records at each step, as `kleash runs export` and `metrics.jsonl` name it. A mean has its
standard error beside it. Evaluation on held-out prompts uses the same keys behind `eval/`.

This page is generated from `kleash.metrics` by `make docs`.
"""


def markdown() -> str:
    """Return the page: the introduction, then a table for each group of keys."""
    parts = [INTRODUCTION]
    for group, metrics in groupby(METRICS.values(), key=lambda metric: metric.key.partition("/")[0]):
        rows = "\n".join(map(_row, metrics))
        parts.append(f"## {group}\n\n| key | unit | meaning | when it is high |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    cells = (f"`{metric.key}`", metric.unit, f"**{metric.title}.** {metric.meaning}", metric.high)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(markdown(), end="")
