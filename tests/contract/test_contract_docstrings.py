"""The examples in docstrings run and print what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


WITH_EXAMPLES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted((SOURCE / "kleash").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module(name):
    module = importlib.import_module(name)
    assert any(found.examples for found in doctest.DocTestFinder().find(module))
    assert doctest.testmod(module).failed == 0
