"""Every shipped recipe is a run that loads, without a warning, and says what to expect."""

from pathlib import Path

import pytest

from kleash.config.loader import load

RECIPES = Path(__file__).parents[2] / "recipes"


def test_there_are_recipes():
    assert list(RECIPES.glob("*/run.toml"))


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.parent.name)
def test_a_recipe_loads(path):
    assert load(path).warnings == ()


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.parent.name)
def test_a_recipe_has_a_page(path):
    assert "KL" in (path.parent / "README.md").read_text(encoding="utf-8")
