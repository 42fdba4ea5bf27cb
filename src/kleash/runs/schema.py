"""The layout of a run directory and of its database, and the version that both carry.

docs/run-directory.md describes every table for those who read one with other tools.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kleash.errors import RunDirError
from kleash.runs.records import SEVERITIES, SPLITS, STATUSES

SCHEMA_VERSION = 2
APPLICATION_ID = 0x6B6C7368  # "klsh" in the file's header tells a Kleash run from any other SQLite file

DATABASE = "run.db"
MIRROR = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
REPORT = "report.html"


def _one_of(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


SINCE_VERSION_2 = (
    "began INTEGER",
    "causes TEXT NOT NULL DEFAULT '[]'",
    "advice TEXT NOT NULL DEFAULT ''",
    "ends INTEGER NOT NULL DEFAULT 0",
)
"""Columns of `events` that a database of version 1 lacks; it lacks `num_tokens` of `samples` as well."""

SAMPLES_NUMBERS = (
    "CREATE INDEX samples_numbers ON samples (step, split, prompt_index, sample_index, kl, reward, gold, num_tokens)"
)
"""What samples are filtered and sorted by, apart from the texts, which make most of the file."""

# A number column has no type, so that "nan" and "inf" stay text beside real numbers: see encoding.py.
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    config TEXT NOT NULL,
    created_at TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ({_one_of(STATUSES)})),
    reason TEXT NOT NULL DEFAULT ''
);
CREATE TABLE steps (step INTEGER PRIMARY KEY, notes TEXT NOT NULL);
CREATE TABLE metrics (
    step INTEGER NOT NULL,
    key TEXT NOT NULL,
    value,
    stderr,
    PRIMARY KEY (key, step)
) WITHOUT ROWID;
CREATE TABLE samples (
    step INTEGER NOT NULL,
    split TEXT NOT NULL CHECK (split IN ({_one_of(SPLITS)})),
    prompt_index INTEGER NOT NULL,
    sample_index INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    completion TEXT NOT NULL,
    tokens TEXT NOT NULL,
    token_kl TEXT NOT NULL,
    reward,
    gold,
    kl NOT NULL,
    stopped INTEGER NOT NULL,
    num_tokens INTEGER NOT NULL,
    PRIMARY KEY (split, step, prompt_index, sample_index)
);
{SAMPLES_NUMBERS};
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    severity TEXT NOT NULL CHECK (severity IN ({_one_of(SEVERITIES)})),
    name TEXT NOT NULL,
    message TEXT NOT NULL,
    numbers TEXT NOT NULL,
    {", ".join(SINCE_VERSION_2)}
);
CREATE TABLE checkpoints (step INTEGER PRIMARY KEY, path TEXT NOT NULL, metrics TEXT NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """Lay out an empty database inside the transaction that is open."""
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))


def upgrade(connection: sqlite3.Connection) -> None:
    """Lay out a database of an older version as this one does, inside the transaction that is open."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 1:
        for column in SINCE_VERSION_2:
            connection.execute(f"ALTER TABLE events ADD COLUMN {column}")
        connection.execute("ALTER TABLE samples ADD COLUMN num_tokens INTEGER NOT NULL DEFAULT 0")
        connection.execute("UPDATE samples SET num_tokens = json_array_length(tokens)")
        connection.execute(SAMPLES_NUMBERS)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))


def check_database(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not a run, or that a newer Kleash wrote.

    Args:
        connection: the open database.
        path: its file, for the message.

    Raises:
        RunDirError: a foreign, damaged, empty or newer file.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise RunDirError(
            f"{path} cannot be read as a run ({error}): the file is damaged, still being copied, or not "
            f"SQLite. The steps may also be in {path.parent / MIRROR}; restore {path.name} from a copy to "
            "read the rest."
        ) from error
    if tables == 0:
        raise RunDirError(
            f"{path} is empty: the run ended before it began, and there is nothing to read or resume. "
            f"Delete {path.parent} and start it again."
        )
    if application != APPLICATION_ID:
        raise RunDirError(
            f"{path} is an SQLite file that some other program wrote (application id {application}, a run "
            f"has {APPLICATION_ID}). Give the folder of a Kleash run."
        )
    if version > SCHEMA_VERSION:
        raise RunDirError(
            f"{path} has schema version {version}; this Kleash reads versions up to {SCHEMA_VERSION}. "
            "A newer Kleash wrote it: upgrade with `pip install --upgrade kleash`."
        )
