"""Does a controller hold the KL where it is wanted? Fixed betas, `Target`, and Ziegler's rule with two horizons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.report.wording import number, percent
from kleash.runs.reader import RunReader
from recipes.evidence.numbers import over_seeds, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.small_model.make import made

FILE = Path(__file__).with_name("run.toml")
BETA, TARGET, SEED = "algorithm.kl.beta", "algorithm.kl.target_nats_per_sequence", "training.seed"
CONTROLLER, HORIZON = "algorithm.kl.controller.type", "algorithm.kl.controller.horizon"
SEEDS, BETAS, TARGETS = f"{SEED}=0,1,2", f"{BETA}=0.02,0.05,0.1", f"{TARGET}=4,8,12"
FIXED, HELD, SLOW, QUICK = "fixed", "Target", "Ziegler, 10,000", "Ziegler, 320"
SWEEPS: dict[str, Sequence[str]] = {
    FIXED: (BETAS, SEEDS),
    HELD: (f"{CONTROLLER}=target", TARGETS, SEEDS),
    SLOW: (f"{CONTROLLER}=ziegler", f"{HORIZON}=10_000", TARGETS, SEEDS),
    QUICK: (f"{CONTROLLER}=ziegler", f"{HORIZON}=320", TARGETS, SEEDS),
}
"""Horizons in sequences: the released code's, and ten batches, which is the paper's gain of 0.1 a step."""

WITHIN, WINDOW = 0.2, 10
"""A run has settled when its KL, averaged over so many steps, stays this near to its target."""
NEAR, SOON, SCATTER = 0.1, 60, 1.25
"""What is expected: of the bias, of the step of settling, and of a fixed beta's largest KL over its least."""

Json = dict[str, Any]


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep each controller in a folder of its own."""
    made()
    return [
        Run({**run.values, CONTROLLER: name}, run.path)
        for name, settings in SWEEPS.items()
        for run in finished_runs(FILE, settings, folder / _folder(name), jobs)
    ]


def _folder(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "_")


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read KL and beta of every step, and what was reached on held-out prompts."""
    return {"runs": [measure_run(run) for run in runs]}


def measure_run(run: Run) -> Json:
    """Return one run's numbers; those of a KL that is held are over the last half of its steps."""
    with RunReader(run.path) as reader:
        kl = [value for _, value, _ in reader.series("kl/exact_per_sequence")]
        beta = [value for _, value, _ in reader.series("control/beta")]
        reward, held_out = (reader.series(f"eval/{key}")[-1][1] for key in ("reward/proxy", "kl/exact_per_sequence"))
    half = len(kl) // 2
    target = float(run.values[TARGET]) if TARGET in run.values else None
    return {
        "controller": run.values[CONTROLLER],
        "target": target,
        "beta": run.values.get(BETA),
        "seed": int(run.values[SEED]),
        "kl": fmean(kl[half:]),
        "error": target and fmean(abs(value / target - 1) for value in kl[half:]),
        "settled": target and settling(kl, target),
        "steps": len(kl),
        "beta_last": fmean(beta[half:]),
        "held_out_reward": reward,
        "held_out_kl": held_out,
        "path": [round(value, 3) for value in kl],
    }


def settling(kl: Sequence[float], target: float) -> int | None:
    """Return the first step from which on the running mean stays near the target; None where it does not."""
    means = [fmean(kl[max(0, end - WINDOW) : end]) for end in range(1, len(kl) + 1)]
    away = [step for step, mean in enumerate(means) if abs(mean / target - 1) > WITHIN]
    first = away[-1] + 1 if away else 0
    return first if first < len(kl) else None


def section(measured: Measured) -> Section:
    """Say where each controller's KL lay, and how far from its target."""
    runs = measured["runs"]
    return Section(
        expectations=[
            _scatter(runs),
            *(_holds(runs, target) for target in _targets(runs)),
            _nearer(runs),
            *_ziegler(runs),
        ],
        parts=[
            f"The last half of the {runs[0]['steps']} steps, mean ± standard error over seeds. *Error* is the mean of "
            "|KL / target − 1|. *Settled* is the step from which on the mean of ten steps stays within "
            f"{percent(WITHIN)} of the target, seed by seed (– for never). KL in nats per sequence.",
            _held_table(runs),
            "At fixed prices, nothing is aimed at; *largest over least* is of the KL, over seeds:",
            _fixed_table(runs),
        ],
        picture=_picture(runs),
        caption="KL over steps: at fixed betas, and held at 4, 8 and 12 nats by each controller",
    )


def _of(runs: Sequence[Json], controller: str, target: float | None = None, beta: str | None = None) -> list[Json]:
    return [
        run
        for run in runs
        if run["controller"] == controller and target in (None, run["target"]) and beta in (None, run["beta"])
    ]


def _targets(runs: Sequence[Json]) -> list[float]:
    return sorted({run["target"] for run in runs if run["target"]})


def _betas(runs: Sequence[Json]) -> list[str]:
    return list(dict.fromkeys(run["beta"] for run in _of(runs, FIXED)))


def _bias(runs: Sequence[Json]) -> list[float]:
    return [run["kl"] / run["target"] - 1 for run in runs]


def _ratio(runs: Sequence[Json]) -> float:
    return max(run["kl"] for run in runs) / min(run["kl"] for run in runs)


def _scatter(runs: Sequence[Json]) -> Expectation:
    ratios = {beta: _ratio(_of(runs, FIXED, beta=beta)) for beta in _betas(runs)}
    return Expectation(
        "a fixed beta buys another KL with each seed: its largest over its least",
        f"above {SCATTER:g} at some beta",
        ", ".join(f"{number(ratio)} at {beta}" for beta, ratio in ratios.items()),
        max(ratios.values()) > SCATTER,
    )


def _holds(runs: Sequence[Json], target: float) -> Expectation:
    held = _of(runs, HELD, target)
    settled = [run["settled"] for run in held]
    bias = _bias(held)
    in_time = all(step is not None and step <= SOON for step in settled)
    return Expectation(
        f"`Target` holds {target:g} nats",
        f"bias within {percent(NEAR)}; settled by step {SOON} in every seed",
        f"{_percents(bias)}; {_steps(settled)}",
        abs(fmean(bias)) <= NEAR and in_time,
    )


def _nearer(runs: Sequence[Json]) -> Expectation:
    """Compare how much the KL differs between seeds when it is held and when the price is fixed."""
    held = {target: _ratio(_of(runs, HELD, target)) for target in _targets(runs)}
    least = min(_ratio(_of(runs, FIXED, beta=beta)) for beta in _betas(runs))
    return Expectation(
        "`Target` makes seeds alike: its largest KL over its least",
        "below that of every fixed beta",
        ", ".join(f"{number(ratio)} at {target:g}" for target, ratio in held.items()),
        max(held.values()) < least,
    )


def _ziegler(runs: Sequence[Json]) -> list[Expectation]:
    slow = {target: _bias(_of(runs, SLOW, target)) for target in _targets(runs)}
    quick, held = ({t: [run["error"] for run in _of(runs, name, t)] for t in slow} for name in (QUICK, HELD))
    return [
        Expectation(
            "Ziegler's rule with the released horizon of 10,000 sequences does not arrive",
            f"bias above {percent(WITHIN)} at some target",
            ", ".join(f"{_percents(bias)} at {target:g}" for target, bias in slow.items()),
            any(abs(fmean(bias)) > WITHIN for bias in slow.values()),
        ),
        Expectation(
            "with the paper's gain it swings: its error over that of `Target`",
            "above 1 at every target",
            ", ".join(f"{number(fmean(quick[target]) / fmean(held[target]))} at {target:g}" for target in slow),
            all(fmean(quick[target]) > fmean(held[target]) for target in slow),
        ),
    ]


def _percents(values: Sequence[float]) -> str:
    return f"{over_seeds([100 * value for value in values])} %"


def _steps(settled: Sequence[int | None]) -> str:
    return ", ".join("–" if step is None else str(step) for step in settled)


def _held_table(runs: Sequence[Json]) -> str:
    rows = []
    for target in _targets(runs):
        for controller in (HELD, QUICK, SLOW):
            found = _of(runs, controller, target)
            rows.append(
                (
                    f"{target:g}",
                    controller,
                    over_seeds([run["kl"] for run in found]),
                    _percents(_bias(found)),
                    _percents([run["error"] for run in found]),
                    _steps([run["settled"] for run in found]),
                    _range([run["beta_last"] for run in found]),
                    over_seeds([run["held_out_reward"] for run in found]),
                )
            )
    titles = ("target", "controller", "KL", "bias", "error", "settled", "beta, over seeds", "held-out reward")
    return table(titles, rows)


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


def _fixed_table(runs: Sequence[Json]) -> str:
    rows = []
    for beta in _betas(runs):
        found = _of(runs, FIXED, beta=beta)
        kl, reward = ([run[key] for run in found] for key in ("kl", "held_out_reward"))
        rows.append((beta, over_seeds(kl), _range(kl), number(_ratio(found)), over_seeds(reward)))
    return table(("beta", "KL", "KL, over seeds", "largest over least", "held-out reward"), rows)


def _picture(runs: Sequence[Json]) -> str:
    """Draw a panel of the fixed betas and one for each target, each run a line."""
    dark, light, blue, grey = COLORS[:4]
    colors: Mapping[str, str] = {HELD: blue, QUICK: dark, SLOW: light}
    shades = dict(zip(_betas(runs), (dark, light, blue), strict=False))
    fixed = [Mark([*enumerate(run["path"])], shades[run["beta"]]) for run in _of(runs, FIXED)]
    panels = [Panel(f"Fixed: beta {', '.join(shades)} (red, yellow, blue)", "step", "nats per sequence", fixed)]
    for target in _targets(runs):
        lines = [
            Mark([*enumerate(run["path"])], colors[name])
            for name in (SLOW, QUICK, HELD)
            for run in _of(runs, name, target)
        ]
        aim = Mark([(0, target), (runs[0]["steps"] - 1, target)], grey, "dashed")
        panels.append(Panel(f"Held at {target:g} nats", "step", "nats per sequence", [*lines, aim]))
    legend = [*((name, color) for name, color in colors.items()), ("target", grey)]
    return svg("KL over steps, a line for each seed", legend, panels)
