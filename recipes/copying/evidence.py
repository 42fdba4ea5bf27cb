"""What a leash does about a reward with a hole: the proxy pays for copying the prompt, gold does not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.runs.reader import RunReader
from recipes.copying.rewards import overlap
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.small_model.make import DATA, made

FILE = Path(__file__).with_name("run.toml")
PROMPTS, OPENER_WORDS, OPENERS = Path(__file__).parent / "data" / "prompts.txt", 8, 320
REWARD, BETA, SEED = "reward.functions", "algorithm.kl.beta", "training.seed"
HOLED, GOLD = "the proxy", "gold itself"
BETAS = {HOLED: "0,0.1,0.3", GOLD: "0.1,0.3"}

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""
COPIED, STALLED = 0.5, 0.1
"""What is expected without a leash: of the overlap, and of what is gained of gold."""
SHOWN = 2
"""Held-out prompts whose continuations are shown, of the first seed."""

Json = dict[str, Any]
KEYS = {
    "proxy": "reward/proxy",
    "gold": "reward/gold",
    "kl": "kl/exact_per_sequence",
    "distinct_2": "text/distinct_2",
}


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Sweep beta and the seed, on the proxy and on gold itself."""
    made()
    write_prompts(PROMPTS, (DATA / "movies_held_out.txt").read_text(encoding="utf-8").splitlines())
    runs = []
    for reward, betas in BETAS.items():
        asked = [f'{REWARD}=["{FILE.with_name("rewards.py")}:gold"]'] if reward == GOLD else []
        settings = [*asked, f"{BETA}={betas}", f"{SEED}=0,1,2"]
        found = finished_runs(FILE, settings, folder / reward.replace(" ", "_"), jobs)
        runs += [Run({**run.values, REWARD: reward}, run.path) for run in found]
    return runs


def write_prompts(file: Path, reviews: Sequence[str]) -> None:
    """Write the first words of reviews that go on after them, a line each."""
    words = [review.lower().split() for review in reviews]
    openers = [" ".join(one[:OPENER_WORDS]) for one in words if len(one) > OPENER_WORDS]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([*dict.fromkeys(openers)][:OPENERS]) + "\n", encoding="utf-8")


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Read where each run ended, and what its monitor said."""
    return {"runs": [measure_run(run) for run in runs]}


def measure_run(run: Run) -> Json:
    """Return one run's held-out numbers before and after, its alarms and a few of its texts."""
    with RunReader(run.path) as reader:
        held_out = {name: [value for _, value, _ in reader.series(f"eval/{key}")] for name, key in KEYS.items()}
        before, after = reader.samples("before"), reader.samples("after")
        alarms = sorted({event.name for event in reader.events() if event.severity != "info" and not event.ends})
    copied = [[overlap(one.prompt, one.completion) for one in samples] for samples in (before, after)]
    shown = [one for one in after if one.sample_index == 0 and one.prompt_index < SHOWN]
    return {
        "reward": run.values[REWARD],
        "beta": run.values[BETA],
        "seed": int(run.values[SEED]),
        "before": {name: values[0] for name, values in held_out.items()} | {"overlap": fmean(copied[0])},
        "after": {name: values[-1] for name, values in held_out.items()} | {"overlap": fmean(copied[1])},
        "alarms": alarms,
        "texts": [[one.prompt, one.completion] for one in shown],
    }


def section(measured: Measured) -> Section:
    """Say what was copied, what of gold was left, and what the monitor noticed."""
    runs = measured["runs"]
    return Section(
        expectations=_expectations(runs),
        parts=[
            "Held-out openers after the last step, mean ± standard error over seeds; KL in nats per sequence. *Copied* "
            "is the share of a reply's words that stand in its prompt; *alarms* are the rules that spoke, each with "
            "the number of runs, of three.",
            _table(runs),
            "The first held-out openers of the first seed, continued after training on the proxy:",
            _texts(runs),
        ],
        picture=_picture(runs),
        caption="Copied words and gold over KL, for training on the proxy and on gold itself, each run a dot",
    )


def _of(runs: Sequence[Json], reward: str, beta: str | None = None) -> list[Json]:
    return [run for run in runs if run["reward"] == reward and beta in (None, run["beta"])]


def _after(runs: Sequence[Json], reward: str, beta: str, name: str) -> list[float]:
    return [run["after"][name] for run in _of(runs, reward, beta)]


def _betas(runs: Sequence[Json], reward: str) -> list[str]:
    return sorted({run["beta"] for run in _of(runs, reward)}, key=float)


def _expectations(runs: Sequence[Json]) -> list[Expectation]:
    free = _of(runs, HOLED, "0")
    copied = [run["after"]["overlap"] for run in free]
    gained = [run["after"]["gold"] - run["before"]["gold"] for run in free]
    means = [fmean(_after(runs, HOLED, beta, "overlap")) for beta in _betas(runs, HOLED)]
    falls = sum(later < earlier for earlier, later in pairwise(means))
    alarmed = sum(bool(run["alarms"]) for run in free)
    return [
        Expectation(
            "without a leash the prompt is copied", f"above {COPIED:g}", over_seeds(copied), min(copied) > COPIED
        ),
        Expectation("and gold gains little", f"below {STALLED:g}", over_seeds(gained), fmean(gained) < STALLED),
        Expectation(
            "the larger beta, the less is copied",
            "less at each beta than at the one before",
            f"in {falls} of {len(means) - 1}",
            falls == len(means) - 1,
        ),
        *(_lead(runs, beta) for beta in _betas(runs, GOLD)),
        Expectation(
            "the monitor warns without a leash", "in every run", f"in {alarmed} of {len(free)}", alarmed == len(free)
        ),
    ]


def _lead(runs: Sequence[Json], beta: str) -> Expectation:
    """Compare runs of one seed, which have the same held-out openers."""
    pairs = zip(_after(runs, GOLD, beta, "gold"), _after(runs, HOLED, beta, "gold"), strict=True)
    leads = [right - holed for right, holed in pairs]
    return Expectation(
        f"a leash does not make the reward right: at beta {beta}, training on gold itself gains more gold",
        f"a lead above 0 by {CERTAIN:g} standard errors",
        over_seeds(leads),
        fmean(leads) > CERTAIN * (standard_error(leads) or 0.0),
    )


def _table(runs: Sequence[Json]) -> str:
    names = ("overlap", "gold", "proxy", "kl", "distinct_2")
    starts = [run["before"] for run in _of(runs, HOLED, "0")]
    rows = [("reference", "", *(over_seeds([start[name] for start in starts]) for name in names), "")]
    for reward in BETAS:
        for beta in _betas(runs, reward):
            found = _of(runs, reward, beta)
            numbers = (over_seeds(_after(runs, reward, beta, name)) for name in names)
            rows.append((reward, beta, *numbers, _alarms(found)))
    return table(("trained on", "beta", "copied", "gold", "its reward", "KL", "distinct bigrams", "alarms"), rows)


def _alarms(runs: Sequence[Json]) -> str:
    rules = sorted({rule for run in runs for rule in run["alarms"]})
    return ", ".join(f"`{rule}` {sum(rule in run['alarms'] for run in runs)}" for rule in rules) or "none"


def _texts(runs: Sequence[Json]) -> str:
    shown = sorted((run for run in _of(runs, HOLED) if run["seed"] == 0), key=lambda run: float(run["beta"]))
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


def _picture(runs: Sequence[Json]) -> str:
    colors = {HOLED: COLORS[0], GOLD: COLORS[2]}
    panels = [
        Panel(
            title,
            "nats per sequence",
            unit,
            [_dots(_of(runs, reward), name, color) for reward, color in colors.items()],
        )
        for name, title, unit in (("overlap", "Copied", "share of the reply's words"), ("gold", "Gold", "reward"))
    ]
    return svg("A reward with a hole", [(f"trained on {name}", color) for name, color in colors.items()], panels)


def _dots(runs: Sequence[Json], name: str, color: str) -> Mark:
    return Mark([(run["after"]["kl"], run["after"][name]) for run in runs], color, "dots")
