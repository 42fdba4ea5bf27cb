"""A trained run as something to ship: its adapter, or one merged model, with a card that states the drift."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kleash.config.schema import RunConfig
from kleash.errors import ModelError, RunDirError
from kleash.metrics import lookup
from kleash.models import demo_model
from kleash.models.loading import load_policy
from kleash.models.names import DEMO, load_tokenizer
from kleash.models.policy import Policy
from kleash.models.reference import ModelReference
from kleash.models.scalar_loading import merge as merge_reward_model
from kleash.monitor.suspects import suspicions
from kleash.report.reward_verdicts import KINDS, signs, verdict
from kleash.report.wording import with_error
from kleash.rollout.decoding import DecodingSampler
from kleash.runs.reader import RunReader
from kleash.runs.records import Event
from kleash.training import state
from kleash.training.compare import checkpoint_of
from kleash.training.experience import Experience, unrewarded
from kleash.training.observer import Observer
from kleash.training.rendered import prompts_to_measure
from kleash.training.scoring import measure
from kleash.training.seeds import seed_for
from kleash.training.statistics import Numbers, per_sequence

CARD_KEYS = (
    "eval/preference/accuracy",
    "eval/loss/sft",
    "eval/reward/proxy",
    "eval/reward/gold",
    "eval/kl/exact_per_sequence",
    "eval/kl/exact_per_token",
    "eval/kl/original_per_sequence",
)
MERGE_PROMPTS = 16
Alarms = Sequence[Event]


def export(
    run_dir: Path, out: Path, *, step: int | None, merge: bool, observer: Observer, allow_suspect: bool = False
) -> Path:
    """Write a checkpoint to `out`: the PEFT adapter as it is, or with `merge` a whole Hugging Face model.

    Merging rounds base + adapter to the compute dtype; how far that moves the model is measured and put on the card.

    Args:
        run_dir: the run's folder.
        out: the folder to write, new or empty.
        step: which checkpoint; None takes the newest.
        merge: fold the adapter into the weights.
        observer: who is told what happens.
        allow_suspect: write a checkpoint that lies under an alarm too; the card then names the alarm.

    Raises:
        RunDirError: no such run or checkpoint, one that lies under an alarm, or `out` is taken.
        ModelError: `merge` of a run that trained whole weights.
    """
    config, folder = checkpoint_of(run_dir, step)
    whole = config.model.lora is False and config.model.adapter is None
    if merge and whole:
        raise ModelError(f"{run_dir} trained whole weights: there is no adapter to merge. Leave --merge out")
    alarms = _alarms(run_dir, folder)
    if alarms and not allow_suspect:
        raise RunDirError(_suspect(run_dir, folder, alarms))
    _claim(out)
    if config.algorithm.type == "reward_model":
        return _export_reward_model(run_dir, config, folder, out, alarms, merge=merge)
    merged = _merge(config, folder, out, observer) if merge else None
    if not merge:
        for path in folder.iterdir():
            if path.name not in (state.STATE_FILE, "README.md"):
                shutil.copy2(path, out / path.name)
    (out / "README.md").write_text(_card(run_dir, config, folder, merged, alarms), encoding="utf-8")
    return out


def _export_reward_model(
    run_dir: Path, config: RunConfig, folder: Path, out: Path, alarms: Alarms, *, merge: bool
) -> Path:
    """The folder of its members as it is, or with `merge` one whole AutoModelForSequenceClassification."""
    whole = merge or config.model.lora is False
    if merge:
        merge_reward_model(folder, out)
    else:
        ignored = shutil.ignore_patterns(state.STATE_FILE, "README.md")
        shutil.copytree(folder, out, ignore=ignored, dirs_exist_ok=True)
    (out / "README.md").write_text(_reward_model_card(run_dir, config, folder, alarms, whole=whole), encoding="utf-8")
    return out


def _alarms(run_dir: Path, folder: Path) -> Alarms:
    """The warning and critical alarms that a checkpoint lies under."""
    with RunReader(run_dir) as reader:
        return suspicions(reader.events(), _step(folder))


def _suspect(run_dir: Path, folder: Path, alarms: Alarms) -> str:
    """Why a checkpoint is not exported, and which one can be."""
    with RunReader(run_dir) as reader:
        events = reader.events()
        there = [saved.step for saved in reader.checkpoints() if saved.path.is_dir()]
    trusted = [step for step in there if not suspicions(events, step)]
    instead = (
        f"The newest checkpoint without an alarm is that of step {max(trusted)}: --step {max(trusted)}"
        if trusted
        else "No checkpoint on disk is without an alarm"
    )
    return (
        f"the checkpoint of step {_step(folder)} in {run_dir} is suspect: it lies under {_named(alarms)}. {instead}. "
        "To export this one all the same, after a look at its samples: --allow-suspect"
    )


def _named(alarms: Alarms) -> str:
    """Alarms in a sentence: "kl/spike (critical, since step 31)"."""
    return ", ".join(f"{alarm.name} ({alarm.severity}, since step {alarm.began})" for alarm in alarms)


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


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step_"))


def _claim(out: Path) -> None:
    """Make the folder, or take one that is empty and can be written.

    Raises:
        RunDirError: it cannot be had.
    """
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        if not taken:
            out.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise RunDirError(f"{out} cannot be written: {error.strerror}. Give another folder with --out") from error
    if taken:
        raise RunDirError(f"{out} is a file, or a folder that is not empty. Give another folder with --out")


def _merge(config: RunConfig, folder: Path, out: Path, observer: Observer) -> Numbers:
    """Save the folded weights; returns the KL of merged against unmerged on held-out prompts."""
    observer.fact("merging the adapter into a copy of the base")
    tokenizer = load_tokenizer(config.model.name, config.model.revision)
    prompts = prompts_to_measure(config, tokenizer)[:MERGE_PROMPTS]
    context = max(len(prompt.token_ids) for prompt in prompts) + config.rollout.max_completion_length
    policy = load_policy(config.model, context=context, seed=config.training.seed)
    state.load_weights(policy, state.read(folder))
    merged = policy.model_to_sample()
    merged.save_pretrained(out)
    tokenizer.inner.save_pretrained(out)
    observer.fact(f"measuring merged against unmerged on {len(prompts)} prompts")
    completions = DecodingSampler(merged, policy.tokenizer).sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=1,
        max_length=config.rollout.max_completion_length,
        temperature=config.rollout.temperature,
        seed=seed_for(config.training.seed, "export"),
    )
    experience = Experience(prompts, completions, [""] * len(completions), unrewarded(len(completions)))
    whole = Policy(policy.name, merged, None, policy.tokenizer, None)
    unmerged = ModelReference(policy.causal_lm, "unmerged")
    with torch.no_grad():
        record = measure(experience, whole, unmerged, temperature=config.rollout.temperature, per_batch=4, step=0)
    numbers = Numbers()
    numbers.mean("kl/exact_per_sequence", per_sequence(record.reverse_kl, experience.lengths), 1)
    return numbers


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


def _card(run_dir: Path, config: RunConfig, folder: Path, merged: Numbers | None, alarms: Alarms) -> str:
    """Markdown: what it was made from, and how far it has moved."""
    base = demo_model.HUB_ID if config.model.name == DEMO else config.model.name
    step = _step(folder)
    with RunReader(run_dir) as reader:
        rows = [row for row in reader.steps() if row.step <= step]
        meta = reader.meta
    lines = [
        "---",
        f"base_model: {base}",
        "library_name: " + ("transformers" if merged or config.model.lora is False else "peft"),
        "tags: [kleash, reinforcement-learning]",
        "---",
        f"# {run_dir.name}, step {step}",
        "",
        *_warning(alarms),
        f"{base} trained with {config.algorithm.type.upper()} by Kleash on {_taught_by(config)}. "
        f"Weights: {meta.get('weights_source', base)}.",
        "",
        f"Drift is KL(policy ‖ reference), exact over the vocabulary, at temperature {config.rollout.temperature:g}, "
        f"on held-out prompts of the run. Reference: {meta.get('reference')}, SHA-256 "
        f"`{str(meta.get('reference_fingerprint'))[:16]}`.",
        "",
        "| measured | step | value |",
        "|---|---|---|",
    ]
    moved = any("eval/kl/original_per_sequence" in row.metrics for row in rows)
    for key in CARD_KEYS:
        if moved and key.startswith("eval/kl/exact"):
            continue  # measured from a reference that has moved along
        known = [row for row in rows if row.metrics.get(key) is not None]
        if known:
            error = known[-1].stderr.get(key)
            spread = "" if error is None else f" ± {error:.2g}"
            metric = lookup(key)
            lines.append(f"| {metric.title}, {metric.unit} | {known[-1].step} | {known[-1].metrics[key]:.4g}{spread} |")
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


def _reward_model_card(run_dir: Path, config: RunConfig, folder: Path, alarms: Alarms, *, whole: bool) -> str:
    """Markdown: what a reward model was made from, how often it is right, and what may fool it."""
    base = demo_model.HUB_ID if config.model.name == DEMO else config.model.name
    step = _step(folder)
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
