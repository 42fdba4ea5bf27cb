"""Every run that ships, the demo's and those of recipes/, loads without a warning; a recipe says what to expect."""

from pathlib import Path

import pytest

from kleash.config.loader import load

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
RUNS = [*RECIPES, *sorted((ROOT / "src").rglob("*.toml"))]


def label(path):
    return path.relative_to(ROOT).as_posix()


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RUNS, ids=label)
def test_a_run_loads(path):
    assert load(path).warnings == ()


@pytest.mark.parametrize("path", RECIPES, ids=label)
def test_a_recipe_has_a_page_that_tells_its_drift(path):
    assert "nats per" in (path.parent / "README.md").read_text(encoding="utf-8")
