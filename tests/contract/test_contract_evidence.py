"""What the recipes' pages and docs/evidence.md say is what their results.json holds."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recipes.evidence import __main__ as command  # noqa: E402
from recipes.evidence import pages  # noqa: E402

RECIPES = command.load_recipes()


@pytest.mark.parametrize("name", command.NAMES)
def test_a_recipe_was_measured(name):
    origin, measured = pages.read_results(ROOT / "recipes" / name)
    assert origin.commit != "unknown"
    assert RECIPES[name].section(measured).expectations


def test_every_page_is_the_one_that_its_results_give():
    written = pages.pages(ROOT, RECIPES)
    assert len(written) == 2 * len(RECIPES) + 1
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"write it: python -m recipes.evidence --pages ({path.name})"
