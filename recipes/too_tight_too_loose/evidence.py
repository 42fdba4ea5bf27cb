"""Too loose, and the proxy's faults are learned; too tight, and nothing is: one proxy at betas over four decades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from kleash.frontier.points import read_run
from kleash.rewards.reward_model import RewardModel
from kleash.runs.reader import RunReader
from kleash.sweep.recommend import recommend
from kleash.sweep.record import open_sweep
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.overoptimisation.human import human_model, scores
from recipes.overoptimisation.paths import Judge
from recipes.small_model.proxies import reward_model

FILE = Path(__file__).with_name("run.toml")
BETA, SEED = "algorithm.kl.beta", "training.seed"
BETAS = ("0.001", "0.01", "0.03", "0.1", "0.3", "1", "10")
COMPARISONS = 1000

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""
FALLEN, AT_HOME = 0.5, 0.01
"""What is expected: distinct bigrams at the loose end over the reference's, and nats per sequence at the tight end."""
SHOWN = 2
"""Held-out prompts whose continuations are shown, of the first seed."""

Json = dict[str, Any]
KEYS = {
    "gold": "reward/gold",
    "proxy": "reward/proxy",
    "kl": "kl/exact_per_sequence",
    "entropy": "entropy/per_token",
    "distinct_2": "text/distinct_2",
    "repeated_4gram": "text/repeated_4gram",
    "length": "length/mean",
}


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep beta and the seed against one reward model."""
    proxy = reward_model(COMPARISONS, seed=0)
    return finished_runs(FILE, (f"reward.model={proxy}", f"{BETA}={','.join(BETAS)}", f"{SEED}=0,1,2"), folder, jobs)


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read where each run ended, let a second gold score that, and say what the sweep recommends."""
    people = RewardModel.from_folder(human_model(folder))
    judge = partial(scores, people)
    return {"runs": [measure_run(run, judge) for run in runs], "recommended": _recommended(folder)}


def measure_run(run: Run, judge: Judge) -> Json:
    """Return one run's held-out numbers before and after, its alarms and a few of its texts."""
    with RunReader(run.path) as reader:
        before, after = reader.samples("before"), reader.samples("after")
        held_out = {name: [value for _, value, _ in reader.series(f"eval/{key}")] for name, key in KEYS.items()}
        alarms = sorted({event.name for event in reader.events() if event.severity != "info" and not event.ends})
    texts = [one for one in after if one.sample_index == 0 and one.prompt_index < SHOWN]
    start, end = (judge([one.prompt for one in rows], [one.completion for one in rows]) for rows in (before, after))
    return {
        "beta": run.values[BETA],
        "seed": int(run.values[SEED]),
        "before": {name: values[0] for name, values in held_out.items()} | {"people": 0.0},
        "after": {name: values[-1] for name, values in held_out.items()}
        | {"people": (fmean(end) - fmean(start)) / pstdev(start)},
        "alarms": alarms,
        "texts": [[one.prompt, one.completion] for one in texts],
    }


def _recommended(folder: Path) -> list[str]:
    sweep = open_sweep(folder)
    found = recommend(sweep.points, {point: read_run(sweep.run_dir(point)) for point in sweep.points}, None, "gold")
    return found.sentences()


def section(measured: Measured) -> Section:
    """Say what each beta reached; the reference is the policy before the first step."""
    runs = measured["runs"]
    return Section(
        expectations=[
            *_ends_below_middle(runs, "gold", "gold"),
            _ends_below_middle(runs, "people", "the second gold, of people's votes,")[0],
            _falls(runs, "proxy", "the proxy"),
            _falls(runs, "kl", "the KL"),
            *_loose_end(runs),
            *_tight_end(runs),
        ],
        parts=[
            "Held-out openers after the last step, mean ± standard error over seeds. The proxy and the second gold, a "
            "reward model of people's votes, are in sd of their scores on the reference's samples, KL in nats per "
            "sequence. *Alarms* is in how many runs the monitor raised one.",
            _table(runs),
            "What `kleash sweep` says of these runs:",
            "> " + " ".join(measured["recommended"][:2]),
            "The first held-out openers of the first seed, continued:",
            _texts(runs),
        ],
        picture=_picture(runs),
        caption="Gold, a second gold, proxy and KL over log10 beta, mean and standard error over seeds",
    )


def _betas(runs: Sequence[Json]) -> list[str]:
    return sorted({run["beta"] for run in runs}, key=float)


def _after(runs: Sequence[Json], beta: str, name: str) -> list[float]:
    """Return one number a seed, in the order of seeds."""
    found = sorted((run for run in runs if run["beta"] == beta), key=lambda run: int(run["seed"]))
    return [run["after"][name] for run in found]


def leads(runs: Sequence[Json], end: str, name: str = "gold") -> list[float]:
    """Return by how much gold is above that of an end, seed by seed.

    The beta of a seed is chosen by the other seeds, so that a lucky draw does not make its own case.
    """
    gold = {beta: _after(runs, beta, name) for beta in _betas(runs)}
    found = []
    for seed in range(len(gold[end])):
        best = max(gold, key=lambda beta: sum(gold[beta]) - gold[beta][seed])
        found.append(gold[best][seed] - gold[end][seed])
    return found


def is_certain(values: Sequence[float]) -> bool:
    """Return whether a mean over seeds is above 0 by more than chance."""
    error = standard_error(values)
    return error is not None and fmean(values) > CERTAIN * error


def _ends_below_middle(runs: Sequence[Json], name: str, words: str) -> list[Expectation]:
    betas = _betas(runs)
    return [
        Expectation(
            f"{words} is higher in between than at beta {end}",
            f"a lead above 0 by {CERTAIN:g} standard errors",
            over_seeds(leads(runs, end, name)),
            is_certain(leads(runs, end, name)),
        )
        for end in (betas[0], betas[-1])
    ]


def _falls(runs: Sequence[Json], name: str, words: str) -> Expectation:
    means = [fmean(_after(runs, beta, name)) for beta in _betas(runs)]
    falls = sum(later < earlier for earlier, later in pairwise(means))
    return Expectation(
        f"the larger beta, the less {words}",
        "less at each beta than at the one before",
        f"in {falls} of {len(means) - 1}",
        falls == len(means) - 1,
    )


def _loose_end(runs: Sequence[Json]) -> list[Expectation]:
    loose = [run for run in runs if run["beta"] == _betas(runs)[0]]
    ratios = [run["after"]["distinct_2"] / run["before"]["distinct_2"] for run in loose]
    alarmed = sum(bool(run["alarms"]) for run in loose)
    return [
        Expectation(
            "at the loose end it says the same: distinct bigrams over the reference's",
            f"below {FALLEN:g} in every seed",
            over_seeds(ratios),
            max(ratios) < FALLEN,
        ),
        Expectation("and the monitor warns", "in every run", f"in {alarmed} of {len(loose)}", alarmed == len(loose)),
    ]


def _tight_end(runs: Sequence[Json]) -> list[Expectation]:
    tight = [run for run in runs if run["beta"] == _betas(runs)[-1]]
    kl = [run["after"]["kl"] for run in tight]
    gained = [run["after"]["gold"] - run["before"]["gold"] for run in tight]
    error = standard_error(gained) or 0.0
    return [
        Expectation(
            "at the tight end the policy is the reference: KL",
            f"below {AT_HOME:g} nats",
            over_seeds(kl),
            max(kl) < AT_HOME,
        ),
        Expectation(
            "and nothing is gained of gold",
            f"within {CERTAIN:g} standard errors of 0",
            over_seeds(gained),
            abs(fmean(gained)) <= CERTAIN * error,
        ),
    ]


COLUMNS = {
    "gold": "gold (VADER, −1 to 1)",
    "people": "second gold, sd",
    "proxy": "proxy, sd",
    "kl": "KL",
    "entropy": "entropy, nats per token",
    "distinct_2": "distinct bigrams",
    "repeated_4gram": "repeated 4-grams",
    "length": "length, tokens",
}


def _table(runs: Sequence[Json]) -> str:
    betas = _betas(runs)
    starts = [run["before"] for run in runs if run["beta"] == betas[0]]
    rows = [("reference", *(over_seeds([start[name] for start in starts]) for name in COLUMNS), "")]
    for beta in betas:
        found = [run for run in runs if run["beta"] == beta]
        alarmed = sum(bool(run["alarms"]) for run in found)
        rows.append((beta, *(over_seeds(_after(runs, beta, name)) for name in COLUMNS), f"{alarmed} of {len(found)}"))
    return table(("beta", *COLUMNS.values(), "alarms"), rows)


def _texts(runs: Sequence[Json]) -> str:
    shown = sorted((run for run in runs if run["seed"] == 0), key=lambda run: float(run["beta"]))
    quotes = []
    for index, (prompt, _) in enumerate(shown[0]["texts"]):
        lines = [
            f"**{_plain(prompt)}**",
            *(f"*beta = {run['beta']}:* {_plain(run['texts'][index][1])}" for run in shown),
        ]
        quotes.append("> " + "<br>\n> ".join(lines))
    return "\n\n".join(quotes)


def _plain(text: str) -> str:
    """Return a text as Markdown shows it: one line, no markup."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_<>[]|#" else letter for letter in text)
    return " ".join(escaped.split())


PANELS = {
    "gold": ("Gold (VADER)", "reward", COLORS[2]),
    "people": ("Second gold (people's votes)", "sd", COLORS[2]),
    "proxy": ("Proxy", "sd", COLORS[0]),
    "kl": ("KL to the reference", "log₁₀ of nats per sequence", COLORS[3]),
}


def _picture(runs: Sequence[Json]) -> str:
    panels = [Panel(title, "log₁₀ β", unit, _marks(runs, name, color)) for name, (title, unit, color) in PANELS.items()]
    legend = [("mean and standard error over three seeds", COLORS[3])]
    return svg("Where each beta ends", legend, panels)


def _marks(runs: Sequence[Json], name: str, color: str) -> list[Mark]:
    points, intervals = [], []
    for beta in _betas(runs):
        values = _after(runs, beta, name)
        if name == "kl":
            values = [math.log10(max(value, 1e-6)) for value in values]
        mean, error = fmean(values), standard_error(values) or 0.0
        points.append((math.log10(float(beta)), mean))
        intervals.append((mean - error, mean + error))
    return [Mark(points, color), Mark(points, color, "dots", (), intervals)]
