"""How well each run still predicts text outside of its reward, beside the model it started from: `measure.py RUN`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from kleash.config.loader import load
from kleash.models.loading import load_policy
from kleash.runs.reader import RunReader
from kleash.training import state
from kleash.training.pretraining import text_loss, text_rows

KINDS = ("movies", "products", "tweets", "editorials")
"""The last one is what the mix is made of."""
ROW_LENGTH, ROWS, LATE_STEPS = 128, 48, 20


def main(paths: list[str]) -> None:
    """A table: KL of the last steps, held-out reward, and nats per token on each kind of text."""
    first = Path(paths[0])
    with RunReader(first) as reader:
        config = load(None, base=reader.config).config
    policy = load_policy(config.model, context=ROW_LENGTH, seed=config.training.seed)
    rows = {kind: text_rows(f"data/{kind}.txt", ROW_LENGTH, policy)[:ROWS] for kind in KINDS}
    print("| run | KL of the last 20 steps, nats per sequence | reward | " + " | ".join(KINDS) + " |")
    print("|---|---|---|" + "---|" * len(KINDS))
    start = {kind: losses(policy, rows[kind]) for kind in KINDS}
    print("| before training | 0 | | " + " | ".join(f"{start[kind].mean():.3f}" for kind in KINDS) + " |")
    for path in paths:
        with RunReader(path) as reader:
            kl = [value for _, value, _ in reader.series("kl/exact_per_sequence")][-LATE_STEPS:]
            reward = reader.series("eval/reward/proxy")[-1][1]
            checkpoint = reader.latest_checkpoint()
        assert checkpoint is not None, f"{path} has no checkpoint"
        state.load_weights(policy, state.read(checkpoint.path))
        cells = [change(losses(policy, rows[kind]) - start[kind]) for kind in KINDS]
        print(f"| {Path(path).name} | {np.mean(kl):.2f} | {reward:.3f} | " + " | ".join(cells) + " |", flush=True)


@torch.no_grad()
def losses(policy, rows) -> np.ndarray:
    """Nats per token of each row."""
    return np.array([float(text_loss(policy, [row])) / (len(row) - 1) for row in rows])


def change(differences: np.ndarray) -> str:
    """Mean change with its paired standard error over rows."""
    return f"{differences.mean():+.4f} ± {differences.std(ddof=1) / np.sqrt(len(differences)):.4f}"


if __name__ == "__main__":
    main(sys.argv[1:])
