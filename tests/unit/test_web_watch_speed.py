"""A run of 20,000 steps and 50,000 samples stays at hand. The bounds are generous: machines differ."""

import time

import pytest
from big_run import KEYS, make_big_run
from starlette.testclient import TestClient

from kleash.web.watch import create_app

pytestmark = pytest.mark.slow

SECONDS = 1.0
"""Of work for an answer."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big")
    (folder / "imports").mkdir()
    make_big_run(folder / "big")
    with TestClient(create_app([folder / "big"], folder / "imports", token=None), base_url="http://localhost") as page:
        yield page


@pytest.fixture(scope="module")
def run(page):
    return f"/api/runs/{page.get('/api/runs').json()['runs'][0]['id']}"


def ask(page, path, **query):
    """The answer, and the seconds that this process worked for it, the best of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        answer = page.get(path, params=query or None)
        seconds.append(time.process_time() - start)
    assert answer.status_code == 200, answer.text
    return answer.json(), min(seconds)


def test_the_run_and_twelve_curves(page, run):
    found, seconds = ask(page, run)
    assert (found["steps"], len(found["keys"])) == (20_000, 25)
    curves, more = ask(page, f"{run}/series", keys=",".join(KEYS[:12]), points=2000)
    assert seconds + more < SECONDS
    assert curves["reduced"]
    assert all(1000 < len(column["steps"]) <= 2000 for column in curves["series"].values())
    assert max(curves["series"]["kl/exact_per_sequence"]["values"]) == 30.0


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"sort": "kl", "order": "desc"},
        {"sort": "length"},
        {"search": "RAIN and", "sort": "reward"},
        {"search": "größe"},
        {"min_kl": 6, "split": "eval", "sort": "gold"},
        {"min_reward": 0, "search": "quite said", "sort": "length", "offset": 1000},
    ],
)
def test_fifty_thousand_samples(page, run, query):
    found, seconds = ask(page, f"{run}/samples", **query)
    assert seconds < SECONDS
    assert found["total"] <= 50_000
    assert found["samples"] or query == {"search": "größe"}


def test_a_prompt_across_all_steps(page, run):
    found, seconds = ask(page, f"{run}/prompt", split="eval", prompt_index=3)
    assert seconds < SECONDS
    assert len(found["samples"]) == 200
    assert {found["samples"][0]["split"], found["samples"][-1]["split"]} == {"before", "after"}
