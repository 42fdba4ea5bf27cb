"""The Python examples of README.md and docs/ run as they stand; `<!-- not run -->` above one leaves it out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?P<skip><!-- not run -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def runnable(text):
    return [match["code"] for match in BLOCK.finditer(text) if not match["skip"]]


PAGES_WITH_EXAMPLES = [page for page in PAGES if runnable(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for code in runnable(page.read_text(encoding="utf-8")):
        exec(compile(code, page.name, "exec"), names)


def test_a_block_marked_as_not_run_is_left_out():
    assert runnable("```python\na\n```\n<!-- not run -->\n```python\nb\n```\n```sh\nc\n```\n") == ["a\n"]
