"""`kleash export`: a run's model for other tools."""

from __future__ import annotations

from pathlib import Path

from kleash.cli.progress import watching
from kleash.errors import RunDirError
from kleash.runs.reader import RunReader


def run(
    run_dir: Path,
    step: int | None = None,
    out: Path | None = None,
    merge: bool = False,
    allow_suspect: bool = False,
) -> None:
    """Write the adapter as it is, or with `merge` a whole Hugging Face folder, and print where.

    Args:
        run_dir: the run's folder.
        step: the checkpoint to export; None takes the last.
        out: the folder to write; None takes `RUN/export/step_N`, with `_merged` after it when merged.
        merge: fold the adapter into the weights.
        allow_suspect: write a checkpoint that lies under an alarm too.

    Raises:
        RunDirError: no run, no checkpoint, one that lies under an alarm, or a folder that cannot be written.
    """
    folder = out or _default_folder(run_dir, step, merge)
    with watching() as observer:
        from kleash.training.export import export

        written = export(run_dir, folder, step=step, merge=merge, observer=observer, allow_suspect=allow_suspect)
    print(written)


def _default_folder(run_dir: Path, step: int | None, merge: bool) -> Path:
    with RunReader(run_dir) as reader:
        saved = reader.latest_checkpoint()
    if saved is None:
        raise RunDirError(f"{run_dir} has no checkpoint, so there is nothing to export. Give a run that saved one.")
    number = saved.step if step is None else step
    return run_dir / "export" / (f"step_{number}" + ("_merged" if merge else ""))
