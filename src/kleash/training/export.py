"""A trained run as something to ship: its adapter, or one merged model, with a card that states the drift."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from kleash.config.schema import RunConfig
from kleash.errors import ConfigError, ModelError, RunDirError
from kleash.gauge.dial_search import Dial
from kleash.models.loading import load_policy
from kleash.models.names import load_tokenizer
from kleash.models.policy import Policy
from kleash.models.reference import ModelReference
from kleash.models.scalar_loading import merge as merge_reward_model
from kleash.monitor.suspects import suspicions
from kleash.rollout.decoding import DecodingSampler
from kleash.runs.reader import RunReader
from kleash.training import state
from kleash.training.cards import Alarms, model_card, named, reward_model_card, step_of
from kleash.training.compare import checkpoint_of
from kleash.training.dial import DialledRun, check_dial, dial_prompts, run_dial
from kleash.training.experience import Experience, unrewarded
from kleash.training.observer import Observer
from kleash.training.rendered import prompts_to_measure
from kleash.training.scoring import measure
from kleash.training.seeds import seed_for
from kleash.training.statistics import Numbers, per_sequence

MERGE_PROMPTS = 16
DIAL_FILE = "kleash.json"


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
    with _claimed(out) as unfinished:
        if config.algorithm.type == "reward_model":
            _write_reward_model(folder, unfinished, merge=merge)
            card = reward_model_card(run_dir, config, folder, alarms, whole=merge or config.model.lora is False)
        else:
            merged = _merge(config, folder, unfinished, observer) if merge else None
            if not merge:
                _copy(folder, unfinished)
            card = model_card(run_dir, config, folder, alarms, whole=merge or whole, merged=merged)
        (unfinished / "README.md").write_text(card, encoding="utf-8")
    return out


def export_within(
    run_dir: Path,
    out: Path,
    *,
    max_nats: float,
    prompts: str | None,
    step: int | None,
    merge: bool,
    observer: Observer,
    allow_suspect: bool = False,
) -> Dial:
    """Write a checkpoint with its adapter scaled down until its KL to the reference lies within a limit.

    The largest scale is taken whose 95 % interval of the mean KL on held-out prompts ends below `max_nats`; what was
    measured at every scale is put on the card, and into `kleash.json`.

    Args:
        run_dir: the run's folder.
        out: the folder to write, new or empty.
        max_nats: KL(policy ‖ reference) that is allowed, nats per sequence.
        prompts: a file of prompts in place of the run's held-out ones.
        step: which checkpoint; None takes the newest.
        merge: fold the scaled adapter into the weights; what is measured is then the merged model.
        observer: who is told what happens.
        allow_suspect: write a checkpoint that lies under an alarm too; the card then names the alarm.

    Returns:
        What was tried and measured.

    Raises:
        ConfigError: a limit that is none.
        RunDirError: no such run or checkpoint, one that lies under an alarm, or `out` is taken.
        ModelError: a run that has no adapter to scale, or no scale that can be shown to lie within the limit.
        DataError: too few prompts.
    """
    if not (math.isfinite(max_nats) and max_nats > 0):
        raise ConfigError(f"--max-nats {max_nats:g} is no limit: only the reference itself is 0 nats away. Give 3, say")
    config, folder = checkpoint_of(run_dir, step)
    check_dial(run_dir, config)
    alarms = _alarms(run_dir, folder)
    if alarms and not allow_suspect:
        raise RunDirError(_suspect(run_dir, folder, alarms))
    asked = dial_prompts(run_dir, config, load_tokenizer(config.model.name, config.model.revision), prompts)
    with _claimed(out) as unfinished:
        run = DialledRun(config, folder, asked, observer.progress, merged=merge)
        dial = run_dial(run_dir, folder, run, max_nats)
        _write_dialled(run, dial, folder, unfinished, merge=merge)
        card = model_card(run_dir, config, folder, alarms, whole=merge, dial=dial)
        (unfinished / "README.md").write_text(card, encoding="utf-8")
    return dial


def _write_dialled(run: DialledRun, dial: Dial, folder: Path, out: Path, *, merge: bool) -> None:
    """The adapter at the scale that was found, or with `merge` the whole model; and what was measured."""
    assert dial.scale is not None, "a dial that finds no scale is an error"
    if merge:
        run.adapter.turn(dial.scale)
        run.policy.model_to_sample().save_pretrained(out)
        run.policy.tokenizer.inner.save_pretrained(out)
    elif dial.scale == 1:
        _copy(folder, out)
    else:
        run.adapter.turn(dial.scale)
        state.save_weights(run.policy, out)
    (out / DIAL_FILE).write_text(json.dumps(dial.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _copy(folder: Path, out: Path) -> None:
    """What other tools read of a checkpoint, its folders included."""
    ignored = shutil.ignore_patterns(state.STATE_FILE, "README.md")
    shutil.copytree(folder, out, ignore=ignored, dirs_exist_ok=True)


def _write_reward_model(folder: Path, out: Path, *, merge: bool) -> None:
    """The folder of its members as it is, or with `merge` one whole AutoModelForSequenceClassification."""
    if merge:
        merge_reward_model(folder, out)
    else:
        _copy(folder, out)


def _alarms(run_dir: Path, folder: Path) -> Alarms:
    """The warning and critical alarms that a checkpoint lies under."""
    with RunReader(run_dir) as reader:
        return suspicions(reader.events(), step_of(folder))


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
        f"the checkpoint of step {step_of(folder)} in {run_dir} is suspect: it lies under {named(alarms)}. {instead}. "
        "To export this one all the same, after a look at its samples: --allow-suspect"
    )


@contextmanager
def _claimed(out: Path) -> Iterator[Path]:
    """Give a folder beside `out` to write into; it becomes `out` at the end of the block, unless the block fails.

    Raises:
        RunDirError: `out` cannot be had.
    """
    place = Path(os.path.abspath(out))
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        if not taken:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            if out.exists():
                tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise RunDirError(f"{out} cannot be written: {error.strerror}. Give another folder with --out") from error
    if taken:
        raise RunDirError(f"{out} is a file, or a folder that is not empty. Give another folder with --out")
    try:
        yield unfinished
        _move(unfinished, place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(unfinished: Path, out: Path) -> None:
    """Make a finished folder `out`; an empty one that is there stays the folder it is, somebody may be in it."""
    if not out.exists():
        os.replace(unfinished, out)
        return
    for path in unfinished.iterdir():
        shutil.move(path, out / path.name)


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
