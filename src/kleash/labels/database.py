"""The tables of a label store, the version they carry, and the connection to SQLite or PostgreSQL.

Everything that differs between the two databases is here. Every transaction that writes takes its lock at the start,
so that two of them wait for each other and neither fails half way; readers wait for nobody.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Dialect,
    Engine,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError
from sqlalchemy.types import TypeDecorator

from kleash.errors import KleashError

SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
RETRY_SECONDS = 0.02
ADVISORY_LOCK = 0x6B6C7368
"""PostgreSQL's lock by number ("klsh"), held while tables are made or pairs are added."""

SQLITE, POSTGRESQL = "sqlite", "postgresql"
EXAMPLES = "Give a file, such as labels.db, or a URL, such as postgresql+psycopg://name:password@host/database."


class Json(TypeDecorator[Any]):
    """Text or messages as ASCII JSON: a model may write what no database takes, such as NUL or half a surrogate."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Write; None stays NULL."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read; NULL stays None."""
        return None if value is None else json.loads(value)


METADATA = MetaData()

SCHEMA = Table("label_schema", METADATA, Column("version", Integer, primary_key=True, autoincrement=False))

PAIRS = Table(
    "label_pairs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("prompt", Json, nullable=False),
    Column("first", Json, nullable=False),
    Column("second", Json, nullable=False),
    Column("source", Json),
    sqlite_autoincrement=True,
)

VOTES = Table(
    "label_votes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("pair_id", ForeignKey(PAIRS.c.id), nullable=False),
    Column("annotator", Text, nullable=False, index=True),
    Column("choice", Text),
    Column("flagged", Boolean, nullable=False),
    Column("strength", Float),
    Column("note", Json),
    Column("seconds", Float),
    Column("created_at", Text, nullable=False),
    UniqueConstraint("pair_id", "annotator"),
    CheckConstraint("choice IN ('first', 'second', 'tie', 'skip')"),
    sqlite_autoincrement=True,
)


class Database:
    """A label store's database: transactions that read and that write.

    Args:
        location: a path of an SQLite file, made if absent, or a SQLAlchemy URL.

    Raises:
        KleashError: a URL that means nothing, a database that cannot be reached, or tables of an unknown version.
    """

    def __init__(self, location: str | Path) -> None:
        url = _url(location)
        self.name = str(location) if url.get_backend_name() == SQLITE else url.set(query={}).render_as_string()
        self._engine = _engine(url)
        self.dialect = self._engine.dialect.name
        try:
            with self.writing() as connection:
                self._lock(connection)
                _create_or_check(connection, self.name)
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes: all of it is kept or, if anything fails, none."""
        with self._transaction(writes=True) as connection:
            yield connection

    @contextmanager
    def adding(self) -> Iterator[Connection]:
        """A transaction that adds pairs: one at a time, while votes and readers go on."""
        with self.writing() as connection:
            self._lock(connection)
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        try:
            with self._engine.connect().execution_options(writes=writes) as connection, connection.begin():
                yield connection
        except (DBAPIError, TimeoutError) as error:
            raise self._failure(error) from error

    def _failure(self, error: DBAPIError | TimeoutError) -> KleashError:
        reason = " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
        return KleashError(
            f"The label store {self.name} cannot be used ({reason}). What was not confirmed is not in it. Check that"
            " the database is there, is a label store, and may be written, then do it again."
        )

    def _lock(self, connection: Connection) -> None:
        """Let no other process make tables or add pairs; SQLite's writers have the file to themselves anyway."""
        if self.dialect == POSTGRESQL:
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": ADVISORY_LOCK})


def _url(location: str | Path) -> URL:
    if isinstance(location, str) and "://" in location:
        try:
            url = make_url(location)
        except (ArgumentError, ValueError) as error:
            raise KleashError(f"The label store's URL cannot be read ({error}). {EXAMPLES}") from error
    else:
        url = URL.create(SQLITE, database=str(location))
    kind = url.get_backend_name()
    if kind not in (SQLITE, POSTGRESQL):
        raise KleashError(f"A label store is kept in SQLite or PostgreSQL, not in '{kind}'. {EXAMPLES}")
    if kind == SQLITE:
        _check_file(url.database or "")
    return url


def _check_file(path: str) -> None:
    if path in ("", ":memory:"):
        raise KleashError(f"The label store has no file, and votes in memory alone would be lost. {EXAMPLES}")
    folder = Path(path).parent
    if not os.path.isdir(folder):
        raise KleashError(
            f"The label store '{path}' cannot be made: there is no folder '{folder}'. Make it, or check the path."
        )


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() == POSTGRESQL:
            return create_engine(url, pool_pre_ping=True)
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    except (ImportError, NoSuchModuleError) as error:
        raise KleashError(
            f"The driver of '{url.drivername}' cannot be loaded ({error}). Install it: pip install 'kleash[label]'."
        ) from error
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    """Leave transactions to `_begin_sqlite`, and use the write-ahead log where the file system has shared memory."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: Any) -> None:
    """Ask until the file is free: while another process makes the same switch, SQLite refuses without waiting."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create_or_check(connection: Connection, name: str) -> None:
    tables = inspect(connection).get_table_names()
    if SCHEMA.name not in tables:
        if tables and connection.dialect.name == SQLITE:
            raise KleashError(
                f"{name} is an SQLite file that holds something else ({', '.join(sorted(tables)[:4])}). Give the path"
                " of a label store, or one where nothing is yet."
            )
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))
    version = connection.execute(select(SCHEMA.c.version)).scalar_one()
    if version != SCHEMA_VERSION:
        raise KleashError(
            f"The label store {name} has schema version {version}; this Kleash knows version {SCHEMA_VERSION}. Another"
            " Kleash wrote it: upgrade with `pip install --upgrade kleash`, or export it with the one that wrote it."
        )
