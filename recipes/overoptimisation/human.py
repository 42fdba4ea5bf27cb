"""A second gold: a reward model of what people said of film snippets, which has seen neither lexicon nor policy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kleash.api import train
from kleash.rewards.reward_model import RewardModel
from recipes.small_model.make import made

RATINGS = Path(__file__).parents[1] / "reward_human" / "make_data.py"
PROMPT = "Someone wrote:"
"""Before every snippet, as that recipe has it."""
BATCH, STEPS, LEARNING_RATE, WARMUP = 32, 300, 2e-3, 20
"""All comparisons are seen once; every weight is trained."""


def human_model(folder: Path) -> Path:
    """Return the run of the reward model; votes and model are made where `folder` does not hold them."""
    run, votes = folder / "human_model", folder / "votes"
    if not (votes / "movies_test.jsonl").exists():
        subprocess.run([sys.executable, str(RATINGS), "--output", str(votes)], check=True)
    if not run.exists():
        with TemporaryDirectory(dir=folder) as place:
            _train(Path(place) / run.name, votes)
            (Path(place) / run.name).rename(run)
    return run


def scores(model: RewardModel, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Score each completion joined to its opener, for the two are one snippet."""
    snippets = [f" {prompt}{completion}" for prompt, completion in zip(prompts, completions, strict=True)]
    return model([PROMPT] * len(snippets), snippets)


def _train(run: Path, votes: Path) -> None:
    train(
        str(made()),
        comparisons=str(votes / "movies_train.jsonl"),
        settings={
            "name": run.name,
            "output_dir": str(run.parent),
            "model.dtype": "float32",
            "model.lora": False,
            "comparisons.held_out_path": str(votes / "movies_test.jsonl"),
            "comparisons.append_stop": False,
            "algorithm.type": "reward_model",
            "training.steps": STEPS,
            "training.prompts_per_step": BATCH,
            "training.learning_rate": LEARNING_RATE,
            "training.lr_schedule": "linear",
            "training.warmup_steps": WARMUP,
            "training.eval_every": STEPS,
            "training.checkpoint_every": STEPS,
        },
    )
