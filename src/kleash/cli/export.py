"""`kleash export`: a run's model for other tools, as it is or with its adapter scaled down to a limit of KL."""

from __future__ import annotations

from pathlib import Path

from kleash.cli.dial import print_dial
from kleash.cli.progress import watching
from kleash.cli.screen import screen
from kleash.errors import ConfigError, RunDirError
from kleash.runs.reader import RunReader


def run(
    run_dir: Path,
    step: int | None = None,
    out: Path | None = None,
    merge: bool = False,
    allow_suspect: bool = False,
    max_nats: float | None = None,
    prompts: str | None = None,
) -> None:
    """Write the adapter as it is, or with `merge` a whole Hugging Face folder, and print where.

    Args:
        run_dir: the run's folder.
        step: the checkpoint to export; None takes the last.
        out: the folder to write; None takes `RUN/export/step_N`, with the limit and `_merged` after it.
        merge: fold the adapter into the weights.
        allow_suspect: write a checkpoint that lies under an alarm too.
        max_nats: scale the adapter down until its KL per sequence lies within this.
        prompts: a file of prompts to measure that on; None takes the run's held-out ones.

    Raises:
        KleashError: no run, no checkpoint, one that lies under an alarm, a folder that cannot be written, or a limit
            that the run cannot be held to.
    """
    if prompts is not None and max_nats is None:
        raise ConfigError(f"--prompts {prompts} is for measuring the KL of --max-nats NATS. Give both, or neither")
    folder = out or _default_folder(run_dir, step, merge, max_nats)
    if max_nats is not None:
        _within(run_dir, folder, max_nats, prompts=prompts, step=step, merge=merge, allow_suspect=allow_suspect)
        return
    with watching() as observer:
        from kleash.training.export import export

        written = export(run_dir, folder, step=step, merge=merge, observer=observer, allow_suspect=allow_suspect)
    print(written)


def _within(
    run_dir: Path,
    folder: Path,
    max_nats: float,
    *,
    prompts: str | None,
    step: int | None,
    merge: bool,
    allow_suspect: bool,
) -> None:
    """Export within a limit of KL, and print what each scale of the adapter measured."""
    with watching() as observer:
        from kleash.training.export import export_within

        dial = export_within(
            run_dir,
            folder,
            max_nats=max_nats,
            prompts=prompts,
            step=step,
            merge=merge,
            observer=observer,
            allow_suspect=allow_suspect,
        )
    print_dial(screen(), dial)
    print(folder)


def _default_folder(run_dir: Path, step: int | None, merge: bool, max_nats: float | None) -> Path:
    with RunReader(run_dir) as reader:
        saved = reader.latest_checkpoint()
    if saved is None:
        raise RunDirError(f"{run_dir} has no checkpoint, so there is nothing to export. Give a run that saved one.")
    number = saved.step if step is None else step
    limit = "" if max_nats is None else f"_{max_nats:g}_nats"
    return run_dir / "export" / (f"step_{number}{limit}" + ("_merged" if merge else ""))
