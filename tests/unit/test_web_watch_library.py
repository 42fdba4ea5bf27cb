import os
import re
import shutil
import sqlite3

import pytest

from kleash.errors import RunDirError
from kleash.runs.records import Step
from kleash.runs.writer import RunWriter
from kleash.web.watch_library import Library, RunNotFound


def make_run(path):
    RunWriter.create(path, {}, {}).close()
    return path


@pytest.fixture
def imports(tmp_path):
    folder = tmp_path / "imports"
    folder.mkdir()
    return folder


def names(library):
    return [entry.name for entry in library.entries()]


def test_runs_are_found_by_themselves_and_in_folders(tmp_path, imports):
    make_run(tmp_path / "runs" / "two")
    make_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "notes").mkdir()
    alone = make_run(tmp_path / "elsewhere" / "alone")
    library = Library([tmp_path / "runs", alone], imports)
    assert names(library) == ["one", "two", "alone"]
    assert not any(entry.is_log for entry in library.entries())


def test_a_run_that_begins_appears_and_one_that_is_deleted_stays(tmp_path, imports):
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs"], imports)
    assert names(library) == []
    make_run(tmp_path / "runs" / "new")
    (entry,) = library.entries()
    shutil.rmtree(entry.path)
    assert library.entries() == [entry]
    with pytest.raises(RunNotFound, match=r"runs/new is gone: the run was deleted or moved"), library.open(entry):
        pass


def test_a_file_or_folder_without_runs_is_another_trainers_log(tmp_path, imports):
    log = tmp_path / "history.csv"
    log.write_text("step,kl\n")
    output = tmp_path / "output"
    output.mkdir()
    (output / "trainer_state.json").write_text("{}")
    assert [(entry.path, entry.is_log) for entry in Library([log, output], imports).entries()] == [
        (log, True),
        (output, True),
    ]


def test_a_folder_of_runs_is_no_log_whatever_else_lies_in_it(tmp_path, imports):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "notes.txt").write_text("Try a smaller rate.")
    library = Library([runs], imports)
    assert names(library) == ["runs"]
    make_run(runs / "one")
    assert names(library) == ["one"]
    shutil.rmtree(runs / "one")
    assert names(library) == ["one"]
    shutil.rmtree(runs)
    assert names(library) == ["one"]


def test_a_root_that_may_not_be_read_is_refused(tmp_path, imports, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(RunDirError, match=r"may not be read by this user\. Change its permissions"):
        Library([make_run(tmp_path / "run")], imports)


def test_a_root_that_is_not_there_is_refused(tmp_path, imports):
    with pytest.raises(RunDirError, match=r"There is no .*absent\. Give a run's folder, a folder that holds runs"):
        Library([tmp_path / "absent"], imports)


@pytest.mark.parametrize("name", ["plain", "mit Umlaut ö", "a/../b", "..."])
def test_an_id_is_readable_safe_and_the_same_each_time(tmp_path, imports, name):
    make_run(tmp_path / "runs" / "x" / name)
    roots = [(tmp_path / "runs" / "x" / name)]
    (first,) = Library(roots, imports).entries()
    (second,) = Library(roots, imports).entries()
    assert first.id == second.id
    assert re.fullmatch(r"[A-Za-z0-9_-]+-[0-9a-f]{8}", first.id)


def test_runs_of_one_name_in_two_places_have_two_ids(tmp_path, imports):
    library = Library([make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")], imports)
    assert len({entry.id for entry in library.entries()}) == 2
    assert {library.entry(entry.id) for entry in library.entries()} == set(library.entries())


@pytest.mark.parametrize("run_id", ["", "nope", "../../etc/passwd", "/etc"])
def test_an_id_that_no_run_has_opens_nothing(tmp_path, imports, run_id):
    library = Library([make_run(tmp_path / "run")], imports)
    with pytest.raises(RunNotFound, match=re.escape(f"No run here has the id {run_id!r}")):
        library.entry(run_id)


def test_a_run_that_is_damaged_inside_is_a_sentence(tmp_path, imports):
    library = Library([make_run(tmp_path / "run")], imports)
    (entry,) = library.entries()
    with sqlite3.connect(tmp_path / "run" / "run.db") as database:
        database.execute("DROP TABLE events")
        database.execute("UPDATE run SET config = '{torn'")
    database.close()
    with (
        pytest.raises(RunDirError, match=r"cannot be read to the end \(no such table: events\)"),
        library.open(entry) as reader,
    ):
        reader.events()
    with (
        pytest.raises(RunDirError, match=r"cannot be read to the end \(Expecting property name"),
        library.open(entry) as reader,
    ):
        print(reader.config)


def test_the_state_changes_with_every_step(tmp_path, imports):
    with RunWriter.create(tmp_path / "run", {}, {}) as writer:
        library = Library([tmp_path / "run"], imports)
        (entry,) = library.entries()
        states = [library.state(entry)]
        for step in range(3):
            writer.write_step(Step(step, {"kl": 1.0}))
            states.append(library.state(entry))
        assert library.state(entry) == states[-1]
    assert len(set(states)) == 4
    shutil.rmtree(tmp_path / "run")
    assert library.state(entry) == (None, None)
