"""Settings of every kind of run on the tiny model, and a process that runs them until it is killed.

`python tiny_jobs.py COUNT SETTING...` trains and dies, as nothing can be done about, at the optimiser's call COUNT.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

VOWELS = '''
def vowels(completions, **columns):
    """Share of vowels, so that a byte model has something to learn."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''


def write_data(folder: Path) -> None:
    """Comparisons (vowels beat consonants, a few ties), demonstrations, text, prompts and a reward in `folder`."""
    rows = [
        {
            "prompt": f"prompt {i % 12} says",
            "chosen": " " + "aeiou"[i % 5] * 3 + "oiea"[i % 4] * (1 + i % 3) + "xyz"[i % 3],
            "rejected": " " + "bcdfg"[i % 5] * 3 + "tnrs"[i % 4] * (1 + i % 2) + "xyz"[i % 3],
            **({"strength": 0} if i % 11 == 0 else {}),
        }
        for i in range(96)
    ]
    write = {
        "comparisons.jsonl": "\n".join(json.dumps(row) for row in rows),
        "demonstrations.jsonl": "\n".join(
            json.dumps({"prompt": row["prompt"], "completion": row["chosen"]}) for row in rows
        ),
        "text.txt": "\n\n".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(60)),
        "prompts.txt": "\n".join(f"prompt number {i} says" for i in range(12)),
        "reward.py": VOWELS,
    }
    for name, content in write.items():
        (folder / name).write_text(content, encoding="utf-8")


def settings_of(job: str, model: Path, folder: Path, *overrides: str) -> list[str]:
    """Settings as on the command line; the data of `write_data` are in `folder`."""
    sampled = [
        f"prompts={folder / 'prompts.txt'}",
        "prompts.held_out=3",
        f"reward={folder / 'reward.py'}:vowels",
        "rollout.max_completion_length=10",
    ]
    compared = [f"comparisons={folder / 'comparisons.jsonl'}", "comparisons.held_out=16"]
    gold = [f"reward.gold={folder / 'reward.py'}:vowels", "rollout.max_completion_length=10"]
    own = {
        "dpo": [*compared, *gold, "algorithm.type=dpo"],
        "reward_model": [*compared, "algorithm.type=reward_model"],
        "sft": [
            f"demonstrations={folder / 'demonstrations.jsonl'}",
            "demonstrations.held_out=12",
            "demonstrations.row_length=96",
            *gold,
            "algorithm.type=sft",
        ],
        "ppo": [*sampled, "algorithm.type=ppo", "training.num_minibatches=2"],
        "online_dpo": [*sampled, "algorithm.type=online_dpo"],
        "mixed": [*sampled, f"pretraining={folder / 'text.txt'}", "pretraining.row_length=64"],
    }
    return [
        f"model={model}",
        "model.dtype=float32",
        f"output_dir={folder / 'runs'}",
        "name=run",
        "training.steps=6",
        "training.prompts_per_step=4",
        "training.eval_every=3",
        "training.checkpoint_every=2",
        *own[job],
        *overrides,
    ]


def killed_at(count: int, settings: list[str]) -> subprocess.CompletedProcess[str]:
    """Run until the optimiser was called `count` times."""
    command = [sys.executable, __file__, str(count), *settings]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _main() -> None:
    from kleash.config.loader import load
    from kleash.training import optimizer, run
    from kleash.training.observer import Silent

    inner, left = optimizer.Optimizer.step, int(sys.argv[1])

    def step(self: optimizer.Optimizer, number: int) -> object:
        nonlocal left
        result = inner(self, number)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    optimizer.Optimizer.step = step  # type: ignore[assignment,method-assign]
    run.train(load(None, sys.argv[2:]).config, observer=Silent())


if __name__ == "__main__":
    _main()
