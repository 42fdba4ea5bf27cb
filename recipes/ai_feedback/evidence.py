"""From a judge's comparisons to a policy: can the judge be used at all, and is its policy as good as the lexicon's?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kleash.config.schema import Judge
from kleash.report.wording import percent
from kleash.rewards.judge import JudgeTally, Question
from kleash.rewards.judge_reward import make_judge
from kleash.rewards.reward_model import RewardModel
from kleash.runs.reader import RunReader
from recipes.evidence.numbers import over_seeds, standard_error, table
from recipes.evidence.picture import COLORS, Mark, Panel, svg
from recipes.evidence.recipe import Expectation, Measured, Run, Section
from recipes.evidence.training import finished_runs
from recipes.overoptimisation.human import human_model, scores
from recipes.small_model.proxies import comparisons

FILE = Path(__file__).with_name("run.toml")
LABELS, SEED = "comparisons.path", "training.seed"
JUDGE, LEXICON = "judge", "lexicon"
PAIRS, ASKED = 2000, 48
"""Pairs that are labelled, and those that SmolLM2 is asked about."""
RUBRIC = "The more positive text about its subject."

CERTAIN = 2.0
"""Standard errors over seeds from which a difference counts."""
USABLE, ALIKE, AS_GOOD = 0.5, 0.6, 0.8
"""What is expected: of SmolLM2's agreement with itself, of the judge's with the lexicon, and of the policies' gains."""

Json = dict[str, Any]


def train(folder: Path, jobs: int | None) -> Sequence[Run]:
    """Label the pairs, and train on each annotator's labels with three seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    files = label(folder, FILE.with_name("data"))
    paths = f"{LABELS}={','.join(str(file) for file in files.values())}"
    names = {str(file): name for name, file in files.items()}
    found = finished_runs(FILE, (paths, f"{SEED}=0,1,2"), folder / "dpo", jobs)
    return [Run({LABELS: names[run.values[LABELS]], SEED: run.values[SEED]}, run.path) for run in found]


def label(folder: Path, data: Path) -> dict[str, Path]:
    """Write the pairs with the labels of each annotator; the judge's model is trained where `folder` has none."""
    rows = pairs()
    files = {name: data / f"{name}.jsonl" for name in (JUDGE, LEXICON)}
    data.mkdir(parents=True, exist_ok=True)
    model = RewardModel.from_folder(human_model(folder))
    judged = [turned(row) if lead < 0 else row for row, lead in zip(rows, leads(model, rows), strict=True)]
    for name, labelled in ((JUDGE, judged), (LEXICON, rows)):
        lines = (json.dumps({**row, "annotator": name}, ensure_ascii=False) + "\n" for row in labelled)
        files[name].write_text("".join(lines), encoding="utf-8")
    return files


def pairs() -> list[Json]:
    """Return pairs as the lexicon has labelled them."""
    learn, _ = comparisons()
    rows = (json.loads(line) for line in learn.read_text(encoding="utf-8").splitlines())
    return [{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in rows][:PAIRS]


def leads(model: RewardModel, rows: Sequence[Mapping[str, str]]) -> list[float]:
    """Return by how much a judge scores the chosen answer above the rejected one."""
    prompts = [row["prompt"] for row in rows]
    chosen, rejected = (scores(model, prompts, [row[side] for row in rows]) for side in ("chosen", "rejected"))
    return [one - other for one, other in zip(chosen, rejected, strict=True)]


def turned(row: Mapping[str, str]) -> Json:
    """Return the same pair with the other choice."""
    return {**row, "chosen": row["rejected"], "rejected": row["chosen"]}


def measure(runs: Sequence[Run], folder: Path) -> Measured:
    """Ask SmolLM2 in both orders, compare the annotators, and read what the runs reached."""
    kept = folder / "asked.json"
    if not kept.exists():
        kept.write_text(json.dumps(ask(pairs()[:ASKED])), encoding="utf-8")
    model = RewardModel.from_folder(human_model(folder))
    return {
        "asked": json.loads(kept.read_text(encoding="utf-8")),
        "alike": fmean(float(lead > 0) for lead in leads(model, pairs())),
        "runs": [measure_run(run) for run in runs],
    }


def ask(rows: Sequence[Mapping[str, str]]) -> Json:
    """Let SmolLM2 judge pairs in both orders.

    Beside what Kleash makes of it, a choice that survives the exchange, stands the choice with the position taken
    out: the answer that is likelier to be named, over both orders.
    """
    judge = make_judge(Judge(model="demo", rubric=RUBRIC))
    tally, right = JudgeTally(), 0
    for _, verdict in judge.judge([Question(row["prompt"], row["chosen"], row["rejected"]) for row in rows]):
        tally = tally.plus(verdict)
        right += (verdict.forward.probability_A or 0.0) > (verdict.backward.probability_A or 0.0)
    return {
        "asked": tally.asked,
        "agreement": tally.agreement,
        "position_bias": tally.position_bias,
        "ties": tally.ties,
        "right_without_position": right / tally.asked,
    }


def measure_run(run: Run) -> Json:
    """Return a run's held-out gold and KL before and after."""
    with RunReader(run.path) as reader:
        gold, kl = ([v for _, v, _ in reader.series(f"eval/{key}")] for key in ("reward/gold", "kl/exact_per_sequence"))
        distinct = [value for _, value, _ in reader.series("eval/text/distinct_2")]
    return {
        "labels": run.values[LABELS],
        "seed": int(run.values[SEED]),
        "gold_before": gold[0],
        "gold": gold[-1],
        "kl": kl[-1],
        "distinct_2": distinct[-1],
    }


def section(measured: Measured) -> Section:
    """Say which judge can be used, and what its labels are worth."""
    return Section(
        expectations=_expectations(measured),
        parts=[
            "Annotators, on pairs of the small model's samples that the lexicon could tell apart (it errs in a tenth):",
            _annotators(measured),
            f"DPO on {PAIRS} of them, held-out openers after the last step, mean ± standard error over seeds; KL in "
            "nats per sequence:",
            _table(measured["runs"]),
        ],
        picture=_picture(measured["runs"]),
        caption="Gold over KL after DPO on the judge's labels and on the lexicon's, each run a dot",
    )


def _of(runs: Sequence[Json], labels: str, key: str) -> list[float]:
    found = sorted((run for run in runs if run["labels"] == labels), key=lambda run: int(run["seed"]))
    return [run[key] for run in found]


def _gains(runs: Sequence[Json], labels: str) -> list[float]:
    pairs_of_numbers = zip(_of(runs, labels, "gold"), _of(runs, labels, "gold_before"), strict=True)
    return [after - before for after, before in pairs_of_numbers]


def _expectations(measured: Measured) -> list[Expectation]:
    asked, runs = measured["asked"], measured["runs"]
    gained, best = _gains(runs, JUDGE), _gains(runs, LEXICON)
    certain = fmean(gained) > CERTAIN * (standard_error(gained) or 0.0)
    share = fmean(gained) / fmean(best)
    return [
        Expectation(
            "SmolLM2-135M is no judge: both orders agree",
            f"in fewer than {percent(USABLE)}",
            f"in {percent(asked['agreement'])} of {asked['asked']}",
            asked["agreement"] < USABLE,
        ),
        Expectation(
            "a model that learned from people's votes is one: it agrees with the lexicon",
            f"in more than {percent(ALIKE)}",
            f"in {percent(measured['alike'])} of {PAIRS}",
            measured["alike"] > ALIKE,
        ),
        Expectation(
            "its comparisons make a policy better, by a gold that it never saw",
            f"a gain above 0 by {CERTAIN:g} standard errors",
            over_seeds(gained),
            certain,
        ),
        Expectation(
            "and nearly as much better as gold's own labels do: its gain over theirs",
            f"above {AS_GOOD:g}",
            f"{share:.2f}",
            share > AS_GOOD,
        ),
    ]


def _annotators(measured: Measured) -> str:
    asked = measured["asked"]
    rows = [
        (
            "SmolLM2-135M-Instruct, asked in both orders",
            str(asked["asked"]),
            percent(asked["agreement"]),
            percent(asked["position_bias"]),
            percent(asked["right_without_position"]),
        ),
        (
            "reward model of people's votes",
            f"{PAIRS:,}",
            "all: it scores each answer alone",
            "none",
            percent(measured["alike"]),
        ),
    ]
    titles = ("annotator", "pairs", "both orders agree", "same letter in both", "agrees with the lexicon")
    return table(titles, rows)


def _table(runs: Sequence[Json]) -> str:
    rows = [("none: reference", over_seeds(_of(runs, JUDGE, "gold_before")), "0 ± 0", "")]
    for name in (JUDGE, LEXICON):
        rows.append((name, *(over_seeds(_of(runs, name, key)) for key in ("gold", "kl", "distinct_2"))))
    return table(("labels", "gold (VADER, −1 to 1)", "KL", "distinct bigrams"), rows)


def _picture(runs: Sequence[Json]) -> str:
    colors = {JUDGE: COLORS[0], LEXICON: COLORS[2]}
    marks = []
    for name, color in colors.items():
        ends = list(zip(_of(runs, name, "kl"), _of(runs, name, "gold"), strict=True))
        starts = _of(runs, name, "gold_before")
        marks += [Mark([(0.0, start), end], color, "dashed") for start, end in zip(starts, ends, strict=True)]
        marks.append(Mark(ends, color, "dots"))
    legend = [(f"labels of the {name}", color) for name, color in colors.items()]
    panel = Panel("From the start to the end of DPO", "nats per sequence", "gold", marks)
    return svg("Gold over KL after DPO", legend, [panel], columns=1)
