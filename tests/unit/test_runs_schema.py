import sqlite3

import pytest

from kleash.errors import RunDirError
from kleash.runs.reader import RunReader
from kleash.runs.writer import RunWriter


@pytest.fixture
def run(tmp_path):
    RunWriter.create(tmp_path / "run", {"seed": 1}, {}).close()
    return tmp_path / "run"


def test_the_version_stands_in_the_header_and_in_the_meta_table(run):
    with sqlite3.connect(run / "run.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        assert database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() == ("1",)
    database.close()


@pytest.mark.parametrize("open_run", [RunReader, lambda path: RunWriter.resume(path, 0)])
def test_a_newer_schema_is_refused_with_what_to_do(run, open_run):
    with sqlite3.connect(run / "run.db") as database:
        database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(RunDirError, match=r"schema version 7; this Kleash reads versions up to 1.*upgrade"):
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
