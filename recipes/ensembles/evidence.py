"""Reward ensembles against one reward model, at the same small price on drift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.runs.reader import RunReader
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, MORE_COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.small_model.proxies import reward_model

FILE = Path(__file__).with_name("run.toml")
MODEL, COMBINE, BETA, SEED = "reward.model", "reward.combine", "algorithm.kl.beta", "training.seed"
SEEDS, COMPARISONS, MEMBERS, PRICE = (0, 1, 2), 250, 4, "0.1"
FREE, ONE = "one, no penalty", "one"
COMBINED = {"mean": "mean", "worst_case": "worst case", "mean_minus_sd": "mean minus sd"}
"""How the members of an ensemble make one number, with the name of each here."""

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""

Json = dict[str, Any]
KEYS = {"gold": "reward/gold", "proxy": "reward/proxy", "kl": "kl/exact_per_sequence", "distinct_2": "text/distinct_2"}


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Optimise one reward model and an ensemble for each seed; the reward models have the seed of their runs."""
    runs = []
    for seed in SEEDS:
        one, ensemble = (reward_model(COMPARISONS, seed, members) for members in (1, MEMBERS))
        common = f"{SEED}={seed}"
        alone = finished_runs(FILE, (f"{MODEL}={one}", f"{BETA}=0,{PRICE}", common), folder / f"one_{seed}", jobs)
        settings = (f"{MODEL}={ensemble}", f"{BETA}={PRICE}", f"{COMBINE}={','.join(COMBINED)}", common)
        several = finished_runs(FILE, settings, folder / f"ensemble_{seed}", jobs)
        runs += [Run({COMBINE: ONE if run.values[BETA] == PRICE else FREE, SEED: str(seed)}, run.path) for run in alone]
        runs += [Run({COMBINE: COMBINED[run.values[COMBINE]], SEED: str(seed)}, run.path) for run in several]
    return runs


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read the held-out numbers of each run at each evaluation."""
    return {"runs": [measure_run(run) for run in runs]}


def measure_run(run: Run) -> Json:
    """Return one run's held-out path."""
    with RunReader(run.path) as reader:
        series = {name: reader.series(f"eval/{key}") for name, key in KEYS.items()}
    return {
        "reward": run.values[COMBINE],
        "seed": int(run.values[SEED]),
        "steps": [step for step, _, _ in series["gold"]],
        **{name: [round(value, 5) for _, value, _ in found] for name, found in series.items()},
    }


def section(measured: Measured) -> Section:
    """Say what each way of combining reached."""
    runs = measured["runs"]
    return Section(
        expectations=_expectations(runs),
        parts=[
            f"Held-out openers, mean ± standard error over seeds; {COMPARISONS} comparisons, {MEMBERS} members, beta "
            f"{PRICE} but in the second row. *Best* is the best evaluation along the run; the proxy is in sd of each "
            "one's scores on the reference's samples, KL in nats per sequence.",
            _table(runs),
        ],
        picture=_picture(runs),
        caption="Gold and proxy over steps with one reward model and with ensembles, mean over seeds",
    )


def _of(runs: Sequence[Json], reward: str) -> list[Json]:
    return sorted((run for run in runs if run["reward"] == reward), key=lambda run: int(run["seed"]))


def _ends(runs: Sequence[Json], reward: str, name: str) -> list[float]:
    return [run[name][-1] for run in _of(runs, reward)]


def leads(runs: Sequence[Json], reward: str, other: str) -> list[float]:
    """Return by how much more gold there is at the end, seed by seed: those have the same held-out openers."""
    return [ours - theirs for ours, theirs in zip(_ends(runs, reward, "gold"), _ends(runs, other, "gold"), strict=True)]


def _expectations(runs: Sequence[Json]) -> list[Expectation]:
    falls = [max(run["gold"]) - run["gold"][-1] for run in _of(runs, FREE)]
    mean, *careful = COMBINED.values()
    return [
        Expectation(
            "one reward model without a penalty is over-optimised: gold falls from its best to the end",
            "a fall in every seed",
            over_seeds(falls),
            min(falls) > 0,
        ),
        _ahead("a small price helps: gold at the end with it and without", leads(runs, ONE, FREE)),
        *(
            _ahead(f"{way} of {MEMBERS} ends above one, at the same beta", leads(runs, way, ONE))
            for way in (mean, *careful)
        ),
        *(_ahead(f"{way} ends above mean", leads(runs, way, mean)) for way in careful),
    ]


def _ahead(claim: str, lead: Sequence[float]) -> Expectation:
    certain = fmean(lead) > CERTAIN * (standard_error(lead) or 0.0)
    return Expectation(claim, f"a lead above 0 by {CERTAIN:g} standard errors", over_seeds(lead), certain)


def _rewards() -> list[str]:
    return [FREE, ONE, *COMBINED.values()]


def _table(runs: Sequence[Json]) -> str:
    starts = [[run[name][0] for run in _of(runs, ONE)] for name in KEYS]
    rows = [("reference", "", *map(over_seeds, starts))]
    for reward in _rewards():
        best = over_seeds([max(run["gold"]) for run in _of(runs, reward)])
        rows.append((reward, best, *(over_seeds(_ends(runs, reward, name)) for name in KEYS)))
    return table(("reward", "gold, best", "gold, end", "proxy", "KL", "distinct bigrams"), rows)


def _picture(runs: Sequence[Json]) -> str:
    colors = dict(zip(_rewards(), (COLORS[3], COLORS[0], COLORS[1], COLORS[2], MORE_COLORS[0]), strict=True))
    panels = [
        Panel(title, "step", unit, [_mean_path(_of(runs, reward), name, color) for reward, color in colors.items()])
        for name, title, unit in (("gold", "Gold", "reward"), ("proxy", "Proxy", "sd"))
    ]
    return svg("Gold and proxy with one reward model and with ensembles", list(colors.items()), panels)


def _mean_path(runs: Sequence[Json], name: str, color: str) -> Mark:
    means = [fmean(values) for values in zip(*(run[name] for run in runs), strict=True)]
    return Mark(list(zip(runs[0]["steps"], means, strict=True)), color)
