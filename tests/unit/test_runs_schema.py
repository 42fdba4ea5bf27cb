import sqlite3

import pytest

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.runs.records import Cause, Event, Step
from kleash.runs.writer import RunWriter


@pytest.fixture
def run(tmp_path):
    RunWriter.create(tmp_path / "run", {"seed": 1}, {}).close()
    return tmp_path / "run"


def test_the_version_stands_in_the_header_and_in_the_meta_table(run):
    with sqlite3.connect(run / "run.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
        assert database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() == ("2",)
    database.close()


@pytest.mark.parametrize("open_run", [RunReader, lambda path: RunWriter.resume(path, 0)])
def test_a_newer_schema_is_refused_with_what_to_do(run, open_run):
    with sqlite3.connect(run / "run.db") as database:
        database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(RunDirError, match=r"schema version 7; this Kleash reads versions up to 2.*upgrade"):
        open_run(run)


@pytest.mark.parametrize("open_run", [RunReader, lambda path: RunWriter.resume(path, 0)])
def test_a_file_of_another_program_is_refused(tmp_path, open_run):
    with sqlite3.connect(tmp_path / "run.db") as database:
        database.execute("CREATE TABLE songs (name TEXT)")
    database.close()
    with pytest.raises(RunDirError, match="some other program wrote"):
        open_run(tmp_path)


@pytest.mark.parametrize("open_run", [RunReader, lambda path: RunWriter.resume(path, 0)])
def test_a_file_that_is_not_sqlite_is_refused(tmp_path, open_run):
    (tmp_path / "run.db").write_bytes(b"not a database, but long enough to have a header" * 40)
    with pytest.raises(RunDirError, match=r"cannot be read as a run .*not SQLite.*metrics\.jsonl"):
        open_run(tmp_path)


def test_an_empty_file_says_that_the_run_never_began(tmp_path):
    (tmp_path / "run.db").touch()
    with pytest.raises(RunDirError, match="ended before it began"):
        RunReader(tmp_path)


VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE run (id INTEGER PRIMARY KEY, config TEXT, created_at TEXT, status TEXT, reason TEXT NOT NULL DEFAULT '');
CREATE TABLE steps (step INTEGER PRIMARY KEY, notes TEXT NOT NULL);
CREATE TABLE metrics (step INTEGER, key TEXT, value, stderr, PRIMARY KEY (key, step)) WITHOUT ROWID;
CREATE TABLE samples (step INTEGER, split TEXT, prompt_index INTEGER, sample_index INTEGER, prompt TEXT,
    completion TEXT, tokens TEXT, token_kl TEXT, reward, gold, kl, stopped INTEGER);
CREATE TABLE events (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, severity TEXT NOT NULL, name TEXT NOT NULL,
    message TEXT NOT NULL, numbers TEXT NOT NULL);
CREATE TABLE checkpoints (step INTEGER PRIMARY KEY, path TEXT NOT NULL, metrics TEXT NOT NULL);
INSERT INTO meta VALUES ('schema_version', '1');
INSERT INTO run (id, config, created_at, status) VALUES (1, '{"seed": 1}', '2026-08-01T10:00:00+00:00', 'interrupted');
INSERT INTO steps VALUES (0, '{}'), (1, '{}'), (2, '{}');
INSERT INTO metrics VALUES (0, 'kl', 0.0, NULL), (1, 'kl', 0.5, 0.25), (2, 'kl', 'nan', NULL);
INSERT INTO events (step, severity, name, message, numbers)
    VALUES (1, 'critical', 'stop_above', 'too far', '{"kl": 9}');
PRAGMA application_id = 1802269544;
PRAGMA user_version = 1;
"""
OLD_EVENT = Event(1, "critical", "stop_above", "too far", {"kl": 9.0})


@pytest.fixture
def old_run(tmp_path):
    """A run as version 0.1.0 left it."""
    (tmp_path / "old").mkdir()
    with sqlite3.connect(tmp_path / "old" / "run.db") as database:
        database.executescript(VERSION_1)
    database.close()
    return tmp_path / "old"


def test_a_run_of_version_1_is_read_as_it_is(old_run):
    before = (old_run / "run.db").read_bytes()
    with RunReader(old_run) as reader:
        assert reader.meta == {"schema_version": 1}
        assert [step.step for step in reader.steps()] == [0, 1, 2]
        assert reader.series("kl")[1] == (1, 0.5, 0.25)
        assert reader.events() == [OLD_EVENT]
    assert (old_run / "run.db").read_bytes() == before


def test_a_run_of_version_1_is_upgraded_when_it_is_resumed(old_run):
    alarm = Event(2, "warning", "kl/spike", "up", {}, 2, (Cause("a rate", "the rate"),), "Lower it.")
    with RunWriter.resume(old_run, 1) as writer:
        writer.write_step(Step(2, {"kl": 1.0}), events=[alarm])
    with sqlite3.connect(old_run / "run.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()
    with RunReader(old_run) as reader:
        assert reader.meta == {"schema_version": 2}
        assert [(step, value) for step, value, _ in reader.series("kl")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
        assert reader.events() == [OLD_EVENT, alarm]
    RunWriter.resume(old_run, 2).close()
    with RunReader(old_run) as reader:
        assert reader.events() == [OLD_EVENT, alarm]
