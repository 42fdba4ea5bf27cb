"""Skills outside of the reward, lost in an earlier fine-tuning: what beta can do about them, and what a mix does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from kleash.api import train as train_once
from kleash.report.wording import percent
from kleash.runs.reader import RunReader
from recipes.alignment_tax import skills
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, MORE_COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.small_model.make import DATA, SUMS, SUMS_REPEATED, made

FILE = Path(__file__).with_name("run.toml")
OWN_DATA = FILE.with_name("data")
BETA, GAMMA, SEED, MODEL = "algorithm.kl.beta", "pretraining.gamma", "training.seed", "model"
SEEDS = (0, 1, 2)
PRETRAINED, DAMAGED, PRICED, PRICED_MORE, MIXED, MIXED_MORE = (
    "pretrained",
    "after the damaging SFT",
    "RL, beta 0.05",
    "RL, beta 5",
    "RL, beta 0.05, mix with gamma 0.3",
    "RL, beta 0.05, mix with gamma 3",
)
DAMAGING, GENERAL = "tweets", ("movies", "products", "editorials", "tweets")
"""The kind of text that the SFT is on, and those of the mix, to which the sums are added."""

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""
STAYS, BACK, LITTLE = 0.8, 0.5, 0.1
"""What is expected: share of the damage that beta x 100 leaves and the mix takes away; reward that the mix costs."""

Json = dict[str, Any]


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Damage the model once for each seed, and go on from there at two prices and with two mixes."""
    made()
    write_texts(OWN_DATA)
    runs = []
    for seed in SEEDS:
        common = (f"model.adapter={last_checkpoint(damaged(folder, seed))}", f"{SEED}={seed}")
        mix = (
            f"pretraining.path={OWN_DATA / 'mix.jsonl'}",
            "pretraining.rows_per_update=16",
            "pretraining.row_length=64",
        )
        priced = finished_runs(FILE, (*common, f"{BETA}=0.05,5"), folder / f"priced_{seed}", jobs)
        mixed = finished_runs(FILE, (*common, *mix, f"{GAMMA}=0.3,3"), folder / f"mixed_{seed}", jobs)
        names = zip((PRICED, PRICED_MORE, MIXED, MIXED_MORE), (*priced, *mixed), strict=True)
        runs += [Run({MODEL: name, SEED: str(seed)}, run.path) for name, run in names]
    return runs


def write_texts(folder: Path) -> None:
    """Write `damaging.jsonl`, one kind of text alone, and `mix.jsonl`, all of them with the sums."""
    texts = {kind: (DATA / f"{kind}.txt").read_text(encoding="utf-8").splitlines() for kind in (*GENERAL, SUMS)}
    mix = [text for kind in GENERAL for text in texts[kind]] + texts[SUMS] * SUMS_REPEATED
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("damaging", texts[DAMAGING]), ("mix", mix)):
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in rows if text)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def damaged(folder: Path, seed: int) -> Path:
    """Return the run of the damaging SFT; it is trained where it is not there, and put there when it is finished."""
    run = folder / f"sft_{seed}"
    if not run.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as place:
            settings = {
                "name": run.name,
                "output_dir": place,
                "model.dtype": "float32",
                "demonstrations.held_out": 100,
                "demonstrations.row_length": 128,
                "algorithm.type": "sft",
                "training.steps": 150,
                "training.prompts_per_step": 32,
                "training.learning_rate": 5e-3,
                "training.lr_schedule": "linear",
                "training.eval_every": 150,
                "training.checkpoint_every": 150,
                "training.seed": seed,
            }
            train_once(str(made()), demonstrations=str(OWN_DATA / "damaging.jsonl"), settings=settings)
            (Path(place) / run.name).rename(run)
    return run


def last_checkpoint(run: Path) -> Path:
    """Return the adapter that a finished run ended with."""
    with RunReader(run) as reader:
        checkpoint = reader.latest_checkpoint()
    assert checkpoint is not None, f"{run} has no checkpoint"
    return checkpoint.path


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Measure the skills of every model, and read what the runs reached."""
    return {
        "pretrained": asdict(skills.measure(None)),
        "damaged": [asdict(skills.measure(last_checkpoint(folder / f"sft_{seed}"))) for seed in SEEDS],
        "runs": [measure_run(run) for run in runs],
    }


def measure_run(run: Run) -> Json:
    """Return one run's skills after the last step, with its held-out reward before and after, and its KL."""
    with RunReader(run.path) as reader:
        reward, kl = (
            [v for _, v, _ in reader.series(f"eval/{key}")] for key in ("reward/proxy", "kl/exact_per_sequence")
        )
    return {
        "model": run.values[MODEL],
        "seed": int(run.values[SEED]),
        **asdict(skills.measure(last_checkpoint(run.path))),
        "reward_before": reward[0],
        "reward": reward[-1],
        "kl": kl[-1],
    }


def section(measured: Measured) -> Section:
    """Say what was lost, and what came back."""
    return Section(
        expectations=_expectations(measured),
        parts=[
            "Mean ± standard error over seeds. *Loss* is on held-out editorials and product reviews, nats per token; "
            "*sums* are the hundred sums of two digits, answered to the letter; *reward* and *KL* to the damaged "
            "model, nats per sequence, are on held-out openers.",
            _table(measured),
        ],
        picture=_picture(measured),
        caption="Loss on general text and right sums over reward, each run a dot",
    )


def _of(measured: Measured, name: str, key: str) -> list[float]:
    """Return one number a seed."""
    if name == DAMAGED:
        return [one[key] for one in measured["damaged"]]
    return [run[key] for run in measured["runs"] if run["model"] == name]


def damage_left(measured: Measured, name: str) -> list[float]:
    """Return, seed by seed, how much of the loss that the SFT added is still there: 1 for all, 0 for none."""
    base = measured["pretrained"]["loss"]
    return [
        (after - base) / (before - base)
        for after, before in zip(_of(measured, name, "loss"), _of(measured, DAMAGED, "loss"), strict=True)
    ]


def _expectations(measured: Measured) -> list[Expectation]:
    base = measured["pretrained"]
    lost = [loss - base["loss"] for loss in _of(measured, DAMAGED, "loss")]
    forgotten = [base["sums"] - share for share in _of(measured, DAMAGED, "sums")]
    left = {name: damage_left(measured, name) for name in (PRICED, PRICED_MORE, MIXED_MORE)}
    sums = {name: fmean(_of(measured, name, "sums")) for name in (DAMAGED, PRICED_MORE, MIXED_MORE)}
    price, cost = (
        [a - b for a, b in zip(_of(measured, PRICED, "reward"), _of(measured, name, "reward"), strict=True)]
        for name in (PRICED_MORE, MIXED_MORE)
    )
    halfway = sums[DAMAGED] + BACK * (base["sums"] - sums[DAMAGED])
    return [
        _above("the SFT costs loss on general text", lost),
        _above("and sums", forgotten),
        Expectation(
            "RL with a penalty does not repair it: damage left",
            f"above {percent(STAYS)}",
            _percents(left[PRICED]),
            fmean(left[PRICED]) > STAYS,
        ),
        Expectation(
            "beta × 100 does not, either: its reference is the damaged model",
            f"above {percent(STAYS)} left",
            _percents(left[PRICED_MORE]),
            fmean(left[PRICED_MORE]) > STAYS,
        ),
        _above("and costs reward", price),
        Expectation(
            "a pretraining mix takes it away: damage left",
            f"below {percent(BACK)}",
            _percents(left[MIXED_MORE]),
            fmean(left[MIXED_MORE]) < BACK,
        ),
        Expectation(
            "and brings the sums back",
            f"more than half of what was lost: above {percent(halfway)}",
            _percents(_of(measured, MIXED_MORE, "sums")),
            sums[MIXED_MORE] > halfway,
        ),
        Expectation("at little reward", f"below {LITTLE:g}", over_seeds(cost), fmean(cost) < LITTLE),
    ]


def _above(claim: str, values: Sequence[float]) -> Expectation:
    certain = fmean(values) > CERTAIN * (standard_error(values) or 0.0)
    return Expectation(claim, f"above 0 by {CERTAIN:g} standard errors", over_seeds(values), certain)


def _percents(values: Sequence[float]) -> str:
    return f"{over_seeds([100 * value for value in values])} %"


def _table(measured: Measured) -> str:
    base = measured["pretrained"]
    start = over_seeds(_of(measured, PRICED, "reward_before"))
    rows = [(PRETRAINED, f"{base['loss']:.3f}", f"{100 * base['sums']:.0f} %", "", "", "")]
    for name in (DAMAGED, PRICED, PRICED_MORE, MIXED, MIXED_MORE):
        trained = name != DAMAGED
        rows.append(
            (
                name,
                over_seeds(_of(measured, name, "loss")),
                _percents(_of(measured, name, "sums")),
                _percents(damage_left(measured, name)),
                over_seeds(_of(measured, name, "reward")) if trained else start,
                over_seeds(_of(measured, name, "kl")) if trained else "0",
            )
        )
    return table(("model", "loss", "sums right", "damage left", "reward", "KL"), rows)


def _picture(measured: Measured) -> str:
    names = (PRICED, PRICED_MORE, MIXED, MIXED_MORE)
    colors = dict(zip(names, (COLORS[0], COLORS[1], COLORS[2], MORE_COLORS[0]), strict=True))
    rewards = [reward for name in names for reward in _of(measured, name, "reward")]
    panels = []
    for key, title, unit in (
        ("loss", "Loss on general text", "nats per token"),
        ("sums", "Sums that are right", "share"),
    ):
        marks = [Mark(_pairs(measured, name, key), color, "dots") for name, color in colors.items()]
        level = measured["pretrained"][key]
        lowest = [(one, fmean(_of(measured, DAMAGED, key))) for one in (0.0, max(rewards))]
        marks += [Mark([(0.0, level), (max(rewards), level)], COLORS[3], "dashed"), Mark(lowest, COLORS[3])]
        panels.append(Panel(title, "reward", unit, marks))
    legend = [*colors.items(), ("dashed: pretrained; line: damaged", COLORS[3])]
    return svg("Skills outside of the reward, over the reward", legend, panels)


def _pairs(measured: Measured, name: str, key: str) -> list[tuple[float, float]]:
    return list(zip(_of(measured, name, "reward"), _of(measured, name, key), strict=True))
