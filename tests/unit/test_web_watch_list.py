import shutil

import pytest

from kleash.runs.records import Event, Step
from kleash.runs.writer import RunWriter
from kleash.web import watch_list
from kleash.web.watch_library import Library
from kleash.web.watch_list import RunList


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "imports").mkdir()
    (tmp_path / "runs").mkdir()
    return RunList(Library([tmp_path / "runs"], tmp_path / "imports"))


def test_a_run_is_read_again_only_where_something_was_written(listed, tmp_path, monkeypatch):
    read = []
    whole = watch_list.summary
    monkeypatch.setattr(watch_list, "summary", lambda entry, reader: read.append(entry.name) or whole(entry, reader))
    RunWriter.create(tmp_path / "runs" / "still", {}, {}).close()
    with RunWriter.create(tmp_path / "runs" / "alive", {}, {}) as writer:
        for _ in range(3):
            listed.summaries()
            listed.marks()
        assert sorted(read) == ["alive", "still"]
        writer.write_step(Step(7, {"kl": 1.0}))
        assert [line["steps"] for line in listed.summaries()] == [7, 0]
        assert read[2:] == ["alive"]


def test_a_mark_tells_what_a_run_has_recorded_and_when_it_is_gone_and_back(listed, tmp_path):
    path = tmp_path / "runs" / "one"
    RunWriter.create(path, {}, {}).close()
    (mark,) = listed.marks()
    assert mark.pop("id").startswith("one-")
    assert mark == {"last_step": -1, "steps": 0, "events": 0, "checkpoints": 0, "samples": 0, "status": "running"}
    shutil.move(path, tmp_path / "aside")
    (gone,) = listed.marks()
    assert (gone["status"], "runs/one is gone" in gone["problem"]) == ("unreadable", True)
    shutil.move(tmp_path / "aside", path)
    (back,) = listed.marks()
    assert back["status"] == "running"


@pytest.mark.parametrize(
    ("settings", "health"),
    [
        ({"training": {"steps": 9}}, "not watched"),
        ({"callback": {"every": 50}}, "not watched"),
        ({"monitor": {"ignore": []}}, "ok"),
        ({"callback": {"every": 50, "ladder": []}}, "ok"),
    ],
)
def test_a_run_from_before_there_was_a_monitor_is_not_called_healthy(listed, tmp_path, settings, health):
    with RunWriter.create(tmp_path / "runs" / "one", settings, {}) as writer:
        writer.write_event(Event(0, "info", "starting_model", "KL is measured from it"))
        assert [line["health"] for line in listed.summaries()] == [health]
        writer.write_event(Event(1, "critical", "kl/spike", "up", began=1))
        assert [line["health"] for line in listed.summaries()] == ["critical"]


def test_an_imported_log_has_been_shown_to_the_rules(tmp_path):
    (tmp_path / "imports").mkdir()
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "reward/proxy": 0.5}\n')
    (line,) = RunList(Library([log], tmp_path / "imports")).summaries()
    assert line["health"] == "ok"


def test_a_run_without_a_step_or_a_setting_has_a_line(listed, tmp_path):
    RunWriter.create(tmp_path / "runs" / "bare", {"model": "given in Python", "training": None}, {}).close()
    (line,) = listed.summaries()
    assert (line["model"], line["algorithm"], line["planned"], line["steps"]) == ("given in Python", "", None, 0)
    assert (line["health"], line["alarms"]) == ("not watched", [])
    names = ("kl", "kl_key", "kl_step", "kl_unit", "reward", "reward_key", "reward_step", "beta")
    assert line["latest"] == dict.fromkeys(names)
