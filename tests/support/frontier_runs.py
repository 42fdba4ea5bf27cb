"""Runs and a best-of-n file with chosen held-out numbers, written as training and `kleash bestofn` write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kleash.runs.records import Checkpoint, Event, Step
from kleash.runs.writer import RunWriter

REWARD = {"functions": ["reward.py:cheer"], "gold": "gold.py:people"}

Row = tuple[float, float | None, float | None]
"""KL, proxy and gold of an evaluation; their standard errors are 3 % of the KL, 0.02 and 0.02."""


def write_run(
    folder: Path,
    rows: Mapping[int, Row],
    *,
    saved: Sequence[int] = (),
    events: Sequence[Event] = (),
    kind: str = "rloo",
    reward: Mapping[str, Any] | None = None,
    kl_key: str = "eval/kl/exact_per_sequence",
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run with an evaluation at each step of `rows`; the checkpoints of `saved` lie on the disk."""
    config = {"algorithm": {"type": kind}, "reward": dict(REWARD if reward is None else reward)} | dict(settings or {})
    with RunWriter.create(folder, config, {"kleash": "0.1.0"}) as run:
        for step, (kl, proxy, gold) in rows.items():
            metrics = {kl_key: kl, "eval/reward/proxy": proxy, "eval/reward/gold": gold}
            known = {key: value for key, value in metrics.items() if value is not None}
            stderr = {key: 0.03 * kl if key == kl_key else 0.02 for key in known}
            run.write_step(Step(step, known, stderr))
        for event in events:
            run.write_event(event)
        for step in saved:
            checkpoint = folder / "checkpoints" / f"step_{step}"
            checkpoint.mkdir(parents=True)
            run.write_checkpoint(Checkpoint(step, checkpoint))
        run.set_status("finished")
    return folder


def rising_and_falling(alpha: float = 0.42, beta: float = 0.22, steps: int = 8) -> dict[int, Row]:
    """Gold on Gao's form from 0.15, peaking at exp(2 alpha / beta - 2) nats; the proxy rises on."""
    rows: dict[int, Row] = {0: (0.0, 0.2, 0.15)}
    for step in range(1, steps):
        d = 0.7 * step
        rows[10 * step] = (d * d, 0.2 + 0.15 * d, 0.15 + d * (alpha - beta * math.log(d)))
    return rows


def write_best_of_n(
    path: Path, sizes: Sequence[int] = (1, 2, 4, 8, 16), reward: Mapping[str, Any] | None = None
) -> Path:
    """Write what `kleash bestofn --json` writes, of samples without ties."""
    found = []
    for n in sizes:
        kl = math.log(n) - (n - 1) / n
        root = math.sqrt(kl)
        found.append(
            {
                "n": n,
                "kl": {"value": kl, "stderr": 0.0, "prompts": 8},
                "kl_bound": kl,
                "proxy": {"value": 0.2 + 0.3 * root, "stderr": 0.02, "prompts": 8},
                "gold": {"value": 0.15 + root * (0.4 - 0.15 * root), "stderr": 0.02, "prompts": 8},
            }
        )
    settings = {"reward": dict(REWARD if reward is None else reward)}
    path.write_text(json.dumps({"schema_version": 1, "sizes": found, "settings": settings}), encoding="utf-8")
    return path
