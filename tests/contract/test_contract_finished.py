"""The source is finished: no promises, no swallowed errors, nothing that says where it was written."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kleash"
MODULES = sorted(SOURCE.rglob("*.py"))
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|NotImplemented)\b")


def swallows(handler):
    """Whether an except clause catches everything and does nothing."""
    catches_all = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )
    return catches_all and all(isinstance(node, ast.Pass | ast.Continue) for node in handler.body)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_module_is_finished(path):
    source = path.read_text(encoding="utf-8")
    assert UNFINISHED.findall(source) == []
    handlers = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)]
    assert [handler.lineno for handler in handlers if swallows(handler)] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept: pass", True),
        ("try: f()\nexcept OSError: pass", False),
        ("try: f()\nexcept Exception: raise", False),
    ],
)
def test_the_check_knows_a_swallowed_error(code, expected):
    assert swallows(ast.parse(code).body[0].handlers[0]) == expected
