"""What happens without a KL penalty: the proxy near its ceiling, text that has fallen apart, and what notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.runs.reader import RunReader
from kleash.runs.records import Event, Sample
from recipes.evidence.numbers import over_seeds, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs

FILE = Path(__file__).with_name("run.toml")
BETA, SEED = "algorithm.kl.beta", "training.seed"
SWEEP = (f"{SEED}=0,1,2", f"{BETA}=0,0.02,0.1")
FREE = "0"
"""The beta of the runs without a penalty."""

POSITIVE = 0.05
"""VADER's own limit: a text whose compound score is at least this is positive."""
CEILING, ALL_POSITIVE, FAR, FALLEN, LOOPING = 0.9, 0.99, 3.0, 0.5, 0.1
"""What is expected of the runs without a penalty; README.md says from which published numbers."""
SHOWN = 2
"""Held-out prompts whose continuations are shown, of the first seed."""

Json = dict[str, Any]
KEYS = {
    "reward": "reward/proxy",
    "kl": "kl/exact_per_sequence",
    "kl_per_token": "kl/exact_per_token",
    "entropy": "entropy/per_token",
    "distinct_2": "text/distinct_2",
    "repeated_4gram": "text/repeated_4gram",
    "length": "length/mean",
}


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep beta and the seed."""
    return finished_runs(FILE, SWEEP, folder, jobs)


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read each run's held-out numbers before and after, its curves, its alarms and a few of its texts."""
    return {"runs": [measure_run(run) for run in runs]}


def measure_run(run: Run) -> Json:
    """Return one run's numbers."""
    with RunReader(run.path) as reader:
        held_out = {name: reader.series(f"eval/{key}") for name, key in KEYS.items()}
        before, after = reader.samples("before"), reader.samples("after")
        curves = {name: [value for _, value, _ in reader.series(KEYS[name])] for name in KEYS}
        alarms = first_alarms(reader.events())
    return {
        "beta": run.values[BETA],
        "seed": int(run.values[SEED]),
        "before": _numbers({name: series[0][1] for name, series in held_out.items()}, before),
        "after": _numbers({name: series[-1][1] for name, series in held_out.items()}, after),
        "curves": {name: [round(value, 4) for value in _curve(curves, name)] for name in DRAWN},
        "alarms": alarms,
        "texts": [[one.prompt, one.completion] for one in after if one.sample_index == 0 and one.prompt_index < SHOWN],
    }


def logprob_under_reference(entropy: float, kl_per_token: float) -> float:
    """Return the mean of log reference(token) over tokens that the policy draws, nats per token.

    E[log reference] = -entropy - KL at each prefix: what a perplexity under the reference is the exponential of.
    """
    return -entropy - kl_per_token


def first_alarms(events: Sequence[Event]) -> dict[str, dict[str, int]]:
    """Return by rule, and then by severity, the step at which an alarm was first raised."""
    found: dict[str, dict[str, int]] = {}
    for event in events:
        if event.severity != "info" and not event.ends:
            found.setdefault(event.name, {}).setdefault(event.severity, event.step)
    return found


def section(measured: Measured) -> Section:
    """Say what each beta did; the reference is the policy before the first step."""
    runs = measured["runs"]
    betas = list(dict.fromkeys(run["beta"] for run in runs))
    return Section(
        expectations=_expectations(runs),
        parts=[
            "Held-out prompts, after the last step, mean ± standard error over seeds:",
            _table(runs, betas),
            "What the monitor said: the step of the first warning of each rule, seed by seed, and after a stroke that "
            "of the first critical alarm (– for none).",
            _alarm_table(runs, betas),
            "The first held-out prompts of the first seed, continued:",
            _texts(runs),
        ],
        picture=_picture(runs, betas),
        caption="Reward, KL, entropy and log-probability under the reference over steps, each run a line",
    )


def _numbers(held_out: Mapping[str, float], samples: Sequence[Sample]) -> Json:
    return {
        **held_out,
        "logprob": logprob_under_reference(held_out["entropy"], held_out["kl_per_token"]),
        "positive": fmean(float((one.reward or 0.0) >= POSITIVE) for one in samples),
        "different": len({one.completion for one in samples}) / len(samples),
    }


DRAWN = ("reward", "kl", "entropy", "logprob")


def _curve(curves: Mapping[str, Sequence[float]], name: str) -> Sequence[float]:
    if name != "logprob":
        return curves[name]
    pairs = zip(curves["entropy"], curves["kl_per_token"], strict=True)
    return [logprob_under_reference(entropy, kl) for entropy, kl in pairs]


def _expectations(runs: Sequence[Json]) -> list[Expectation]:
    """Compare runs of one seed, which have the same held-out prompts; a claim holds where it does in every seed."""
    free = [run for run in runs if run["beta"] == FREE]
    held = [run for run in runs if run["beta"] != FREE]
    loosest = [run for run in held if run["beta"] == min((one["beta"] for one in held), key=float)]
    tightest = [run for run in held if run["beta"] == max((one["beta"] for one in held), key=float)]

    def ratio(name: str) -> list[float]:
        return [run["after"][name] / run["before"][name] for run in free]

    reward, positive = [_after(free, name) for name in ("reward", "positive")]
    further = [a / b for a, b in zip(_after(free, "kl"), _after(loosest, "kl"), strict=True)]
    rise = [run["after"]["logprob"] - run["before"]["logprob"] for run in free]
    alarmed = sum(bool(run["alarms"]) for run in free)
    told = sum(bool(run["alarms"]) for run in tightest)
    return [
        _claim("without a penalty the proxy comes near its ceiling of 1", f"above {CEILING}", reward, above(CEILING)),
        _claim("and nearly every reply counts as positive", f"above {ALL_POSITIVE}", positive, above(ALL_POSITIVE)),
        _claim(
            f"it drifts far: KL over that at beta {loosest[0]['beta']}", f"above {FAR:g} times", further, above(FAR)
        ),
        _claim("it stops varying: entropy over the reference's", f"below {FALLEN}", ratio("entropy"), below(FALLEN)),
        _claim(
            "it says the same: distinct bigrams over the reference's",
            f"below {FALLEN}",
            ratio("distinct_2"),
            below(FALLEN),
        ),
        _claim("it loops: repeated 4-grams", f"above {LOOPING}", _after(free, "repeated_4gram"), above(LOOPING)),
        _claim("the reference finds such text likelier than its own, nats per token", "above 0", rise, above(0.0)),
        Expectation(
            "the monitor warns of it",
            "an alarm in every run",
            f"in {alarmed} of {len(free)}",
            alarmed == len(free),
        ),
        Expectation(
            f"and is silent at beta {tightest[0]['beta']}",
            "no alarm in any run",
            f"in {told} of {len(tightest)}",
            told == 0,
        ),
    ]


def above(limit: float) -> Any:
    """Return whether all values lie above a limit, as a function of them."""
    return lambda values: min(values) > limit


def below(limit: float) -> Any:
    """Return whether all values lie below a limit, as a function of them."""
    return lambda values: max(values) < limit


def _claim(claim: str, expected: str, values: Sequence[float], holds: Any) -> Expectation:
    return Expectation(claim, expected, over_seeds(values), holds(values))


def _after(runs: Sequence[Json], name: str) -> list[float]:
    return [run["after"][name] for run in runs]


ROWS = {
    "reward": "reward (VADER, −1 to 1)",
    "positive": "share of positive replies",
    "kl": "KL, nats per sequence",
    "entropy": "entropy, nats per token",
    "distinct_2": "distinct bigrams",
    "repeated_4gram": "repeated 4-grams",
    "different": "different replies",
    "length": "length, tokens",
    "logprob": "log-probability under the reference, nats per token",
}


def _table(runs: Sequence[Json], betas: Sequence[str]) -> str:
    starts = [run["before"] for run in runs if run["beta"] == betas[0]]
    rows = []
    for name, title in ROWS.items():
        ends = [over_seeds(_after([run for run in runs if run["beta"] == beta], name)) for beta in betas]
        rows.append((title, over_seeds([start[name] for start in starts]), *ends))
    return table(("", "reference", *(f"beta = {beta}" for beta in betas)), rows)


def _alarm_table(runs: Sequence[Json], betas: Sequence[str]) -> str:
    rules = sorted({rule for run in runs for rule in run["alarms"]}, key=lambda rule: _earliest(runs, rule))
    rows = []
    for rule in rules:
        cells = [", ".join(_steps(run, rule) for run in runs if run["beta"] == beta) for beta in betas]
        rows.append((f"`{rule}`", *cells))
    return table(("rule", *(f"beta = {beta}" for beta in betas)), rows)


def _steps(run: Json, rule: str) -> str:
    """Return "18/20": warned of at step 18, critical at 20."""
    raised = run["alarms"].get(rule, {})
    steps = [str(raised[severity]) if severity in raised else "–" for severity in ("warning", "critical")]
    return "/".join(steps) if "critical" in raised else steps[0]


def _earliest(runs: Sequence[Json], rule: str) -> tuple[int, str]:
    return min(min(run["alarms"][rule].values()) for run in runs if rule in run["alarms"]), rule


def _texts(runs: Sequence[Json]) -> str:
    first = runs[0]["seed"]
    shown = [run for run in runs if run["seed"] == first]
    quotes = []
    for index in range(len(shown[0]["texts"])):
        lines = [f"**{shown[0]['texts'][index][0].strip()}**"]
        lines += [f"*beta = {run['beta']}:* {_plain(run['texts'][index][1])}" for run in shown]
        quotes.append("> " + "<br>\n> ".join(lines))
    return "\n\n".join(quotes)


def _plain(text: str) -> str:
    """Return a text as Markdown shows it: one line, no markup."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_<>[]|#" else letter for letter in text)
    return " ".join(escaped.split())


PANELS = {
    "reward": ("Reward on the step's prompts", "reward"),
    "kl": ("KL to the reference", "nats per sequence"),
    "entropy": ("Entropy", "nats per token"),
    "logprob": ("Log-probability under the reference", "nats per token"),
}


def _picture(runs: Sequence[Json], betas: Sequence[str]) -> str:
    colors = dict(zip(betas, COLORS, strict=False))
    panels = [
        Panel(title, "step", unit, [Mark([*enumerate(run["curves"][name])], colors[run["beta"]]) for run in runs])
        for name, (title, unit) in PANELS.items()
    ]
    legend = [("no penalty" if beta == FREE else f"beta {beta}", colors[beta]) for beta in betas]
    return svg("Training with and without a KL penalty, a line for each seed", legend, panels)
