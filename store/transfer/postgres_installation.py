"""A PostgreSQL database, as source or target of a move. Blocking calls."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from store.config import StoreConfig
from store.errors import StoreUnavailable
from store.postgres.connection import Connection, connect, parse_url, unavailable
from store.postgres.node_sessions import sole_use
from store.postgres.schema import UNFINISHED_COPY, migrate
from store.transfer.sqlite_installation import BATCH_ROWS, check_same_source
from store.transfer.tables import TABLES, Cell, Cells

_COLUMNS = """
SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_LAST_NUMBER = (
    "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(%s, %s)::regclass), 0)"
)
_SET_NUMBER = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"


class PostgresInstallation:
    """The tables of a database.

    Args:
        connection: In autocommit mode.
        name: For people.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

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
        """Return the next rows in the order of the key."""
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

    def last_number(self, table: str) -> int:
        """Return the last number that was assigned in a table."""
        return int(self._run(_LAST_NUMBER, (table, TABLES[table][0]))[0][0])

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
        """Take the mark away, so that Parley can start with the database."""
        try:
            with self._connection.transaction():
                for table, number in numbers.items():
                    if number:
                        self._run(_SET_NUMBER, (table, TABLES[table][0], number))
                self._connection.execute(f"DROP TABLE {UNFINISHED_COPY}")
            self._connection.execute("ANALYZE")
        except psycopg.Error as error:
            raise unavailable(error) from error

    def begin(self, source: str, *, restart: bool) -> None:
        """Mark the database as an unfinished copy of `source`; go on with one that was begun.

        Args:
            source: The other side's name.
            restart: Empty an unfinished copy.

        Raises:
            StoreUnavailable: The database is used, or has an unfinished copy of something else.
        """
        found = self._run("SELECT to_regclass(%s) IS NOT NULL", (UNFINISHED_COPY,))
        is_unfinished = bool(found[0][0])
        if is_unfinished and not restart:
            check_same_source(source, self._run(f"SELECT source FROM {UNFINISHED_COPY}")[0][0])
            return
        if not is_unfinished:
            self._check_unused()
        with self._connection.transaction():
            for table in reversed(list(TABLES)):
                self._connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            self._connection.execute(f"DROP TABLE IF EXISTS {UNFINISHED_COPY}")
            self._connection.execute(f"CREATE TABLE {UNFINISHED_COPY} (source TEXT NOT NULL)")
            self._connection.execute(f"INSERT INTO {UNFINISHED_COPY} VALUES (%s)", [source])

    def _check_unused(self) -> None:
        for table in TABLES:
            # A service that only started has tried whether it can write.
            if table != "received_id" and (count := self.count(table)):
                raise StoreUnavailable(
                    f"The database {self.name} is used already: it has {count} row(s) in {table}. "
                    "Choose an empty one."
                )

    def _run(
        self, statement: LiteralString | sql.Composed, values: Sequence[Cell] = ()
    ) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(statement, values or None).fetchall()
        except psycopg.Error as error:
            raise unavailable(error) from error


@contextmanager
def open_postgres_source(config: StoreConfig) -> Iterator[PostgresInstallation]:
    """Open a database that no Parley uses; bring it up to date. Raises StoreUnavailable."""
    with _opened(config, allow_unfinished=False) as (connection, name):
        yield PostgresInstallation(connection, name)


@contextmanager
def open_postgres_target(
    config: StoreConfig, source: str, *, restart: bool
) -> Iterator[PostgresInstallation]:
    """Open a database that no Parley uses, create the tables, and mark it as an unfinished copy.

    Raises:
        StoreUnavailable: It cannot be used, or has rows.
    """
    with _opened(config, allow_unfinished=True) as (connection, name):
        target = PostgresInstallation(connection, name)
        try:
            target.begin(source, restart=restart)
        except psycopg.Error as error:
            raise unavailable(error) from error
        yield target


@contextmanager
def _opened(config: StoreConfig, *, allow_unfinished: bool) -> Iterator[tuple[Connection, str]]:
    parameters = parse_url(config.url)
    with sole_use(parameters):
        migrate(parameters, allow_unfinished=allow_unfinished)
        with closing(connect(parameters)) as connection:
            info = connection.info
            connection.execute("SET statement_timeout = 0")
            yield connection, f"postgresql://{info.host}:{info.port}/{info.dbname}"


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
