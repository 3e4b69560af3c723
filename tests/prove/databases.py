"""The database of a proof, SQLite or PostgreSQL: reads its content, and breaks it."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
from anyio import to_thread
from psycopg.rows import dict_row
from typing_extensions import override

from tests.fakes.postgres import PostgresServer
from tests.prove.journal import Journal, Query, count_open_rows, read_journal


class DatabaseNotBroken(Exception):
    """A fault could not be carried out because of another one."""


class ProvenDatabase(ABC):
    """The service's journal.

    Attributes:
        fault: The timeline's description of what `broken` does.
    """

    fault: str

    @abstractmethod
    def is_created(self) -> bool:
        """Return whether the service has begun to create the database."""

    @abstractmethod
    def read(self) -> Journal:
        """Read the journal, and check that the database is whole."""

    @abstractmethod
    def count_open_rows(self) -> int:
        """Return the number of messages that wait to be answered or sent; -1 if it cannot be read now."""

    @abstractmethod
    def broken(self) -> AbstractAsyncContextManager[None]:
        """Keep the service from writing inside the block. Raises DatabaseNotBroken."""


class SqliteDatabase(ProvenDatabase):
    """The files in a data folder. The fault: another process holds the write lock."""

    fault = "database locked"

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "parley.db"

    @override
    def is_created(self) -> bool:
        return self._file.exists()

    @override
    def read(self) -> Journal:
        damage = [problem for file in sorted(self._home.glob("*.db")) for problem in _damage(file)]
        with _open(self._file) as query:
            journal = read_journal(query)
        return replace(journal, problems=(*damage, *journal.problems))

    @override
    def count_open_rows(self) -> int:
        try:
            with _open(self._file) as query:
                return count_open_rows(query)
        except sqlite3.Error:
            return -1

    @override
    @asynccontextmanager
    async def broken(self) -> AsyncIterator[None]:
        if not self._file.exists():
            raise DatabaseNotBroken("it does not exist yet")
        with closing(sqlite3.connect(self._file, timeout=5, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise DatabaseNotBroken(str(error)) from error
            yield
            other.execute("ROLLBACK")


class PostgresDatabase(ProvenDatabase):
    """A database of a server that was started for the proof. The fault stops the server at once."""

    fault = "database stopped"

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._url = url
        self._is_stopped = False

    @override
    def is_created(self) -> bool:
        with self._open() as query:
            return any(query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'"))

    @override
    def read(self) -> Journal:
        with self._open() as query:
            return read_journal(query)

    @override
    def count_open_rows(self) -> int:
        try:
            with self._open() as query:
                return count_open_rows(query)
        except psycopg.Error:
            return -1

    @override
    @asynccontextmanager
    async def broken(self) -> AsyncIterator[None]:
        if self._is_stopped:
            raise DatabaseNotBroken("it is stopped")
        self._is_stopped = True
        await to_thread.run_sync(self._server.stop)
        yield
        await to_thread.run_sync(self._server.start)
        self._is_stopped = False

    @contextmanager
    def _open(self) -> Iterator[Query]:
        with psycopg.connect(self._url, row_factory=dict_row, connect_timeout=5) as connection:
            yield lambda statement: connection.execute(statement.encode()).fetchall()


@contextmanager
def _open(file: Path) -> Iterator[Query]:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield lambda statement: map(dict, connection.execute(statement))


def _damage(file: Path) -> list[str]:
    with _open(file) as query:
        checks = [str(value) for row in query("PRAGMA integrity_check") for value in row.values()]
        orphans = list(query("PRAGMA foreign_key_check"))
    problems = [f"{file.name}: {check}" for check in checks if check != "ok"]
    if orphans:
        tables = sorted({str(row["table"]) for row in orphans})
        problems.append(f"{file.name}: {len(orphans)} orphan rows in {', '.join(tables)}")
    return problems
