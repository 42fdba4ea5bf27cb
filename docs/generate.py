"""Write what the docs take from the code, after a change of it: `python docs/generate.py`.

`metrics.md` comes from the metric catalogue, `configuration.md` from the settings' schema, `rules.md` from the rules of
the monitor, and the table of penalties in `kl.md`, between its two marks, from `kleash.choices`.
"""

from __future__ import annotations

from pathlib import Path

from kleash import choices
from kleash.config import page
from kleash.metrics import METRICS, Metric
from kleash.monitor.rule import Rule
from kleash.monitor.rules.table import make_rules

DOCS = Path(__file__).parent
BEGIN, END = "<!-- choices: begin -->\n", "<!-- choices: end -->"

METRICS_INTRODUCTION = """\
# Metrics

<!-- Written from src/kleash/metrics.py by `python docs/generate.py`. -->

Every number that a run records, under the key that it has in `run.db`, in `metrics.jsonl` and in the mirrors.
A metric that is a mean over replies carries its standard error; sums and counts are added up over the whole
batch first and divided once. The evaluation on held-out prompts records the same keys behind `eval/`, such as
`eval/reward/proxy`. A metric that a run does not measure (no gold reward, no moving reference) is left out.

KL is always KL(policy ‖ reference), in nats, unless the row says otherwise; [KL](kl.md) tells how the
estimators differ, and [length](length.md) how to read per sequence and per token side by side.
"""

RULES_INTRODUCTION = """\
# Rules

<!-- Written from src/kleash/monitor/rules by `python docs/generate.py`. -->

What the monitor looks for in every run, of Kleash or of another trainer, with the causes and the advice that its alarms
carry. An alarm is information, a warning or critical; a warning or a critical one makes the checkpoints of its steps
suspect. A rule whose numbers a run does not record says nothing; `monitor.ignore` leaves rules out by name.
[Alarms](alarms.md) has measured how often they speak of a healthy run and how soon of a faulty one.
"""


def rules_page() -> str:
    """Return docs/rules.md: a section for each rule."""
    return "\n".join([RULES_INTRODUCTION, *(_rule_section(rule) for rule in make_rules())])


def _rule_section(rule: Rule) -> str:
    keys = ", ".join(f"`{key}`" if "/" in key else key for key in rule.looks_at)
    causes = "\n".join(f"{number}. {cause.text}. Check: {cause.check}" for number, cause in enumerate(rule.causes, 1))
    sentence = (type(rule).__doc__ or "").strip().partition("\n")[0]
    return f"## `{rule.name}`\n\n{sentence}\n\nLooks at {keys}.\n\n{causes}\n\n**Then:** {rule.advice}\n"


def metrics_page() -> str:
    """Return docs/metrics.md: a table of metrics for each first part of a key."""
    groups: dict[str, list[Metric]] = {}
    for metric in METRICS.values():
        groups.setdefault(metric.key.partition("/")[0], []).append(metric)
    parts = [METRICS_INTRODUCTION]
    for name, metrics in groups.items():
        rows = "\n".join(_metric_row(metric) for metric in metrics)
        parts.append(f"## `{name}/`\n\n| key | unit | meaning | what a high value says |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def choices_table() -> str:
    """Return every estimator, scope and placement with its gradient, or with the reason why it is refused."""
    rows = [
        _choice_row(
            (choice.estimator, choice.scope, choice.placement),
            "yes, only on-policy" if choice.on_policy_only else "yes",
            choice.gradient,
        )
        for choice in choices.ALLOWED
    ]
    research = {choice.names for choice in choices.RESEARCH_ONLY}
    rows += [
        _choice_row(names, "no; `research_only`" if names in research else "no", reason)
        for names, reason in choices.REFUSED.items()
    ]
    header = "| estimator | scope | placement | allowed | its gradient, or why not |\n|---|---|---|---|---|\n"
    return header + "".join(rows)


def pages() -> dict[Path, str]:
    """Return the text that each written page should have."""
    kl = DOCS / "kl.md"
    before, _, rest = kl.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        DOCS / "metrics.md": metrics_page(),
        DOCS / "configuration.md": page.markdown(),
        DOCS / "rules.md": rules_page(),
        kl: before + BEGIN + choices_table() + END + after,
    }


def _metric_row(metric: Metric) -> str:
    return f"| `{metric.key}` | {metric.unit} | {metric.meaning} | {metric.high} |"


def _choice_row(names: tuple[str, str, str], allowed: str, why: str) -> str:
    estimator, scope, placement = names
    return f"| `{estimator}` | `{scope}` | `{placement}` | {allowed} | {why} |\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
