"""The model card of an export: what it was made from, and how far it has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kleash.config.schema import RunConfig
from kleash.gauge import page_dial
from kleash.gauge.dial_search import Dial
from kleash.metrics import lookup
from kleash.models import demo_model
from kleash.models.names import DEMO
from kleash.report.reward_verdicts import KINDS, signs, verdict
from kleash.report.wording import with_error
from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Step
from kleash.training.statistics import Numbers

CARD_KEYS = (
    "eval/preference/accuracy",
    "eval/loss/sft",
    "eval/reward/proxy",
    "eval/reward/gold",
    "eval/kl/exact_per_sequence",
    "eval/kl/exact_per_token",
    "eval/kl/original_per_sequence",
)
Alarms = Sequence[Event]


def _taught_by(config: RunConfig) -> str:
    """What a run learned from, in words."""
    if config.comparisons is not None:
        return f"the comparisons of `{config.comparisons.path}`"
    if config.demonstrations is not None:
        return f"the demonstrations of `{config.demonstrations.path}`"
    assert config.reward is not None, "an algorithm that samples has a reward"
    judge = [] if config.reward.judge is None else [config.reward.judge.model]
    model = [] if config.reward.model is None else [config.reward.model]
    return f"`{', '.join([*config.reward.functions, *model, *judge])}`"


def model_card(
    run_dir: Path,
    config: RunConfig,
    folder: Path,
    alarms: Alarms,
    *,
    whole: bool,
    merged: Numbers | None = None,
    dial: Dial | None = None,
) -> str:
    """Markdown: what it was made from, and how far it has moved.

    Args:
        run_dir: the run's folder.
        config: of the run.
        folder: of the checkpoint.
        alarms: those that it lies under.
        whole: it is a whole model, and no adapter.
        merged: how far merging moved it, where that was measured.
        dial: how its adapter was scaled, if it was.
    """
    base = demo_model.HUB_ID if config.model.name == DEMO else config.model.name
    step = step_of(folder)
    with RunReader(run_dir) as reader:
        rows = [row for row in reader.steps() if row.step <= step]
        meta = reader.meta
    lines = [
        "---",
        f"base_model: {base}",
        f"library_name: {'transformers' if whole else 'peft'}",
        "tags: [kleash, reinforcement-learning]",
        "---",
        f"# {run_dir.name}, step {step}" + ("" if dial is None else f", scale {dial.scale:g}"),
        "",
        *_warning(alarms),
        f"{base} trained with {config.algorithm.type.upper()} by Kleash on {_taught_by(config)}. "
        f"Weights: {meta.get('weights_source', base)}.",
        "",
        *([] if dial is None else _leash(dial)),
        f"Drift is KL(policy ‖ reference), exact over the vocabulary, at temperature {config.rollout.temperature:g}, "
        f"on held-out prompts of the run. Reference: {meta.get('reference')}, SHA-256 "
        f"`{str(meta.get('reference_fingerprint'))[:16]}`.",
        "",
        "| measured | step | value |",
        "|---|---|---|",
    ]
    lines += _measured(rows)
    if merged is not None:
        error = merged.stderr.get("kl/exact_per_sequence", float("nan"))
        lines.append(
            f"| KL(merged ‖ unmerged), nats per sequence | {step} | {merged.metrics['kl/exact_per_sequence']:.3g} "
            f"± {error:.2g} |"
        )
    lines += [
        "",
        "± is one standard error over prompts. A low KL is no proof of a good model: it only bounds the change.",
    ]
    return "\n".join(lines) + "\n"


def _measured(steps: Sequence[Step]) -> list[str]:
    """Rows of a card: what the run's evaluations measured last."""
    lines = []
    moved = any("eval/kl/original_per_sequence" in step.metrics for step in steps)
    for key in CARD_KEYS:
        if moved and key.startswith("eval/kl/exact"):
            continue  # measured from a reference that has moved along
        known = [step for step in steps if step.metrics.get(key) is not None]
        if known:
            error = known[-1].stderr.get(key)
            spread = "" if error is None else f" ± {error:.2g}"
            metric = lookup(key)
            lines.append(f"| {metric.title}, {metric.unit} | {known[-1].step} | {known[-1].metrics[key]:.4g}{spread} |")
    return lines


def reward_model_card(run_dir: Path, config: RunConfig, folder: Path, alarms: Alarms, *, whole: bool) -> str:
    """Markdown: what a reward model was made from, how often it is right, and what may fool it."""
    base = demo_model.HUB_ID if config.model.name == DEMO else config.model.name
    step = step_of(folder)
    with RunReader(run_dir) as reader:
        meta = reader.meta
        accuracy = [point for point in reader.series("eval/preference/accuracy") if point[0] <= step]
    lines = [
        "---",
        f"base_model: {base}",
        f"library_name: {'transformers' if whole else 'peft'}",
        "tags: [kleash, reward-model]",
        "---",
        f"# {run_dir.name}, step {step}",
        "",
        *_warning(alarms),
        f"A reward model on {base}, trained by Kleash on {_taught_by(config)}. Weights: "
        f"{meta.get('weights_source', base)}, SHA-256 `{str(meta.get('reference_fingerprint'))[:16]}`.",
        "",
    ]
    if accuracy:
        at, value, error = accuracy[-1]
        lines += [f"Accuracy on held-out comparisons at step {at}: {with_error(value, error)}.", ""]
    health = meta.get("reward_health")
    if health:
        lines += ["Health, measured at the end of the run on held-out comparisons:", "", *_health_tables(health), ""]
    lines.append(
        "± is one standard error over prompts. A reward model is a proxy: optimise against it on a leash, and measure "
        "something else beside it."
    )
    return "\n".join(lines) + "\n"


def _health_tables(health: Mapping[str, Any]) -> list[str]:
    """Two tables of Markdown: how answers that are none score, and signs of what else the model may pay for."""
    odd = health["odd_answers"]
    scores = [
        f"| {kind}: {KINDS[kind]} | {with_error(found['mean'], found['stderr'])} | {verdict(odd, kind)} |"
        for kind, found in odd.items()
    ]
    rest = [f"| {sign.name} | {sign.value} | {sign.meaning} |" for sign in signs(health)]
    return [
        "| answer | score | verdict |",
        "|---|---|---|",
        *scores,
        "",
        "| sign | value | what it says |",
        "|---|---|---|",
        *rest,
    ]


def named(alarms: Alarms) -> str:
    """Alarms in a sentence: "kl/spike (critical, since step 31)"."""
    return ", ".join(f"{alarm.name} ({alarm.severity}, since step {alarm.began})" for alarm in alarms)


def step_of(folder: Path) -> int:
    """The step whose checkpoint a folder holds."""
    return int(folder.name.removeprefix("step_"))


def _leash(dial: Dial) -> list[str]:
    """Lines of a card on an adapter that was scaled."""
    titles, cells = page_dial.rows(dial)
    whole = "that of scale 1" if dial.scale == 1 else "that of scale 1, and not of what is exported here"
    notes = page_dial.notes(dial)
    return [
        f"**On a leash of {dial.limit:g} nats per sequence.** {page_dial.headline(dial)} Scale s keeps s times what "
        "training changed in the weights; it is in the weights themselves (`lora_B`, or merged), so that any tool that "
        f"loads them gets it. Measured on {dial.prompts} prompts ({dial.settings['prompts']}), {dial.samples} replies "
        "to each, with 95 % intervals over prompts; the first scale above the limit ended the search.",
        "",
        *([*notes, ""] if notes else []),
        f"| {' | '.join(titles)} |",
        "|" + "---|" * len(titles),
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
        f"What the run itself measured follows: {whole}.",
        "",
    ]


def _warning(alarms: Alarms) -> list[str]:
    """Lines of a card on a checkpoint that is suspect."""
    if not alarms:
        return []
    return [
        "**Suspect.** This checkpoint lies under an alarm of its run and was exported all the same:",
        "",
        *(f"- {alarm.name} ({alarm.severity}, since step {alarm.began}): {alarm.message}" for alarm in alarms),
        "",
    ]
