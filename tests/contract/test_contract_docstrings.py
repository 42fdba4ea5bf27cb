"""The examples in docstrings run and print what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def modules_with_examples():
    for path in sorted((SOURCE / "kleash").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            yield ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module(name):
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, extraglobs=None, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0
