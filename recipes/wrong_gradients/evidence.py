"""Where penalties end whose value is the KL and whose gradient is not, beside those whose gradient is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.report.wording import number
from kleash.runs.reader import RunReader
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, MORE_COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.small_model.make import made

FILE = Path(__file__).with_name("run.toml")
PENALTY, SEED = "algorithm.kl", "training.seed"
SEEDS = f"{SEED}=0,1,2"
BETA = 0.1
EXACT, K1_REWARD, K3_LOSS, K1_LOSS, K3_REWARD, NONE = (
    "exact in the loss",
    "k1 in the reward",
    "k3 in the loss",
    "k1 in the loss",
    "k3 in the reward",
    "no penalty",
)
PENALTIES: dict[str, Sequence[str]] = {
    EXACT: (),
    K1_REWARD: (f"{PENALTY}.estimator=k1", f"{PENALTY}.placement=reward"),
    K3_LOSS: (f"{PENALTY}.estimator=k3", f"{PENALTY}.scope=token"),
    K1_LOSS: (f"{PENALTY}.estimator=k1", f"{PENALTY}.scope=token", f"{PENALTY}.research_only=true"),
    K3_REWARD: (f"{PENALTY}.estimator=k3", f"{PENALTY}.placement=reward", f"{PENALTY}.research_only=true"),
    NONE: (f"{PENALTY}.beta=0",),
}
"""What each of them changes in run.toml."""

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""
ALIKE, FAR, HELD = 1.5, 3.0, 0.2
"""What is expected of ratios of KLs: of the two right ones, of the wrong ones to exact, of k3 in the loss to none."""

Json = dict[str, Any]
KEYS = {
    "kl": "kl/exact_per_sequence",
    "reward": "reward/proxy",
    "entropy": "entropy/per_token",
    "distinct_2": "text/distinct_2",
}


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep the seed with each penalty, in a folder of its own."""
    made()
    return [
        Run({**run.values, PENALTY: name}, run.path)
        for name, settings in PENALTIES.items()
        for run in finished_runs(FILE, (*settings, SEEDS), folder / name.replace(" ", "_"), jobs)
    ]


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read where each run ended on held-out prompts, and its KL on the way."""
    return {"runs": [measure_run(run) for run in runs]}


def measure_run(run: Run) -> Json:
    """Return one run's numbers; all KLs are exact, whatever was charged."""
    with RunReader(run.path) as reader:
        held_out = {name: reader.series(f"eval/{key}") for name, key in KEYS.items()}
        curves = {name: [round(value, 3) for _, value, _ in reader.series(KEYS[name])] for name in ("kl", "reward")}
    return {
        "penalty": run.values[PENALTY],
        "seed": int(run.values[SEED]),
        "before": {name: series[0][1] for name, series in held_out.items()},
        "after": {name: series[-1][1] for name, series in held_out.items()},
        "curves": curves,
    }


def section(measured: Measured) -> Section:
    """Say where each penalty ended."""
    runs = measured["runs"]
    return Section(
        expectations=_expectations(runs),
        parts=[
            f"Held-out openers after the last step, beta = {BETA:g}, mean ± standard error over seeds. KL is the exact "
            "one, in nats per sequence, whatever was charged; *objective* is reward − beta × KL, which all of them are "
            "meant to raise.",
            _table(runs),
        ],
        picture=_picture(runs),
        caption="KL and reward over steps with each penalty, each run a line",
    )


def _after(runs: Sequence[Json], penalty: str, name: str) -> list[float]:
    return [run["after"][name] for run in runs if run["penalty"] == penalty]


def _objective(runs: Sequence[Json], penalty: str) -> list[float]:
    pairs = zip(_after(runs, penalty, "reward"), _after(runs, penalty, "kl"), strict=True)
    return [reward - BETA * kl for reward, kl in pairs]


def _ratio(runs: Sequence[Json], penalty: str, other: str) -> float:
    return fmean(_after(runs, penalty, "kl")) / fmean(_after(runs, other, "kl"))


def _expectations(runs: Sequence[Json]) -> list[Expectation]:
    right, wrong = _ratio(runs, K1_REWARD, EXACT), _ratio(runs, K1_LOSS, EXACT)
    free, reward, partial = _ratio(runs, K1_LOSS, NONE), _ratio(runs, K3_REWARD, EXACT), _ratio(runs, K3_LOSS, NONE)
    leads = {penalty: _lead(runs, penalty) for penalty in (K1_LOSS, K3_REWARD)}
    return [
        Expectation(
            f"{K1_REWARD}, the same gradient with more noise, ends where exact does: its KL over that of exact",
            f"between 1/{ALIKE:g} and {ALIKE:g}",
            number(right),
            1 / ALIKE < right < ALIKE,
        ),
        Expectation(
            f"{K1_LOSS}, whose expected gradient is zero, holds nothing: its KL over that of exact",
            f"above {FAR:g}",
            number(wrong),
            wrong > FAR,
        ),
        Expectation(
            "and ends as if there were none: its KL over that of no penalty",
            f"between 1/{ALIKE:g} and {ALIKE:g}",
            number(free),
            1 / ALIKE < free < ALIKE,
        ),
        Expectation(
            f"{K3_REWARD}, reverse minus forward, ends further out: its KL over that of exact",
            f"above {FAR:g}",
            number(reward),
            reward > FAR,
        ),
        Expectation(
            f"{K3_LOSS}, the forward KL's gradient, does hold: its KL over that of no penalty",
            f"below {HELD:g}",
            number(partial),
            partial < HELD,
        ),
        *(
            Expectation(
                f"exact reaches more of the objective than {penalty}",
                f"a lead above 0 by {CERTAIN:g} standard errors",
                over_seeds(lead),
                fmean(lead) > CERTAIN * (standard_error(lead) or 0.0),
            )
            for penalty, lead in leads.items()
        ),
    ]


def _lead(runs: Sequence[Json], penalty: str) -> list[float]:
    return [ours - theirs for ours, theirs in zip(_objective(runs, EXACT), _objective(runs, penalty), strict=True)]


def _table(runs: Sequence[Json]) -> str:
    starts = [run["before"] for run in runs if run["penalty"] == EXACT]
    first = [over_seeds([start[name] for start in starts]) for name in KEYS]
    objective = over_seeds([start["reward"] for start in starts])
    rows = [("reference", *first, objective)]
    rows += [
        (penalty, *(over_seeds(_after(runs, penalty, name)) for name in KEYS), over_seeds(_objective(runs, penalty)))
        for penalty in PENALTIES
    ]
    titles = ("penalty", "KL", "reward", "entropy, nats per token", "distinct bigrams", "objective")
    return table(titles, rows)


def _picture(runs: Sequence[Json]) -> str:
    """Draw the KL and the reward twice each: of penalties that may be used, and of those that are refused."""
    colors = dict(zip(PENALTIES, (COLORS[2], *MORE_COLORS, COLORS[0], COLORS[1], COLORS[3]), strict=True))
    shown = {
        "that may be used": (K3_LOSS, K1_REWARD, EXACT),
        "refused, none, and exact": (NONE, K1_LOSS, K3_REWARD, EXACT),
    }
    panels = [
        Panel(
            f"{title}: {words}",
            "step",
            unit,
            [mark for name in names for mark in _marks(runs, name, key, colors[name])],
        )
        for words, names in shown.items()
        for key, title, unit in (("kl", "KL", "nats per sequence"), ("reward", "Reward", "reward"))
    ]
    return svg("KL and reward with each penalty", [(name, color) for name, color in colors.items()], panels)


def _marks(runs: Sequence[Json], penalty: str, key: str, color: str) -> list[Mark]:
    return [Mark([*enumerate(run["curves"][key])], color) for run in runs if run["penalty"] == penalty]
