"""One step of TRL's GRPOTrainer against one of Kleash, in turns: `python benchmarks/rl_step.py`.

Both get the same model, prompts, samples per prompt, token limit, LoRA, dtype, optimiser and thread count, and both
measure the KL: TRL by k3 on the sampled token, Kleash over the whole vocabulary. A step samples, rewards, scores policy
and reference, and updates. Each side lives in a process of its own, so that its peak memory is its own, and idles while
the other takes its step. Machines are noisy: what counts is the median of the ratios of neighbouring steps, and
threads that wait for one another sleep (OMP_WAIT_POLICY) instead of taking the time of a core that someone else has.

TRL runs in its fastest settings: no gradient checkpointing (its default is to checkpoint), autocast over bfloat16
weights, the fused AdamW, one batch a step, no logging, and eager attention, which for such short sequences beats its
default on a CPU (`--attention sdpa`).

Needs `pip install 'kleash[bench,demo]'`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

SAMPLES = 4
BETA = 0.05
LEARNING_RATE = 1e-4
LORA_RANK, LORA_ALPHA = 16, 32


@dataclass(frozen=True)
class Settings:
    """What both sides are given."""

    model: str
    dtype: str
    threads: int
    num_prompts: int
    max_new_tokens: int
    num_steps: int
    attention: str
    """TRL's; Kleash chooses its own."""


@dataclass(frozen=True)
class Step:
    """What one step took. CPU seconds are those of all threads; the peak is the process's since its start."""

    wall_seconds: float
    cpu_seconds: float
    tokens: int
    peak_bytes: int

    @property
    def milliseconds_per_token(self) -> float:
        """Wall time of the whole step for each token that was sampled."""
        return 1000 * self.wall_seconds / self.tokens


class Turns:
    """The side's end of the pipe: `begin` waits to be asked for a step, `end` reports it."""

    def __init__(self, pipe: Connection) -> None:
        """Say that the side is ready."""
        self._pipe = pipe
        self._began = (0.0, 0.0)
        pipe.send("ready")

    def begin(self) -> None:
        """Wait; exit when no more steps are wanted."""
        if self._pipe.recv() == "stop":
            raise SystemExit
        self._began = (time.perf_counter(), _cpu_seconds())

    def end(self, tokens: int) -> None:
        """Report the step that sampled `tokens`."""
        wall, cpu = time.perf_counter() - self._began[0], _cpu_seconds() - self._began[1]
        self._pipe.send(Step(wall, cpu, tokens, _peak_bytes()))


def run_kleash(settings: Settings, pipe: Connection) -> None:
    import torch
    from accelerate import Accelerator

    from kleash.config.schema import RunConfig
    from kleash.training.session import build, prepare
    from kleash.training.step import on_policy_step

    torch.set_num_threads(settings.threads)
    config = RunConfig.model_validate(
        {
            "model": {"name": settings.model, "dtype": settings.dtype, "lora": {"r": LORA_RANK, "alpha": LORA_ALPHA}},
            "prompts": {"path": "demo", "held_out": 0},
            "reward": "kleash.demo.sentiment:positive",
            "algorithm": {
                "type": "grpo",
                "num_generations": SAMPLES,
                "scale_rewards": "group",
                "loss_normalization": "token",
                "kl": {"beta": BETA},
            },
            "rollout": {"max_completion_length": settings.max_new_tokens},
            "training": {"prompts_per_step": settings.num_prompts, "learning_rate": LEARNING_RATE},
        }
    )
    _, data, rewarder = prepare(config)
    session = build(config, data, rewarder, Accelerator())
    turns = Turns(pipe)
    for step in itertools.count():
        turns.begin()
        result = on_policy_step(session, step)
        turns.end(int(result.experience.lengths.sum()))


def run_trl(settings: Settings, pipe: Connection) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from kleash.demo.sentiment import positive
    from kleash.models.names import resolve

    torch.set_num_threads(settings.threads)
    tokens_sampled: list[int] = []

    def reward(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        tokens_sampled.append(sum(len(ids) for ids in completion_ids))
        return positive(prompts, completions)

    class TakeTurns(TrainerCallback):  # type: ignore[misc]
        turns: Turns

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.turns = Turns(pipe)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.turns.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.turns.end(tokens_sampled[-1])

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            model_init_kwargs={"dtype": settings.dtype, "attn_implementation": settings.attention},
            bf16=settings.dtype == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=False,
            beta=BETA,
            num_generations=SAMPLES,
            per_device_train_batch_size=settings.num_prompts * SAMPLES,
            steps_per_generation=1,
            max_completion_length=settings.max_new_tokens,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            max_steps=settings.num_steps + 1,  # so that it is stopped from outside, and prints no summary
            shuffle_dataset=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        lora = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
        GRPOTrainer(
            model=resolve(settings.model),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": _prompts(settings)}),
            peft_config=lora,
            callbacks=[TakeTurns()],
        ).train()


SIDES: dict[str, Callable[[Settings, Connection], None]] = {"TRL": run_trl, "Kleash": run_kleash}


def take_turns(settings: Settings) -> dict[str, list[Step]]:
    """Start both sides, ask them for one step at a time, and return what each step took."""
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    for name, run in SIDES.items():
        pipes[name], theirs = spawn.Pipe()
        process = spawn.Process(target=run, args=(settings, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes[name].recv()
        processes.append(process)
    steps: dict[str, list[Step]] = {name: [] for name in SIDES}
    for _ in range(settings.num_steps):
        for name, pipe in pipes.items():
            pipe.send("step")
            steps[name].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send("stop")
    for process in processes:
        process.join()
    return steps


def summarize(steps: dict[str, list[Step]]) -> list[tuple[str, float, float, float]]:
    """Return rows of the table: what, TRL, Kleash, and the advantage of Kleash as a ratio."""
    trl, kleash = steps["TRL"], steps["Kleash"]

    def row(name: str, value: Callable[[Step], float]) -> tuple[str, float, float, float]:
        ratios = [value(theirs) / value(ours) for theirs, ours in zip(trl, kleash, strict=True)]
        return name, median(map(value, trl)), median(map(value, kleash)), median(ratios)

    peaks = [max(step.peak_bytes for step in side) / 1e6 for side in (trl, kleash)]
    return [
        row("wall, s a step", lambda step: step.wall_seconds),
        row("CPU, s a step", lambda step: step.cpu_seconds),
        row("tokens sampled a step", lambda step: step.tokens),
        row("wall, ms a token", lambda step: step.milliseconds_per_token),
        ("peak memory, MB", peaks[0], peaks[1], peaks[1] / peaks[0]),
    ]


def main() -> None:
    options = _options()
    settings = Settings(
        model=options.model,
        dtype=options.dtype,
        threads=options.threads,
        num_prompts=options.prompts,
        max_new_tokens=options.tokens,
        num_steps=options.warmup + options.steps,
        attention=options.attention,
    )
    load_before = os.getloadavg()[0]
    steps = {name: side[options.warmup :] for name, side in take_turns(settings).items()}
    rows = summarize(steps)
    if options.json:
        raw = {name: [asdict(step) for step in side] for name, side in steps.items()}
        table = {name: {"trl": trl, "kleash": ours, "ratio": ratio} for name, trl, ours, ratio in rows}
        print(json.dumps({"settings": asdict(settings), "table": table, "steps": raw}, indent=2))
        return
    print(
        f"{options.dtype}, {options.threads} threads, {options.steps} steps each after {options.warmup} of warm-up; "
        f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    print(f"{'median':24}{'TRL':>10}{'Kleash':>10}{'ratio':>8}")
    for name, trl, ours, ratio in rows:
        kind = "Kleash / TRL" if name.startswith("peak") else "TRL / Kleash, median of pairs"
        print(f"{name:24}{trl:10.2f}{ours:10.2f}{ratio:8.2f}  {kind}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="TRL's GRPO step and Kleash's, in turns.")
    parser.add_argument("--model", default="demo", help="hub id or local folder; demo is SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=9, help="steps a side that count")
    parser.add_argument("--warmup", type=int, default=2, help="steps a side before those")
    parser.add_argument("--prompts", type=int, default=8, help=f"prompts a step, {SAMPLES} samples each")
    parser.add_argument("--tokens", type=int, default=24, help="new tokens at most")
    parser.add_argument(
        "--attention", choices=("sdpa", "eager"), default="eager", help="TRL's; Kleash has its own rule"
    )
    parser.add_argument("--json", action="store_true", help="every step, as JSON")
    return parser.parse_args()


def _prompts(settings: Settings) -> list[str]:
    """The openers of every step, in the order in which Kleash takes them."""
    from importlib.resources import as_file, files

    from kleash.data.prompts import load_prompts, split_held_out
    from kleash.training.seeds import prompts_of_step

    with as_file(files("kleash.demo") / "openers.txt") as path:
        train, _ = split_held_out(load_prompts(path), 0, seed=0)
    return [
        str(train[i].text)
        for step in range(settings.num_steps)
        for i in prompts_of_step(len(train), settings.num_prompts, step, seed=0)
    ]


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peak_bytes() -> int:
    """Highest resident memory; on a GPU, the highest that tensors took there."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
