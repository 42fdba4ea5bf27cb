"""`kleash sweep` in a process of its own whose points are trained by a stand-in: run directories without a model.

`python sweep_process.py sweep WORDS...` is the sweep. It starts this file with `train WORDS...` for each point, which
writes what `kleash train` writes, a step each 80 ms. What a point does follows from `training.learning_rate`: see
`LEARNING_RATES`. `starts.txt` in the working directory has a line for each start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

FILE = __file__
STEP_SECONDS = 0.08
STEPS = 8
LEARNING_RATES = {"stops": 0.3, "fails": 0.2, "breaks": 0.1, "is killed": 0.4}
"""Of points that a rule stops, the user has to mend, are a bug, and are killed, in their third step."""
KL = 4.0
"""Nats per sequence after the last step at beta = 0; 4 / (1 + 10 beta) at others."""


def write_settings(folder: Path) -> Path:
    """A file whose settings load; no model is ever read."""
    path = folder / "run.toml"
    path.write_text(
        'model = "demo"\nprompts = "demo"\nreward = "json:dumps"\noutput_dir = "out"\n'
        f"training = {{steps = {STEPS}, checkpoint_every = 2, eval_every = 4}}\n",
        encoding="utf-8",
    )
    return path


def sweep_process(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a sweep in a folder; its output is collected."""
    return subprocess.Popen(
        [sys.executable, __file__, "sweep", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def starts(folder: Path) -> list[str]:
    """Return what was started, in order: "start beta_0", "resume beta_0"."""
    path = folder / "starts.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Return as soon as the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.02)


def _train(words: list[str]) -> int:
    from kleash.config.loader import load, to_dict
    from kleash.runs.reader import RunReader
    from kleash.runs.writer import RunWriter

    if words[0] == "--resume":
        run_dir = Path(words[1])
        with RunReader(run_dir) as reader:
            settings, saved = reader.config, reader.latest_checkpoint()
        assert saved is not None
        first = saved.step
        writer = RunWriter.resume(run_dir, first - 1)
    else:
        config = load(Path(words[0]), words[1:]).config
        settings, first = to_dict(config), 0
        run_dir = Path(config.output_dir) / str(config.name)
        writer = RunWriter.create(run_dir, settings, {})
    with Path("starts.txt").open("a", encoding="utf-8") as file:
        file.write(f"{'resume' if words[0] == '--resume' else 'start'} {run_dir.name}\n")
    with writer:
        return _steps(writer, settings, first)


def _steps(writer: object, settings: dict[str, object], first: int) -> int:
    from kleash.runs.records import Checkpoint, Step
    from kleash.runs.writer import RunWriter

    assert isinstance(writer, RunWriter)
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, ask)
    training, algorithm = settings["training"], settings["algorithm"]
    assert isinstance(training, dict)
    assert isinstance(algorithm, dict)

    def save(step: int) -> None:
        folder = writer.path / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        writer.write_checkpoint(Checkpoint(step, folder))

    if first == 0:
        save(0)
    for step in range(first, STEPS + 1):
        values = _numbers(step, float(algorithm["kl"]["beta"] or 0), int(training["seed"]))
        trains = {"time/total": STEP_SECONDS, **values} if step < STEPS else {}
        evaluated = {f"eval/{key}": value for key, value in values.items()} if step % 4 == 0 else {}
        errors = {f"eval/{key}": 0.02 for key in values} if step % 4 == 0 else {}
        writer.write_step(Step(step, {**trains, **evaluated}, errors))
        time.sleep(STEP_SECONDS)
        if step == 2:
            code = _trouble(writer, float(training["learning_rate"]))
            if code:
                return code
        if (step + 1) % 2 == 0 or asked:
            save(step + 1)
        if asked:
            writer.set_status("interrupted", "by Ctrl-C or SIGTERM")
            return 130
    writer.set_status("finished")
    return 0


def _numbers(step: int, beta: float, seed: int) -> dict[str, float]:
    """Reward is best at beta = 0.1; KL falls with beta."""
    share = step / STEPS
    reward = share * (1 - 4 * (beta - 0.1) ** 2) + 0.01 * seed
    return {"reward/proxy": reward, "kl/exact_per_sequence": share * KL / (1 + 10 * beta)}


def _trouble(writer: object, rate: float) -> int:
    from kleash.runs.writer import RunWriter

    assert isinstance(writer, RunWriter)
    kind = next((name for name, value in LEARNING_RATES.items() if value == rate), "")
    if kind == "stops":
        writer.set_status("stopped", "a rule")
        print("kleash: step 2: KL is above stop_above", file=sys.stderr)
        return 3
    if kind == "fails":
        writer.set_status("failed", "a reward")
        print("kleash: the reward returned a word", file=sys.stderr)
        return 2
    if kind == "breaks":
        writer.set_status("failed", "a bug")
        print("ZeroDivisionError: division by zero\nThis is a fault in Kleash.", file=sys.stderr)
        return 1
    if kind == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _main() -> int:
    command, *words = sys.argv[1:]
    if command == "train":
        return _train(words)
    from kleash.cli.main import main
    from kleash.sweep import scheduler

    scheduler.KLEASH = (sys.executable, __file__)
    return main([command, *words])


if __name__ == "__main__":
    sys.exit(_main())
