"""Other trainers' logs, which become runs; what a format's columns mean is tested where they are read."""

import json
import os

import pytest
from alarm_rules import Alarm, only

from kleash.errors import DataError, KleashError
from kleash.monitor import monitor
from kleash.monitor.log import Column, Log, LoggedSample
from kleash.monitor.logs import reading
from kleash.monitor.rule import Finding
from kleash.runs.reader import RunReader
from kleash.runs.records import Checkpoint, Event, Step
from kleash.runs.samples import SampleQuery
from kleash.web import watch_imports
from kleash.web.watch_imports import Imports, import_log
from kleash.web.watch_library import Library
from kleash.web.watch_views import detail

KL = "kl/k3_per_token"


@pytest.fixture
def log(tmp_path):
    """A log of five steps whose second KL is a NaN, with completions of two prompts."""
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    return Log(
        path,
        "TRL GRPO",
        [
            Step(n, {"kl/k3_per_token": float("nan") if n == 1 else 0.1 * n}, {"kl/k3_per_token": 0.01})
            for n in range(5)
        ],
        columns=[Column("kl", KL, "k3, policy against reference")],
        notes=["No gold reward was logged."],
        samples=[
            LoggedSample(1, "Why?", "Because.", {"a": 1.0, "b": 0.5}, 2.0),
            LoggedSample(2, "How?", "So.", {"a": None}),
            LoggedSample(2, "Why?", "Just so.", {"a": 3.0}),
            LoggedSample(2, "Why?", "No.", {}),
        ],
        settings={"beta": 0.04, "max_steps": 9, "epsilon": float("nan"), "output_dir": tmp_path},
        checkpoints=[Checkpoint(4, tmp_path / "checkpoint-4")],
    )


@pytest.fixture
def read_log(log, monkeypatch):
    """What the log says may be replaced by an assignment to `said[0]`; `said[1]` counts the readings."""
    said = [log, 0]

    def read(path):
        said[1] += 1
        if isinstance(said[0], Exception):
            raise said[0]
        return said[0]

    monkeypatch.setattr(reading, "read_log", read)
    return said


def test_a_log_becomes_a_run_with_its_steps_samples_and_checkpoints(log, read_log, tmp_path):
    with RunReader(import_log(log.path, tmp_path / "run")) as run:
        assert [step.step for step in run.steps()] == [0, 1, 2, 3, 4]
        assert run.series(KL)[2] == (2, 0.2, 0.01)
        assert run.checkpoints() == log.checkpoints
        assert run.config == {"beta": 0.04, "max_steps": 9, "epsilon": "NaN", "output_dir": str(tmp_path)}
        assert run.meta["imported"] == {
            "source": "TRL GRPO",
            "notes": ["No gold reward was logged."],
            "columns": [{"name": "kl", "key": "kl/k3_per_token", "says": "k3, policy against reference"}],
            "planned": 9,
            "beta": 0.04,
        }
        found = run.find_samples(SampleQuery()).samples
        assert [(one.prompt_index, one.sample_index, one.completion) for one in found] == [
            (0, 0, "Because."),
            (1, 0, "So."),
            (0, 0, "Just so."),
            (0, 1, "No."),
        ]
        assert [one.reward for one in found] == [1.5, None, 3.0, None]
        assert [one.completion for one in run.find_samples(SampleQuery(min_kl=0)).samples] == ["Because."]


class Late:
    """A rule that finds something from the third step on, where beta is that of the log."""

    name, title, looks_at, causes, advice = "test/late", "Late", (), (), "Be early."

    def __call__(self, history, facts):
        return Finding("critical", "It is late.", {}, history.now) if history.now > 2 and facts.beta == 0.04 else None


def test_the_rules_are_replayed_over_a_log_without_events_of_its_own(log, read_log, tmp_path, monkeypatch):
    monkeypatch.setattr(monitor, "make_rules", lambda: [Late()])
    with RunReader(import_log(log.path, tmp_path / "run")) as run:
        assert [(event.name, event.step, event.severity) for event in run.events()] == [("test/late", 3, "critical")]


def test_a_checkpoint_of_a_log_is_measured_by_the_step_after_it(tmp_path, monkeypatch):
    """The list and `kleash audit` call the same checkpoints suspect: 2 is measured in step 3."""
    for step in (1, 2, 3):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": one, "reward": 0.5, "completions/mean_length": 9.0} for one in range(1, step + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    found = Alarm(lambda step: step == 3)
    only(monkeypatch, found)
    (tmp_path / "imports").mkdir()
    library = Library([tmp_path / "out"], tmp_path / "imports")
    (entry,) = library.entries()
    with library.open(entry) as run:
        checkpoints = detail(entry, run)["checkpoints"]
    assert [one["step"] for one in checkpoints if one["suspicions"]] == [2, 3]


def test_events_that_the_trainer_recorded_stand(log, read_log, tmp_path):
    own = Event(3, "warning", "stalled", "Nothing moves.", began=2)
    read_log[0] = Log(log.path, log.source, log.steps, events=[own])
    with RunReader(import_log(log.path, tmp_path / "run")) as run:
        assert run.events() == [own]


def test_a_log_is_read_once_until_it_changes(log, read_log, tmp_path, monkeypatch):
    monkeypatch.setattr(watch_imports, "PAUSE_SECONDS", 0.0)
    (tmp_path / "imports").mkdir()
    imports = Imports(tmp_path / "imports")
    first = imports.folder_of(log.path)
    assert imports.folder_of(log.path) == first
    assert read_log[1] == 1
    before = imports.state(log.path)
    with log.path.open("a") as file:
        file.write("{}\n")
    assert imports.state(log.path) != before
    second = imports.folder_of(log.path)
    assert second != first
    assert not first.exists()
    assert read_log[1] == 2


def test_a_log_that_grows_all_the_time_is_not_read_all_the_time(log, read_log, tmp_path):
    (tmp_path / "imports").mkdir()
    imports = Imports(tmp_path / "imports")
    first, state = imports.folder_of(log.path), imports.state(log.path)
    with log.path.open("a") as file:
        file.write("{}\n")
    assert (imports.folder_of(log.path), imports.state(log.path)) == (first, state)


def test_a_log_that_cannot_be_read_says_so_each_time_and_is_read_once(log, read_log, tmp_path):
    (tmp_path / "imports").mkdir()
    imports = Imports(tmp_path / "imports")
    read_log[0] = DataError("Line 3 is torn.")
    for _ in range(2):
        with pytest.raises(DataError, match=r"Line 3 is torn\."):
            imports.folder_of(log.path)
    assert read_log[1] == 1


def test_a_package_that_a_format_needs_is_named(log, read_log, tmp_path):
    read_log[0] = ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")
    with pytest.raises(KleashError, match=r"needs the package tensorboard, .* pip install 'kleash\[logs\]'"):
        import_log(log.path, tmp_path / "run")


def test_the_stamp_of_a_folder_changes_with_a_file_two_levels_down(tmp_path):
    state = tmp_path / "output" / "checkpoint-1" / "trainer_state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({}))
    before = watch_imports.log_stamp(tmp_path / "output")
    os.utime(state, ns=(before[0] + 10**9, before[0] + 10**9))
    assert watch_imports.log_stamp(tmp_path / "output") != before
    assert watch_imports.log_stamp(tmp_path / "absent") == (0, 0, 0)
