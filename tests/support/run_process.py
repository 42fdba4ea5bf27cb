"""A run in a process of its own that dies where it is told: `python run_process.py start|resume MODEL FOLDER WHERE`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESUMABLE = (
    "prompts.held_out=3",
    "training.steps=7",
    "training.eval_every=3",
    "training.checkpoint_every=2",
    "training.num_epochs=2",
    "training.num_minibatches=2",
    "algorithm.kl.target_nats_per_sequence=0.5",
)
"""Several updates a step, a controller, evaluation, and checkpoints that are older than the last step."""


def arguments(action: str, model: Path, folder: Path, die: str = "never", *overrides: str) -> list[str]:
    """The command line of such a process."""
    return [sys.executable, __file__, action, str(model), str(folder), die, *overrides]


def call(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(arguments(*command), capture_output=True, text=True, timeout=120, **options)


def _die_after(owner: Any, name: str, count: int) -> None:
    """Kill this process, as nothing can be done about, when `owner.name` has been called `count` times."""
    inner: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        result = inner(*args, **kwargs)
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def _main() -> None:
    action, model, folder, die, *overrides = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    from tiny_run import settings

    from kleash.training import loop, optimizer, run, state
    from kleash.training.observer import Silent

    if die == "in an update":  # the second of four in step 5
        _die_after(optimizer.Optimizer, "step", 5 * 4 + 2)
    if die == "before a checkpoint of its own":  # the second of four in the second step of this process
        _die_after(optimizer.Optimizer, "step", 4 + 2)
    if die == "in a checkpoint":  # after those of steps 0 and 2: weights of step 4 are written, its state is not
        _die_after(state, "save_weights", 3)
    if die == "after the last checkpoint":  # those of steps 0, 2, 4, 6 and 7
        _die_after(loop.Loop, "_checkpoint", 5)
    if action == "start":
        run.train(settings(Path(model), Path(folder), *overrides), observer=Silent())
    else:
        run.resume(Path(folder) / "runs" / "run", observer=Silent())


if __name__ == "__main__":
    _main()
