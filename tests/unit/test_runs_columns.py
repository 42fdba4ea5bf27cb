"""A run's numbers by metric, as charts and lists ask for them."""

import math
import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest

from kleash.runs.columns import Column
from kleash.runs.reader import Counts, RunReader
from kleash.runs.records import Checkpoint, Event, Step
from kleash.runs.writer import RunWriter


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    with RunWriter.create(path, {}, {}) as writer:
        writer.write_step(Step(0, {"b": 1.0, "a": 2.0}, {"b": 0.5}))
        writer.write_step(Step(1, {"b": None, "c": math.nan}))
        writer.write_step(Step(4, {"b": math.inf}, {"b": math.nan}), events=[Event(4, "info", "done", "It is.")])
        writer.write_checkpoint(Checkpoint(4, path / "checkpoints" / "step_4"))
    with RunReader(path) as reader:
        yield reader


def test_a_column_has_the_steps_in_which_a_metric_was_measured(run):
    column = run.column("b")
    assert (column.steps, column.values, column.thinned) == ([0, 4], [1.0, math.inf], False)
    assert column.stderrs[0] == 0.5
    assert math.isnan(column.stderrs[1])
    assert run.column("a").stderrs == [None]


def test_a_column_past_a_step_leaves_out_what_is_known(run):
    assert run.column("b", after=0).steps == [4]
    assert run.column("b", after=4) == run.column("unknown") == Column([], [], [], False)


@contextmanager
def long_run(path, values, every=1):
    """A run whose metric `kl` has these values, every so many steps; the error of each is a tenth of its step."""
    RunWriter.create(path, {}, {}).close()
    with sqlite3.connect(path / "run.db") as database:
        database.executemany(
            "INSERT INTO metrics VALUES (?, 'kl', ?, ?)",
            [(every * n, value if math.isfinite(value) else str(value), n / 10) for n, value in enumerate(values)],
        )
    database.close()
    with RunReader(path) as reader:
        yield reader


@pytest.mark.parametrize("count", [101, 999, 1001, 5000])
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("points", [4, 5, 100])
def test_a_thinned_column_has_its_ends_and_no_more_points_than_asked(tmp_path, count, every, points):
    values = np.random.default_rng(0).standard_normal(count).tolist()
    with long_run(tmp_path / "run", values, every) as run:
        column = run.column("kl", points=points)
        assert not run.column("kl", points=count).thinned
    assert column.thinned
    assert len(column.steps) <= points
    assert (column.steps[0], column.steps[-1]) == (0, every * (count - 1))
    assert column.steps == sorted(set(column.steps))
    assert column.values == [values[step // every] for step in column.steps]
    assert column.stderrs == [step // every / 10 for step in column.steps]
    assert {min(values), max(values)} <= set(column.values)


def test_no_spike_up_or_down_is_lost(tmp_path):
    values = [0.0] * 5000
    values[17], values[2500], values[4998] = 5.0, -7.0, 3.0
    with long_run(tmp_path / "run", values) as run:
        assert {17, 2500, 4998} <= set(run.column("kl", points=50).steps)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_number_is_kept_beside_the_smallest(tmp_path, broken):
    values = [0.0] * 1000
    values[500], values[503] = broken, -9.0
    with long_run(tmp_path / "run", values) as run:
        assert {500, 503} <= set(run.column("kl", points=20).steps)


def test_a_thinned_column_past_a_step_is_cut_from_there_on(tmp_path):
    with long_run(tmp_path / "run", [float(n % 2) for n in range(1000)]) as run:
        column = run.column("kl", after=499, points=10)
    assert (column.steps[0], column.steps[-1], len(column.steps) <= 10) == (500, 999, True)


def test_keys_and_newest_values(run):
    assert run.metric_keys() == ["a", "b", "c"]
    assert (run.last_value("a"), run.last_value("b"), run.last_value("unknown")) == (2.0, math.inf, None)
    assert math.isnan(run.last_value("c"))
    assert (run.last_point("a"), run.last_point("unknown")) == ((0, 2.0, None), None)
    step, value, stderr = run.last_point("b")
    assert (step, value, math.isnan(stderr)) == (4, math.inf, True)
    assert (run.measured("b"), run.measured("c"), run.measured("unknown")) == (2, 1, 0)


def test_counts(run, tmp_path):
    assert run.counts() == Counts(last_step=4, steps=3, events=1, checkpoints=1, samples=0)
    RunWriter.create(tmp_path / "new", {}, {}).close()
    with RunReader(tmp_path / "new") as new:
        assert new.counts() == Counts(last_step=-1, steps=0, events=0, checkpoints=0, samples=0)
        assert new.metric_keys() == []
