"""Reward models of the small model's samples, from few or many comparisons: proxies of a gold reward that is a lexicon.

The lexicon (VADER, `kleash.demo.sentiment`) stands in for people. Of two continuations it prefers the more cheerful
one, and a share of its votes is turned round. Of close ones it says nothing: most samples have one word of the lexicon
or none, and what a reward model can learn is which words those are.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from kleash.api import train
from kleash.config.loader import load
from kleash.labels.store import LabelStore
from kleash.rewards.function import resolve
from kleash.rewards.judging import score_queue
from kleash.training.candidates import candidate_pairs
from recipes.small_model.make import DATA, PROMPTS, made

GOLD = "kleash.demo.sentiment:positive"
PAIRS, TEST_PAIRS = 20_000, 4_000
"""Drawn; about four in five are too close to call."""
TIE_WITHIN, NOISE = 0.5, 0.1
LENGTH = 16
BATCH, EPOCHS, LEARNING_RATE, WARMUP, WEIGHT_DECAY = 16, 3, 2e-3, 20, 0.01
NEVER = 10_000
"""Steps between evaluations: there is one before the first step and one after the last."""


def comparisons(folder: Path = DATA) -> tuple[Path, Path]:
    """Return files of comparisons to train on and, with no vote turned round, to test on; made where they are not."""
    files = folder / "comparisons.jsonl", folder / "comparisons_test.jsonl"
    for file, pairs, noise, seed in zip(files, (PAIRS, TEST_PAIRS), (NOISE, 0.0), (0, 1), strict=True):
        if not file.exists():
            _compare(file, pairs, noise, seed)
    return files


def reward_model(count: int, seed: int, members: int = 1, folder: Path = DATA) -> Path:
    """Return the run of a reward model that learned from the first `count` comparisons, `EPOCHS` times each.

    It is trained where it is not there. A run gets its place only when it is finished.
    """
    run = folder / "reward_models" / f"comparisons_{count}_members_{members}_seed_{seed}"
    if not run.exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=run.parent) as place:
            _train(Path(place) / run.name, count, seed, members, folder)
            (Path(place) / run.name).rename(run)
    return run


def _train(run: Path, count: int, seed: int, members: int, folder: Path) -> None:
    learn, test = comparisons(folder)
    train(
        str(made(folder)),
        comparisons=str(learn),
        settings={
            "name": run.name,
            "output_dir": str(run.parent),
            "model.dtype": "float32",
            "comparisons.limit": count,
            "comparisons.held_out_path": str(test),
            "comparisons.append_stop": False,
            "algorithm.type": "reward_model",
            "algorithm.members": members,
            "training.steps": EPOCHS * count // BATCH,
            "training.prompts_per_step": BATCH,
            "training.learning_rate": LEARNING_RATE,
            "training.lr_schedule": "linear",
            "training.warmup_steps": WARMUP,
            "training.weight_decay": WEIGHT_DECAY,
            "training.eval_every": NEVER,
            "training.checkpoint_every": NEVER,
            "training.seed": seed,
        },
    )


def _compare(file: Path, pairs: int, noise: float, seed: int) -> None:
    """Draw pairs, let the lexicon vote, and keep what it could tell apart."""
    settings = {
        "model": str(made(file.parent)),
        "prompts": {"path": str(file.parent / PROMPTS.name), "held_out": 64},
        "reward": GOLD,
        "rollout": {"max_completion_length": LENGTH},
        "training": {"seed": seed},
    }
    config = load(None, base=settings).config
    with LabelStore.open(file.with_suffix(".db")) as store:
        store.add(candidate_pairs(config, pairs, lambda done, total: None))
        score_queue(store, resolve(GOLD), "lexicon", tie_within=TIE_WITHIN, noise=noise)
        rows = [row for row in store.comparisons() if row["strength"] != 0]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
