"""Copies a stopped SQLite installation into PostgreSQL row by row, then compares both. Blocking calls.

Each table is read in the order of its primary key and written in transactions of `BATCH_ROWS` rows, so the last key in
PostgreSQL is where an interrupted copy continues. Until the copy is complete, the table `unfinished_copy` keeps Parley
from using the database.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row
from typing_extensions import override

from store import checkpoints
from store.config import StoreConfig
from store.data_folder import lock_folder
from store.errors import StoreUnavailable
from store.postgres.connection import Connection, connect, parse_url, unavailable
from store.postgres.node_sessions import sole_use
from store.postgres.schema import UNFINISHED_COPY, migrate
from store.sqlite_file import connect as connect_sqlite

BATCH_ROWS = 200
"""Number of rows in memory at once. A message chunk has up to 100 KB."""

Cell = str | int | float | bytes | None
Cells = Sequence[Cell]

TABLES: Mapping[str, tuple[str, ...]] = {
    "conversation": ("id",),
    "inbox": ("id",),
    "message_words": ("inbox_id",),
    "refused_message": ("id",),
    "received_id": ("channel", "workspace", "kind", "chat", "external_id"),
    "outbox": ("id",),
    "discarded_delivery": ("id",),
    "message_topic": ("channel", "workspace", "chat", "message_id"),
    "pairing": ("code",),
    "thread": ("thread_id",),
    "past_message": ("id",),
    "guardrail_decision": ("id",),
    "run": ("seq",),
    "conversation_settings": ("channel", "workspace", "chat", "topic"),
    "item": ("namespace", "key"),
    "assistant": ("assistant_id",),
    "assistant_version": ("assistant_id", "version"),
    "chat_migration": ("channel", "workspace", "old_chat"),
    "credential": ("channel", "name"),
    "api_token": ("name",),
    "console_session": ("id",),
    "file_area": ("area",),
    "stored_file": ("area", "path"),
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
    "message_chunks": ("thread_id", "name"),
    "run_webhook": ("run_id",),
    "run_request": ("run_id",),
    "chat": ("channel", "workspace", "chat"),
    "person": ("id",),
    "notification": ("id",),
    "notification_chat": ("channel", "notification_id", "workspace", "chat"),
    "outbox_file": ("file_id", "part"),
    "model_usage": ("day", "run_id", "kind", "model", "agent"),
    "usage_counter": ("scope", "name", "period"),
    "usage_reservation": ("id",),
    "schedule": ("id",),
    "schedule_occurrence": ("schedule_id", "due_at"),
}
"""Primary keys of the copied tables. A table comes after the tables that it refers to.

Triggers, schema steps and running nodes fill the other tables.
"""

NUMBERED = (
    *("conversation", "inbox", "outbox", "run", "notification", "past_message", "refused_message"),
    "guardrail_decision",
)
"""Tables whose key is a number that the database assigns. It never reuses a number, even after the copy."""

_COLUMNS = """
SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_SET_NUMBER = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """The progress of the copy.

    Attributes:
        step: The current step of the table's transfer.
        table: The table.
        rows: Number of its finished rows.
        total: Number of all rows of the table.
    """

    step: Literal["copy", "verify"]
    table: str
    rows: int
    total: int


Reporter = Callable[[TransferProgress], None]


@dataclass(frozen=True, slots=True)
class TableChecksum:
    """The number of rows, and a sum of their hashes, which does not depend on their order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[Cells]) -> "TableChecksum":
        """Return the checksum including these rows.

        >>> one = TableChecksum().add([("a", 1), ("b", None)])
        >>> one == TableChecksum().add([("b", None)]).add([("a", 1)])
        True
        """
        hashes = [
            int.from_bytes(blake2b(repr(tuple(row)).encode(), digest_size=16).digest())
            for row in rows
        ]
        return TableChecksum(self.rows + len(hashes), (self.total + sum(hashes)) % 2**128)

    @override
    def __str__(self) -> str:
        return f"{self.total:032x}"


def transfer(
    source: StoreConfig, target: StoreConfig, home: Path, report: Reporter, *, restart: bool
) -> dict[str, TableChecksum]:
    """Copy all rows from SQLite to PostgreSQL, then compare both. The SQLite files keep their rows.

    After an interruption, call it again to continue.

    Args:
        source: Names the SQLite database.
        target: Names a PostgreSQL database that has no rows, or an unfinished copy of `source`.
        home: The data folder with the SQLite files. Their schema is updated first.
        report: Called after each batch of rows.
        restart: Discard an unfinished copy.

    Returns:
        The checksum of each table, equal on both sides.

    Raises:
        StoreLocked: A service uses the data folder or the database.
        StoreUnavailable: There are no SQLite files, one side cannot be used, or the sides differ.
    """
    with lock_folder(home), _open_sqlite(source, home) as origin, _open_postgres(target) as copy:
        copy.begin(origin.name, restart=restart)
        columns = {table: _columns(origin, copy, table) for table in TABLES}
        for table in TABLES:
            _copy(origin, copy, table, columns[table], report)
        checksums = {
            table: _compare(origin, copy, table, columns[table], report) for table in TABLES
        }
        copy.finish({table: origin.last_number(table) for table in NUMBERED})
        return checksums


def _columns(origin: "_Sqlite", copy: "_Postgres", table: str) -> list[str]:
    columns = origin.columns(table)
    if columns != copy.columns(table):
        raise StoreUnavailable(
            f"The table {table} has different columns in {copy.name} than in {origin.name}."
        )
    return columns


def _copy(
    origin: "_Sqlite", copy: "_Postgres", table: str, columns: Sequence[str], report: Reporter
) -> None:
    """Copy the rows after the last one in PostgreSQL."""
    total, done = origin.count(table), copy.count(table)
    for rows in _batches(origin, table, columns, copy.last_key(table)):
        copy.insert(table, columns, rows)
        done += len(rows)
        report(TransferProgress(step="copy", table=table, rows=done, total=total))


def _compare(
    origin: "_Sqlite", copy: "_Postgres", table: str, columns: Sequence[str], report: Reporter
) -> TableChecksum:
    """Return the checksum of a table; raise StoreUnavailable if the sides differ.

    Both sides are read together, so that each row is reported once.
    """
    total, read, copied = origin.count(table), TableChecksum(), TableChecksum()
    sides = (_batches(side, table, columns, None) for side in (origin, copy))
    for rows, rows_copied in zip_longest(*sides, fillvalue=[]):
        read, copied = read.add(rows), copied.add(rows_copied)
        report(TransferProgress(step="verify", table=table, rows=read.rows, total=total))
    if read != copied:
        raise StoreUnavailable(
            f"The table {table} differs: {read.rows} rows in {origin.name}, {copied.rows} in {copy.name}, "
            "or the values differ. The rows changed after the copy began. Run it again with --force."
        )
    return read


def _batches(
    side: "_Sqlite | _Postgres", table: str, columns: Sequence[str], after: Cells | None
) -> Iterator[list[tuple[Cell, ...]]]:
    """Yield a table's rows after the key `after`, in the order of the key; None = all rows."""
    key = [columns.index(column) for column in TABLES[table]]
    while rows := side.rows(table, columns, after):
        yield rows
        after = [rows[-1][place] for place in key]


class _Sqlite:
    """The journal, with the checkpoints attached.

    Args:
        connection: To the journal.
        name: Its name in messages.
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
        """Return the next rows as PostgreSQL stores them."""
        key = ", ".join(TABLES[table])
        places = ", ".join("?" * len(TABLES[table]))
        where = "" if after is None else f"WHERE ({key}) > ({places})"
        shown = ", ".join(columns)
        found = self._run(
            f"SELECT {shown} FROM {table} {where} ORDER BY {key} LIMIT {BATCH_ROWS}", after or ()
        )
        return [tuple(map(_without_nul, row)) for row in found]

    def last_number(self, table: str) -> int:
        """Return the last number assigned in a table; 0 = none."""
        found = self._run("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return int(found[0][0]) if found else 0

    def _run(self, statement: str, values: Cells = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"The database {self.name} could not be used ({error})."
            ) from error


@contextmanager
def _open_sqlite(config: StoreConfig, home: Path) -> Iterator[_Sqlite]:
    journal, saved = config.file(home), home / checkpoints.FILE
    if not journal.is_file():
        raise StoreUnavailable(f"There is nothing to move: {journal} does not exist.")
    checkpoints.connect_checkpoints(saved).close()
    with closing(connect_sqlite(journal, busy_timeout_ms=config.busy_timeout_ms)) as connection:
        connection.execute("ATTACH ? AS saved", (str(saved),))
        yield _Sqlite(connection, str(journal))


def _without_nul(cell: Cell) -> Cell:
    r"""Return a value as PostgreSQL stores it: its text has no NUL.

    >>> _without_nul("a\0b"), _without_nul(1)
    ('a\ufffdb', 1)
    """
    return cell.replace("\0", "\ufffd") if isinstance(cell, str) else cell


class _Postgres:
    """The tables of a PostgreSQL database.

    Args:
        connection: In autocommit mode.
    """

    def __init__(self, connection: Connection) -> None:
        info = connection.info
        self.name = f"postgresql://{info.host}:{info.port}/{info.dbname}"
        """Its name in messages, without the password."""
        self._connection = connection

    def begin(self, source: str, *, restart: bool) -> None:
        """Mark the database as an unfinished copy of `source`; accept one that is marked already.

        Raises:
            StoreUnavailable: The database has rows, or an unfinished copy of something else.
        """
        is_unfinished = bool(
            self._run("SELECT to_regclass(%s) IS NOT NULL", (UNFINISHED_COPY,))[0][0]
        )
        if is_unfinished and not restart:
            earlier = self._run(f"SELECT source FROM {UNFINISHED_COPY}")[0][0]
            if earlier != source:
                raise StoreUnavailable(
                    f"{self.name} has an unfinished copy of {earlier}: --force discards it."
                )
            return
        if not is_unfinished:
            self._check_unused()
        try:
            with self._connection.transaction():
                for table in reversed(list(TABLES)):
                    self._connection.execute(
                        sql.SQL("DELETE FROM {}").format(sql.Identifier(table))
                    )
                self._connection.execute(f"DROP TABLE IF EXISTS {UNFINISHED_COPY}")
                self._connection.execute(f"CREATE TABLE {UNFINISHED_COPY} (source TEXT NOT NULL)")
                self._connection.execute(f"INSERT INTO {UNFINISHED_COPY} VALUES (%s)", [source])
        except psycopg.Error as error:
            raise unavailable(error) from error

    def _check_unused(self) -> None:
        for table in TABLES:
            # A service that was started and did nothing else has written a probe.
            if table != "received_id" and (count := self.count(table)):
                raise StoreUnavailable(
                    f"The database {self.name} is used already: it has {count} row(s) in {table}. "
                    "Choose an empty one."
                )

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, sorted."""
        return sorted(row[0] for row in self._run(_COLUMNS, (table,)))

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(
            self._run(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))[0][0]
        )

    def rows(
        self, table: str, columns: Sequence[str], after: Cells | None
    ) -> list[tuple[Cell, ...]]:
        """Return the next rows."""
        key = _names(TABLES[table])
        where: sql.Composable = sql.SQL("")
        if after is not None:
            places = sql.SQL(", ").join(sql.Placeholder() * len(after))
            where = sql.SQL("WHERE ({}) > ({})").format(key, places)
        statement = sql.SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT {}")
        return self._run(
            statement.format(_names(columns), sql.Identifier(table), where, key, BATCH_ROWS),
            after or (),
        )

    def last_key(self, table: str) -> Cells | None:
        """Return the last key of a table; None if it is empty."""
        order = sql.SQL(", ").join(
            sql.SQL("{} DESC").format(sql.Identifier(one)) for one in TABLES[table]
        )
        statement = sql.SQL("SELECT {} FROM {} ORDER BY {} LIMIT 1")
        found = self._run(statement.format(_names(TABLES[table]), sql.Identifier(table), order))
        return found[0] if found else None

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Cells]) -> None:
        """Add rows in one transaction."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), _names(columns)
        )
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise unavailable(error) from error

    def finish(self, numbers: Mapping[str, int]) -> None:
        """Remove the mark, so that Parley can use the database.

        Args:
            numbers: The last numbers that SQLite assigned, by table. PostgreSQL continues after them.
        """
        try:
            with self._connection.transaction():
                for table, number in numbers.items():
                    if number:
                        self._run(_SET_NUMBER, (table, TABLES[table][0], number))
                self._connection.execute(f"DROP TABLE {UNFINISHED_COPY}")
            self._connection.execute("ANALYZE")
        except psycopg.Error as error:
            raise unavailable(error) from error

    def _run(
        self, statement: LiteralString | sql.Composed, values: Cells = ()
    ) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(statement, values or None).fetchall()
        except psycopg.Error as error:
            raise unavailable(error) from error


@contextmanager
def _open_postgres(config: StoreConfig) -> Iterator[_Postgres]:
    """Open a database that no Parley uses; create or update its tables."""
    parameters = parse_url(config.url)
    with sole_use(parameters):
        migrate(parameters, allow_unfinished=True)
        with closing(connect(parameters)) as connection:
            connection.execute("SET statement_timeout = 0")
            yield _Postgres(connection)


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
