"""Proxies of few and many comparisons, optimised by RL with and without a KL penalty, and by best-of-n."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kleash.cli import bestofn
from kleash.frontier.points import Point, read_best_of_n, read_run
from kleash.kl.best_of_n import kl_bound
from kleash.rewards.reward_model import RewardModel
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample
from recipes.evidence.recipe import Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.overoptimisation import human, said
from recipes.overoptimisation.paths import (
    by_judge,
    held_out_samples,
    in_sd,
    lead_at,
    lead_at_equal_drift,
    plain,
    spread,
    strands,
    value,
)
from recipes.overoptimisation.said import BEST_OF_N, CHOSEN_OF, FREE, PEOPLE, PRICED
from recipes.small_model.proxies import reward_model

FILE = Path(__file__).with_name("run.toml")
MODEL, BETA, SEED, COUNT = "reward.model", "algorithm.kl.beta", "training.seed", "comparisons"
COUNTS, SEEDS = (250, 1000, 4000), (0, 1, 2)
SIZES, DRAWN = (1, 2, 4, 8, 16, 32), 64
"""The n of best-of-n, and samples of each prompt."""
JUDGED = 2
"""Samples of each held-out prompt, of four, that the second gold reads."""
LEAST = 0.5
"""Square root of KL from which paths are compared: nearer to the start there is nothing to tell apart."""

Json = dict[str, Any]
Paths = dict[str, dict[tuple[int, int], list[Point]]]
"""Points by what they are of, and by comparisons and seed."""


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep beta for each reward model; a reward model and the runs that optimise it have the same seed."""
    runs: list[Run] = []
    for seed in SEEDS:
        for count in COUNTS:
            settings = [*_settings(count, seed), f"{BETA}=0,0.05"]
            found = finished_runs(FILE, settings, folder / f"comparisons_{count}_seed_{seed}", jobs)
            runs += [Run({**run.values, SEED: str(seed), COUNT: str(count)}, run.path) for run in found]
    return runs


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Put gold and proxy on paths, ask the frontier of each size with the seeds pooled, and compare paths."""
    paths, texts = _paths(runs, folder)
    return {
        "accuracy": [
            {"count": count, "seed": seed, "value": accuracy(reward_model(count, seed))} for count, seed in paths[FREE]
        ],
        "accuracy_of_people": accuracy(human.human_model(folder)),
        "paths": [
            {"of": of, "count": count, "seed": seed, "points": [plain(point) for point in points]}
            for of, found in paths.items()
            for (count, seed), points in found.items()
        ],
        "strands": [
            {"of": of, "count": count, **strand}
            for of, found in paths.items()
            for count in COUNTS
            for strand in strands([point for key, points in found.items() if key[0] == count for point in points])
        ],
        "differences": [
            {
                "count": count,
                "seed": seed,
                "gold_of_best_of_n": lead_at(chosen, paths[FREE][count, seed], "gold", kl_bound(CHOSEN_OF)),
                "gold_of_penalty": lead_at_equal_drift(priced, paths[FREE][count, seed], "gold", LEAST),
                "proxy_of_penalty": lead_at_equal_drift(priced, paths[FREE][count, seed], "proxy", LEAST),
            }
            for (count, seed), priced in paths[PRICED].items()
            for chosen in [paths[BEST_OF_N][count, seed]]
        ],
        "texts": texts,
    }


def section(measured: Measured) -> Section:
    """Say which of the published findings came out."""
    return said.section(measured)


def accuracy(run: Path) -> float:
    """Return that of a reward model on its held-out comparisons, after the last step."""
    with RunReader(run) as reader:
        return reader.series("eval/preference/accuracy")[-1][1]


def best_of_n_file(count: int, seed: int, folder: Path) -> Path:
    """Return what `kleash bestofn` measured under a reward model, kept in the runs' folder."""
    kept = folder / f"bestofn_{count}_seed_{seed}.json"
    if not kept.exists():
        bestofn.run([str(FILE), *_settings(count, seed)], sizes=SIZES, samples=DRAWN, json_path=str(kept))
    return kept


def _settings(count: int, seed: int) -> list[str]:
    return [f"{MODEL}={reward_model(count, seed)}", f"{SEED}={seed}"]


def _paths(runs: Sequence[Run], folder: Path) -> tuple[Paths, list[Json]]:
    """Return all paths, and texts of the runs without a penalty."""
    paths: Paths = {FREE: {}, PRICED: {}, BEST_OF_N: {}, PEOPLE: {}}
    texts: list[Json] = []
    judge = partial(human.scores, RewardModel.from_folder(human.human_model(folder), batch_size=64))
    for run in runs:
        count, seed = key = int(run.values[COUNT]), int(run.values[SEED])
        of, name = f"beta {run.values[BETA]}", f"{count} comparisons"
        with RunReader(run.path) as reader:
            samples = held_out_samples(reader)
        sd = spread(samples)
        points = paths[of][key] = in_sd(read_run(run.path), sd, name)
        if of == FREE:
            paths[BEST_OF_N][key] = in_sd(read_best_of_n(best_of_n_file(count, seed, folder)), sd, name)
            paths[PEOPLE][key] = by_judge(points, [one for one in samples if one.sample_index < JUDGED], judge)
            texts += [{"count": count, "seed": seed, **text} for text in _texts(points, samples)]
    return paths, texts


def _texts(points: Sequence[Point], samples: Sequence[Sample]) -> list[Json]:
    """Return how a run continued its first held-out prompt: at the start, where gold was best, and at the end."""
    best = max(points, key=lambda point: value(point, "gold"))
    shown = {one.step: one for one in samples if (one.prompt_index, one.sample_index) == (0, 0)}
    return [
        {"step": point.at, "kl": point.kl.value, "text": shown[point.at].prompt + shown[point.at].completion}
        for point in (points[0], best, points[-1])
    ]
