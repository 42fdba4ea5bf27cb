"""Test a trained reward model on all domains, beside the baselines: `python evaluate.py MODEL`.

MODEL is what `reward.model` takes: a run directory, a checkpoint or a reward model's folder. Reads the files that
`make_data.py` wrote; adds `accuracy.json` and `accuracy.md` to them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accuracy import Accuracy, accuracy, table

from kleash.errors import DataError, KleashError

Score = Callable[[list[Any], list[Any]], list[float]]
"""Prompts and completions to one score a completion."""

NAME = "reward model, trained on movies"


def main(arguments: list[str] | None = None) -> int:
    """Load the model, score the held-out texts, and write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="run directory, checkpoint or folder of a reward model")
    parser.add_argument("--data", type=Path, default=Path("data"), help="what make_data.py wrote (default: data)")
    options = parser.parse_args(arguments)
    try:
        known = read_baselines(options.data)
        from kleash.rewards.reward_model import RewardModel

        measured = evaluate(RewardModel.from_folder(options.model), options.data, known)
    except KleashError as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return error.exit_code
    (options.data / "accuracy.json").write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    (options.data / "accuracy.md").write_text(table(measured) + "\n", encoding="utf-8")
    print(table(measured))
    return 0


def read_baselines(data: Path) -> dict[str, dict[str, Any]]:
    """Return the baselines by domain and score.

    Raises:
        DataError: `make_data.py` has not been run here.
    """
    path = data / "baselines.json"
    if not path.is_file():
        raise DataError(f"{path} is not there: run `python make_data.py --output {data}` first.")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def evaluate(score: Score, data: Path, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the table's content, the model's accuracy in front of the known ones, domain by domain."""
    return {
        domain: {NAME: accuracy_on(score, data / f"{domain}_test.jsonl").as_dict(), **scores}
        for domain, scores in known.items()
    }


def accuracy_on(score: Score, path: Path) -> Accuracy:
    """Return how often the model prefers the chosen text of a file of comparisons."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    prompts = [row["prompt"] for row in rows]
    return accuracy(*(score(prompts, [row[side] for row in rows]) for side in ("chosen", "rejected")))


if __name__ == "__main__":
    raise SystemExit(main())
