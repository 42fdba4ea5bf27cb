"""Does RL with a KL penalty end at reference * exp(reward / beta) / Z? Exactly on a toy; sampled on SmolLM2-135M."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.config.loader import load
from kleash.report.wording import number, with_error, with_interval
from kleash.runs.reader import RunReader
from kleash.training.planning import plan_run
from recipes.evidence.numbers import standard_error, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.posterior.enumerable import end_of_training, start

BETA = "algorithm.kl.beta"
BETAS = (0.23, 0.45, 0.9)
SWEEP = (f"{BETA}={','.join(map(str, BETAS))}",)
FILE = Path(__file__).with_name("run.toml")

TOY_BETAS = (0.0, 0.3, 0.5, 1.0)
EXACT = 1e-4
"""Nats, and log odds: what counts as equal on the toy."""
COLLAPSED = 0.99
"""Probability of a single answer, from which a policy counts as collapsed."""

SAMPLES, PROMPTS = 64, 36
"""Of the plan: samples of each prompt, and as many prompts as the runs train on."""
CURVE = (0.32, 0.64, 1.3, 2.6)
"""Betas that are predicted beside those of the runs, to draw a curve."""
LAST = 20
"""Steps at the end of a run that its KL and reward are averaged over."""
WINDOW = 10
"""Steps that a point of the drawn path is averaged over."""

Json = dict[str, Any]
Row = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A run and what was predicted of its beta."""


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep beta."""
    return finished_runs(FILE, SWEEP, folder, jobs)


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Train the toy, predict, and read where each run came to rest."""
    return {
        "toy": {"start": asdict(start()), "ends": [asdict(end_of_training(beta)) for beta in TOY_BETAS]},
        "plan": predicted(FILE, folder),
        "runs": [measure_run(run) for run in runs],
    }


def predicted(file: Path, folder: Path) -> list[Json]:
    """Return what `kleash plan` says of each beta, from the largest; it is kept in the runs' folder."""
    kept = folder / "plan.json"
    if not kept.exists():
        betas = sorted({*BETAS, *CURVE}, reverse=True)
        config = load(file).config
        found = plan_run(config, betas, samples=SAMPLES, prompts=PROMPTS, progress=lambda *_: None)
        kept.write_text(json.dumps(found.to_dict()), encoding="utf-8")
    return [
        {
            "beta": point["beta"],
            "reason": point["reason"],
            **{key: point["predicted"] and _ends(point["predicted"][key]) for key in ("kl", "reward")},
        }
        for point in json.loads(kept.read_text(encoding="utf-8"))["points"]
    ]


def measure_run(run: Run) -> Json:
    """Return a run's KL and reward: over its last steps, on held-out prompts after the last, and on its way."""
    with RunReader(run.path) as reader:
        kl, reward = reader.series("kl/exact_per_sequence"), reader.series("reward/proxy")
        held_out = [reader.series(f"eval/{key}")[-1] for key in ("kl/exact_per_sequence", "reward/proxy")]
    steps = list(zip([value for _, value, _ in kl], [value for _, value, _ in reward], strict=True))
    last, before = steps[-LAST:], steps[-2 * LAST : -LAST]
    return {
        "beta": float(run.values[BETA]),
        "kl": _mean([one for one, _ in last]),
        "kl_before": _mean([one for one, _ in before]),
        "reward": _mean([one for _, one in last]),
        "held_out_kl": list(held_out[0][1:]),
        "held_out_reward": list(held_out[1][1:]),
        "path": [
            [round(fmean(column), 4) for column in zip(*steps[first : first + WINDOW], strict=True)]
            for first in range(0, len(steps) - WINDOW + 1, WINDOW)
        ],
    }


def section(measured: Measured) -> Section:
    """Say where training ended and where it should have."""
    rows = [
        (run, next(point for point in measured["plan"] if point["beta"] == run["beta"])) for run in measured["runs"]
    ]
    return Section(
        expectations=[*_toy_expectations(measured["toy"]), *(_in_band(*row) for row in rows)],
        parts=[
            "**On the toy** (15 sequences; the two best answers are paid the same; exact):",
            _toy_table(measured["toy"]),
            "**On SmolLM2-135M**, one run a beta. *Predicted* is from "
            f"{SAMPLES} samples of the reference for each of the {PROMPTS} training prompts, with 95 % intervals; "
            f"*trained* is the mean of the last {LAST} steps on the same prompts, ± one standard error over steps; "
            f"*held-out* is the last evaluation on the {PROMPTS} other prompts, ± one standard error over prompts. KL "
            "in nats per sequence. *Left on the table* is the predicted optimum of reward − beta × KL less the run's.",
            _table(rows),
        ],
        picture=_picture(measured["plan"], measured["runs"]),
        caption="Reward over KL: predicted optimum with 95 % intervals, and the path and end of each run",
    )


def gap(run: Mapping[str, Any], point: Mapping[str, Any]) -> float:
    """What a run leaves on the table, in reward: the objective r - beta KL predicted for the optimum, minus its own."""
    beta: float = run["beta"]
    best: float = point["reward"][0] - beta * point["kl"][0]
    own: float = run["reward"][0] - beta * run["kl"][0]
    return best - own


def _toy_expectations(toy: Mapping[str, Any]) -> list[Expectation]:
    held = [end for end in toy["ends"] if end["beta"] > 0]
    (free,) = (end for end in toy["ends"] if end["beta"] == 0)
    farthest = max(end["from_posterior"] for end in held)
    moved = max(abs(math.log(end["odds"] / toy["start"]["odds"])) for end in held)
    return [
        Expectation(
            "toy: with a penalty, training ends at the posterior, for every beta",
            f"KL(policy ‖ posterior) below {EXACT:g} nats",
            f"at most {max(farthest, 0.0):.0e}",
            farthest < EXACT,
        ),
        Expectation(
            "toy: answers that are paid the same keep the reference's odds",
            f"log odds moved by less than {EXACT:g}",
            f"at most {moved:.0e}",
            moved < EXACT,
        ),
        Expectation(
            "toy: without a penalty it collapses to one answer",
            f"one answer has more than {COLLAPSED:.0%}".replace("%", " %"),
            f"one has {100 * free['likeliest']:.2f} %",
            free["likeliest"] > COLLAPSED,
        ),
        Expectation(
            "toy: and that answer is one of the best",
            f"the best two have more than {COLLAPSED:.0%}".replace("%", " %"),
            f"they have {100 * free['share_of_best']:.4f} %",
            free["share_of_best"] > COLLAPSED,
        ),
    ]


def _in_band(run: Mapping[str, Any], point: Mapping[str, Any]) -> Expectation:
    """Say whether the last steps lie within the prediction's intervals."""
    inside = {key: point[key] and point[key][1] <= run[key][0] <= point[key][2] for key in ("kl", "reward")}
    words = " and ".join(f"{name} {'inside' if inside[key] else _side(run, point, key)}" for key, name in NAMES.items())
    return Expectation(
        f"SmolLM2, beta {run['beta']:g}: the trained run lies in the predicted 95 % band",
        "KL and reward inside",
        words,
        all(inside.values()),
    )


NAMES = {"kl": "KL", "reward": "reward"}


def _side(run: Mapping[str, Any], point: Mapping[str, Any], key: str) -> str:
    return "below" if run[key][0] < point[key][1] else "above"


def _toy_table(toy: Mapping[str, Any]) -> str:
    titles = (
        "beta",
        "E[reward]",
        "KL, nats per sequence",
        "KL to the posterior",
        "entropy, nats",
        "likeliest answer",
        "both best answers",
        "odds of the best two",
    )
    rows = [
        _toy_row("reference" if index == 0 else f"{end['beta']:g}", end)
        for index, end in enumerate([toy["start"], *sorted(toy["ends"], key=lambda end: -end["beta"])])
    ]
    return table(titles, rows)


def _toy_row(label: str, end: Mapping[str, Any]) -> tuple[str, ...]:
    distance = "" if end["from_posterior"] is None else f"{max(end['from_posterior'], 0.0):.0e}"
    return (
        label,
        f"{end['reward']:.4f}",
        f"{end['kl']:.4f}",
        distance,
        number(end["entropy"]),
        f"{100 * end['likeliest']:.1f} %",
        f"{100 * end['share_of_best']:.2g} %",
        f"{end['odds']:.4f}",
    )


def _table(rows: Sequence[Row]) -> str:
    titles = (
        "beta",
        "KL predicted",
        "trained",
        f"trained, {LAST} steps earlier",
        "held-out",
        "reward predicted",
        "trained",
        "held-out",
        "left on the table, reward",
    )
    return table(
        titles,
        [
            (
                f"{run['beta']:g}",
                _interval(point["kl"], point["reason"]),
                with_error(*run["kl"]),
                with_error(*run["kl_before"]),
                with_error(*run["held_out_kl"]),
                _interval(point["reward"], point["reason"]),
                with_error(*run["reward"]),
                with_error(*run["held_out_reward"]),
                "" if point["kl"] is None else number(gap(run, point)),
            )
            for run, point in sorted(rows, key=lambda row: row[0]["beta"])
        ],
    )


def _interval(ends: Sequence[float] | None, reason: str) -> str:
    return f"not claimed: {reason}" if ends is None else with_interval(*ends)


def _picture(plan: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> str:
    """Draw the runs over the prediction: with their paths, and where they came to rest alone."""
    colors = dict(zip(sorted({run["beta"] for run in runs}), COLORS, strict=False))
    drawn = {"With their paths": True, "Where they came to rest": False}
    panels = [
        Panel(
            title,
            "nats",
            "reward",
            [*_predicted_marks(plan), *(mark for run in runs for mark in _marks(run, colors, paths))],
        )
        for title, paths in drawn.items()
    ]
    legend = [("predicted, 95 %", COLORS[-1])]
    legend += [(f"beta {beta:g}: path, last {LAST} steps (dot), held-out (ring)", colors[beta]) for beta in colors]
    return svg("Reward over KL, predicted and trained", legend, panels)


def _predicted_marks(plan: Sequence[Mapping[str, Any]]) -> list[Mark]:
    known = [point for point in plan if point["kl"]]
    places = [(point["kl"][0], point["reward"][0]) for point in known]
    intervals = [[(point[key][1], point[key][2]) for point in known] for key in ("kl", "reward")]
    return [Mark(places, COLORS[-1], "dashed"), Mark(places, COLORS[-1], "rings", *intervals)]


def _marks(run: Mapping[str, Any], colors: Mapping[float, str], paths: bool) -> list[Mark]:
    color = colors[run["beta"]]
    path = [Mark([(kl, reward) for kl, reward in run["path"]], color)] if paths else []
    return [
        *path,
        Mark([(run["kl"][0], run["reward"][0])], color, "dots"),
        Mark([(run["held_out_kl"][0], run["held_out_reward"][0])], color, "rings"),
    ]


def _mean(values: Sequence[float]) -> list[float | None]:
    return [fmean(values), standard_error(values)]


def _ends(estimate: Mapping[str, float]) -> list[float]:
    return [estimate[key] for key in ("value", "low", "high")]
