"""The SQLite files of a data folder, as source or target of a move. Blocking calls."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from store import checkpoints
from store.config import StoreConfig
from store.errors import StoreUnavailable
from store.sqlite_file import connect
from store.transfer.tables import TABLES, Cell, Cells, comparable

BATCH_ROWS = 200
"""Rows that are in memory at once: a message chunk has up to 100 KB."""

INCOMPLETE = ".incomplete"
"""Suffix of files that are being written."""

_COUNT_SEQS = """
UPDATE conversation SET last_seq = last.seq
FROM (SELECT conversation_id, max(seq) AS seq FROM inbox GROUP BY conversation_id) AS last
WHERE conversation.id = last.conversation_id AND conversation.last_seq < last.seq
"""
"""PostgreSQL does not count there; SQLite gives the next message the position after it."""

_MARK = "CREATE TABLE unfinished_copy (source TEXT NOT NULL)"


class SqliteInstallation:
    """The journal, with the checkpoints attached.

    Args:
        connection: Of the journal.
        name: For people.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, sorted."""
        return sorted(row[0] for row in self._run(f"SELECT name FROM pragma_table_info('{table}')"))

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(self._run(f"SELECT count(*) FROM {table}")[0][0])

    def rows(
        self, table: str, columns: Sequence[str], after: Cells | None
    ) -> list[tuple[Cell, ...]]:
        """Return the next rows in the order of the key."""
        key = ", ".join(TABLES[table])
        places = ", ".join("?" * len(TABLES[table]))
        where = "" if after is None else f"WHERE ({key}) > ({places})"
        # LangGraph wrote the metadata of checkpoints as a BLOB.
        shown = ", ".join("CAST(metadata AS TEXT)" if one == "metadata" else one for one in columns)
        found = self._run(
            f"SELECT {shown} FROM {table} {where} ORDER BY {key} LIMIT {BATCH_ROWS}", after or ()
        )
        return [tuple(map(comparable, row)) for row in found]

    def last_key(self, table: str) -> Cells | None:
        """Return the last key of a table; None if it is empty."""
        key = TABLES[table]
        order = ", ".join(f"{column} DESC" for column in key)
        found = self._run(f"SELECT {', '.join(key)} FROM {table} ORDER BY {order} LIMIT 1")
        return found[0] if found else None

    def last_number(self, table: str) -> int:
        """Return the last number that was assigned in a table."""
        found = self._run("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return int(found[0][0]) if found else 0

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Cells]) -> None:
        """Add rows in one transaction."""
        places = ", ".join("?" * len(columns))
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows
            )
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise _unavailable(self.name, error) from error

    def finish(self, numbers: Mapping[str, int]) -> None:
        """Take the mark away; `open_sqlite_target` gives the files their names when it is closed."""
        for table, number in numbers.items():
            self._run("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self._run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
        self._run(_COUNT_SEQS)
        self._run("DROP TABLE unfinished_copy")

    def _run(self, statement: str, values: Sequence[Cell] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _unavailable(self.name, error) from error


@contextmanager
def open_sqlite_source(config: StoreConfig, home: Path) -> Iterator[SqliteInstallation]:
    """Open the files of a data folder, which the caller has locked; bring them up to date.

    Raises:
        StoreUnavailable: There are none, or they cannot be used.
    """
    journal = config.file(home)
    if not journal.is_file():
        raise StoreUnavailable(f"There is nothing to move: {journal} does not exist.")
    with _opened(journal, home / checkpoints.FILE, config) as connection:
        yield SqliteInstallation(connection, str(journal))


@contextmanager
def open_sqlite_target(
    config: StoreConfig, home: Path, source: str, *, restart: bool
) -> Iterator[SqliteInstallation | None]:
    """Yield new files beside those of the data folder, which the caller has locked; None if all rows are in them.

    Once they are complete they get their names.

    Args:
        config: The `database` section that names the journal.
        home: The data folder.
        source: The other side's name: only the same one can be continued.
        restart: Discard what an earlier attempt wrote.

    Raises:
        StoreUnavailable: There are databases, or what an attempt with another source wrote.
    """
    journal, saved = config.file(home), home / checkpoints.FILE
    new, new_saved = journal.with_name(f"{journal.name}{INCOMPLETE}"), Path(f"{saved}{INCOMPLETE}")
    if restart:
        _delete(new, new_saved)
    for file in (journal, saved):
        if file.exists() and not (file == saved and new.exists()):
            raise StoreUnavailable(f"{file} exists: move it away first.")
    if not _is_complete(new, source):
        with _opened(new, new_saved, config) as connection:
            yield SqliteInstallation(connection, str(journal))
    else:
        yield None
    if _is_complete(new, source):
        _rename(new_saved, saved)
        _rename(new, journal)


def _delete(*databases: Path) -> None:
    for file in databases:
        for end in ("", "-wal", "-shm"):
            file.with_name(f"{file.name}{end}").unlink(missing_ok=True)


def _rename(file: Path, name: Path) -> None:
    """Rename a database that is closed; one that was renamed already is fine."""
    if file.exists():
        file.rename(name)


@contextmanager
def _opened(journal: Path, saved: Path, config: StoreConfig) -> Iterator[sqlite3.Connection]:
    checkpoints.connect_checkpoints(saved).close()
    with closing(connect(journal, busy_timeout_ms=config.busy_timeout_ms)) as connection:
        connection.execute("ATTACH ? AS saved", (str(saved),))
        yield connection


def _is_complete(new: Path, source: str) -> bool:
    """Return whether all rows are in a file; make it, marked as incomplete, if it does not exist.

    Raises:
        StoreUnavailable: It is a copy of something else.
    """
    try:
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if not names:
                connection.execute("BEGIN")
                connection.execute(_MARK)
                connection.execute("INSERT INTO unfinished_copy VALUES (?)", (source,))
                connection.execute("COMMIT")
            elif "unfinished_copy" not in names:
                return True
            check_same_source(
                source, connection.execute("SELECT source FROM unfinished_copy").fetchone()[0]
            )
    except sqlite3.Error as error:
        raise _unavailable(str(new), error) from error
    return False


def check_same_source(source: str, earlier: str) -> None:
    """Raise StoreUnavailable if an unfinished copy is one of something else."""
    if source != earlier:
        raise StoreUnavailable(
            f"The target has an unfinished copy of {earlier}: --force discards it."
        )


def _unavailable(name: str, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(f"The database {name} could not be used ({error}).")
