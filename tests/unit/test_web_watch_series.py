import math

import pytest

from kleash.runs.reader import RunReader
from kleash.runs.records import Step
from kleash.runs.writer import RunWriter
from kleash.web.watch_series import series


@pytest.fixture
def run(tmp_path):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        for step, value in enumerate([1.0, math.nan, 3.0, math.inf, 5.0, 4.0]):
            writer.write_step(Step(step, {"kl": value, "other": 1.0}, {"kl": 0.5} if step else {}))
    with RunReader(tmp_path / "run") as reader:
        yield reader


def test_only_the_keys_that_are_asked_for_come_with_null_for_what_json_cannot_say(run):
    assert series(run, ["kl", "unknown"], -1, 10) == {
        "last_step": 5,
        "reduced": False,
        "series": {
            "kl": {
                "steps": [0, 1, 2, 3, 4, 5],
                "values": [1.0, None, 3.0, None, 5.0, 4.0],
                "stderr": [None, 0.5, 0.5, 0.5, 0.5, 0.5],
            },
            "unknown": {"steps": [], "values": [], "stderr": []},
        },
    }


def test_only_what_came_after_a_step_is_sent(run):
    assert series(run, ["kl"], 3, 10)["series"]["kl"]["steps"] == [4, 5]


def test_a_column_that_was_thinned_says_so(run):
    found = series(run, ["kl"], -1, 4)
    assert found["reduced"] is True
    assert found["series"]["kl"]["steps"] == [0, 1, 5]
