"""Files and functions stay short enough to read in one go."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kleash"
MODULES = sorted(SOURCE.rglob("*.py"))

MODULE_LINES, MODULE_LINES_AT_MOST = 400, 600
FUNCTION_LINES, FUNCTION_LINES_AT_MOST = 60, 100
ALGORITHM_LINES = 200

LONG_MODULES: dict[str, str] = {}
"""Modules over 400 lines, each with the reason why it is better whole."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions over 60 lines, as `module.py:name`, each with the reason why it is better whole."""


def module_lengths():
    return {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}


def function_lengths():
    lengths = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths[f"{name(path)}:{node.name}"] = node.end_lineno - node.lineno + 1
    return lengths


def name(path):
    return path.relative_to(SOURCE).as_posix()


def over(lengths, limit):
    return {name: lines for name, lines in lengths.items() if lines > limit}


def test_there_is_something_to_count():
    assert len(MODULES) > 50
    assert len(function_lengths()) > 200


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [(module_lengths(), MODULE_LINES_AT_MOST), (function_lengths(), FUNCTION_LINES_AT_MOST)],
    ids=["modules", "functions"],
)
def test_nothing_is_over_the_hard_limit(lengths, limit):
    assert over(lengths, limit) == {}


@pytest.mark.parametrize(
    ("lengths", "limit", "allowed"),
    [
        (module_lengths(), MODULE_LINES, LONG_MODULES),
        (function_lengths(), FUNCTION_LINES, LONG_FUNCTIONS),
    ],
    ids=["modules", "functions"],
)
def test_what_is_over_the_soft_limit_is_listed_with_a_reason_and_nothing_else_is(lengths, limit, allowed):
    assert over(lengths, limit).keys() == allowed.keys()
    assert all(reason.endswith(".") for reason in allowed.values())


def test_an_algorithm_fits_on_a_few_screens():
    algorithms = {name: n for name, n in module_lengths().items() if name.startswith("algorithms/")}
    assert over(algorithms, ALGORITHM_LINES) == {}
    assert len(algorithms) > 2
