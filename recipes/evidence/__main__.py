"""Make the evidence: `python -m recipes.evidence [RECIPE...]` trains what is missing, measures, and writes the pages.

Runs are kept under runs/evidence/; those that are finished are not trained again, and interrupted ones go on. With
`--pages` nothing is trained or measured: README.md, the pictures and docs/evidence.md are written from results.json.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from kleash.errors import KleashError
from recipes.evidence import pages
from recipes.evidence.origin import origin_of
from recipes.evidence.recipe import Recipe

ROOT = Path(__file__).parents[2]
NAMES = (
    "zero_kl",
    "hold_the_target",
    "overoptimisation",
    "posterior",
    "too_tight_too_loose",
    "wrong_gradients",
    "alignment_tax",
    "copying",
    "ensembles",
    "ai_feedback",
)
"""Every recipe of evidence, in the order of docs/evidence.md."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.evidence", description=__doc__)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=f"of {', '.join(NAMES)}; all without one")
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="folder that keeps the runs")
    parser.add_argument("--jobs", type=int, help="runs at once; default: as many as the machine has room for")
    parser.add_argument("--pages", action="store_true", help="only write the pages, from what was measured before")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.recipes) - set(NAMES))
    if unknown:
        parser.error(f"there is no recipe of evidence named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    recipes = load_recipes()
    try:
        if not given.pages:
            for name in given.recipes or NAMES:
                make(ROOT / "recipes" / name, recipes[name], given.runs.absolute() / name, given.jobs)
        for path in pages.write(pages.pages(ROOT, measured_ones(recipes))):
            print(f"wrote {path.relative_to(ROOT)}")
    except KleashError as error:
        print(f"evidence: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def load_recipes() -> dict[str, Recipe]:
    """Return the module of each recipe by its name."""
    return {name: cast(Recipe, importlib.import_module(f"recipes.{name}.evidence")) for name in NAMES}


def measured_ones(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes that have results."""
    return {name: one for name, one in recipes.items() if (ROOT / "recipes" / name / pages.RESULTS).exists()}


def make(folder: Path, recipe: Recipe, runs: Path, jobs: int | None = None) -> None:
    """Train what is missing of a recipe, measure it all, and keep that beside it."""
    finished = recipe.train(runs, jobs)
    pages.write_results(folder, origin_of(finished), recipe.measure(finished, runs))


if __name__ == "__main__":
    sys.exit(main())
