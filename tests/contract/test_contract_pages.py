"""The Python examples of README.md and docs/ run as they stand; `<!-- not run -->` above one leaves it out.

They run page by page, in order, in a folder that holds a finished run called runs/sentiment.
"""

import re
from pathlib import Path

import pytest

from kleash.runs.records import Sample, Step
from kleash.runs.writer import RunWriter

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?P<skip><!-- not run -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def runnable(text):
    return [match["code"] for match in BLOCK.finditer(text) if not match["skip"]]


PAGES_WITH_EXAMPLES = [page for page in PAGES if runnable(page.read_text(encoding="utf-8"))]


def write_finished_run(folder):
    sample = Sample(2, "after", 0, 0, "The tea", " was hot", (" was", " hot"), (0.1, 0.4), 0.3, None, 0.5, True)
    with RunWriter.create(folder, {"model": {"name": "demo"}}, {"kleash": "0.1.0"}) as run:
        for step in (1, 2):
            metrics = {"reward/proxy": 0.1 * step, "kl/exact_per_sequence": 3.0 * step}
            run.write_step(Step(step, metrics, {"reward/proxy": 0.02, "kl/exact_per_sequence": 0.3}))
        run.write_samples([sample])
        run.set_status("finished")


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    write_finished_run(tmp_path / "runs" / "sentiment")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for code in runnable(page.read_text(encoding="utf-8")):
        exec(compile(code, page.name, "exec"), names)


def test_a_block_marked_as_not_run_is_left_out():
    assert runnable("```python\na\n```\n<!-- not run -->\n```python\nb\n```\n```sh\nc\n```\n") == ["a\n"]
