"""Start, resume and check runs: from settings to a run directory with a report."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from kleash.config.loader import load, to_dict
from kleash.config.schema import RunConfig
from kleash.errors import KleashError, RunDirError, RunStopped
from kleash.monitor.notify import masked_settings
from kleash.report.run_page import write_report
from kleash.runs.reader import RunReader
from kleash.runs.records import Status
from kleash.runs.trackers import Mirror, open_mirrors
from kleash.runs.writer import RunWriter
from kleash.training import state
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import Prepared
from kleash.training.jobs import prepare
from kleash.training.loop import Loop
from kleash.training.observer import Observer
from kleash.training.rewards import pinned

VERSIONED = ("kleash", "torch", "transformers", "peft", "accelerate")


def train(config: RunConfig, *, observer: Observer, warnings: Sequence[str] = (), given: Given = NOTHING_GIVEN) -> Path:
    """Run `config` from its first step; returns the run's directory. `given` holds objects passed from Python.

    Raises:
        KleashError: settings, prompts, model or directory that cannot work; RunStopped when a rule ends the run.
        KeyboardInterrupt: after a checkpoint was saved.
    """
    for warning in warnings:
        observer.fact(f"note       {warning}")
    config = pinned(config)
    prepared = prepare(config, given)
    accelerator = Accelerator()
    name = str(broadcast_object_list([config.name or _default_name(config)])[0])
    path = Path(config.output_dir) / name
    writer = None
    if accelerator.is_main_process:
        writer = RunWriter.create(path, to_dict(config), _facts(prepared))
        for notice in writer.notices:
            observer.fact(f"note       {notice}")
        observer.fact(f"run        {path}")
    mirrors: list[Mirror] = []
    try:
        mirrors = open_mirrors(config.mirrors, masked_settings(to_dict(config)), path) if writer is not None else []
        job = prepared.build(accelerator)
        fingerprint = job.fingerprint()
        if writer is not None:
            writer.update_meta(job.facts(fingerprint))
        job.preflight(observer, fingerprint)
    except BaseException:
        if writer is not None:
            writer.close()
            shutil.rmtree(path)
        for mirror in mirrors:
            mirror.close()
        raise
    _loop(Loop(job, writer, observer, fingerprint, mirrors), writer, mirrors, observer, 0)
    return path


def resume(run_dir: Path, *, observer: Observer, given: Given = NOTHING_GIVEN) -> Path:
    """Take a run up again from its newest checkpoint; pass again what was `given` in the first place.

    Raises:
        RunDirError: no run or no checkpoint there, or the reference has changed.
    """
    with RunReader(run_dir) as reader:
        stored, meta, status, reason = reader.config, reader.meta, reader.status, reader.status_reason
        checkpoint = reader.latest_checkpoint()
    if checkpoint is None:
        raise RunDirError(f"{run_dir} has no checkpoint to resume from. Start the run again under another name")
    config = load(None, base=stored).config
    saved = state.read(checkpoint.path)
    if status == "finished":
        raise RunDirError(
            f"{run_dir} is finished: all {config.training.steps} steps are done. "
            "Start a new run, or continue from its adapter with model.adapter"
        )
    prepared = prepare(config, given)
    if prepared.fingerprint() != meta["data_fingerprint"]:
        raise RunDirError(
            f"the data of {run_dir} have changed since it began ({_data_source(config)}): other rows "
            "would be trained on and held out. Put the old ones back, or start a new run"
        )
    accelerator = Accelerator()
    job = prepared.build(accelerator)
    fingerprint = job.fingerprint()
    first = job.restore(saved, fingerprint)
    observer.fact(f"run        {run_dir}, resumed at step {first} from {checkpoint.path.name}")
    observer.fact(f"frozen     weights with the fingerprint {fingerprint[:16]}, unchanged")
    writer = None
    mirrors: list[Mirror] = []
    try:
        if accelerator.is_main_process:
            mirrors = open_mirrors(config.mirrors, masked_settings(stored), run_dir)
            writer = RunWriter.resume(run_dir, first - 1)
        loop = Loop(job, writer, observer, fingerprint, mirrors)
        loop.take_up(saved)
    except BaseException:
        if writer is not None:
            with writer:
                writer.set_status(status, reason)
        for mirror in mirrors:
            mirror.close()
        raise
    _loop(loop, writer, mirrors, observer, first)
    return run_dir


def check(config: RunConfig, *, observer: Observer) -> bool:
    """Preflight alone, without a run directory; True when nothing failed that would end a run."""
    job = prepare(config).build(Accelerator())
    try:
        job.preflight(observer, job.fingerprint())
    except RunStopped as stopped:
        observer.fact(str(stopped))
        return False
    return True


def _loop(loop: Loop, writer: RunWriter | None, mirrors: Sequence[Mirror], observer: Observer, first_step: int) -> None:
    """Train; the process that writes leaves a status, a reason and a report behind, however it ends."""
    if writer is None:
        loop.run(first_step)
        return
    status: Status = "failed"
    reason = ""
    with writer:
        try:
            loop.run(first_step)
            status = "finished"
        except KeyboardInterrupt:
            status, reason = "interrupted", "by Ctrl-C or SIGTERM"
            raise
        except RunStopped as stopped:
            status, reason = "stopped", str(stopped)
            raise
        except BaseException as error:
            reason = str(error) if isinstance(error, KleashError) else f"{type(error).__name__}: {error}"
            raise
        finally:
            writer.set_status(status, reason)
            for problem in filter(None, [mirror.close() for mirror in mirrors]):
                observer.fact(f"note       {problem}")
            write_report(writer.path)
            observer.ended(writer.path, status, reason)


def _default_name(config: RunConfig) -> str:
    """Algorithm and time, with a number behind it if that is taken."""
    name = f"{config.algorithm.type}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    taken = {path.name for path in Path(config.output_dir).glob(f"{name}*")}
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def _facts(prepared: Prepared) -> dict[str, Any]:
    """What a later reader needs to know of where the run was made."""
    return {
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED}
        | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {platform.system()}",
        "git_commit": _git_commit(),
        "data": dict(prepared.facts()),
        "data_fingerprint": prepared.fingerprint(),
    }


def _data_source(config: RunConfig) -> str:
    """Where the data came from, for a message."""
    tables = (config.prompts, config.comparisons, config.demonstrations, config.pretraining)
    return ", ".join(table.path for table in tables if table is not None)


def _git_commit() -> str | None:
    """Commit of the directory that the run was started in."""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.strip() or None
